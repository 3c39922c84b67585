//! A core: what one thread needs to transfer data.

mod builder;
mod receives;
mod retired;
mod turn;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustc_hash::FxHashMap;
use sideway::error::VerbError;
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::device::{DeviceInfo, TransportType};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePairBuilder};

pub use self::builder::Builder;
use self::builder::Device;
use self::receives::Receives;
use self::retired::Retired;
use crate::Error;
use crate::cm::Manager;
use crate::error::shape;
use crate::link::Link;
use crate::memory::{Exposed, Origin, Pool, Rights};
use crate::ready::Rouser;
use crate::sleep::Sleeper;
use crate::table::{Consequences, Table};
use crate::tasks::Tasks;

/// The queues and the memory of one thread: a completion queue, a shared receive queue, connections, and pools of
/// buffers. Clones are the same core. It stays on its thread:
///
/// ```compile_fail,E0277
/// fn goes_elsewhere<T: Send>() {}
///
/// goes_elsewhere::<canter::Core>();
/// ```
#[derive(Clone, Debug)]
pub struct Core {
    pub(crate) inner: Rc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) links: RefCell<FxHashMap<u32, Rc<Link>>>,
    retired: RefCell<VecDeque<Retired>>,
    pub(crate) cm: RefCell<Option<Rc<Manager>>>,
    pub(crate) tasks: Tasks,
    pub(crate) sleeper: Sleeper,
    pub(crate) rouser: Arc<Rouser>,
    receives: Receives,
    cq: RefCell<GenericCompletionQueue>,
    // The buffers below are dropped after the queues above, with which the device's access to them ends.
    pub(crate) table: RefCell<Table>,
    /// Where the results of atomic operations are written. It has a buffer for each request.
    pub(crate) words: Pool,
    origin: Origin,
    pub(crate) context: Arc<DeviceContext>,
    connections: usize,
    depth: u32,
    pub(crate) inline: usize,
    unread: usize,
    pub(crate) spin: Duration,
    pub(crate) handshake: Duration,
    scratch: RefCell<Consequences>,
    /// The number of entries of the completion queue.
    entries: u32,
    /// How often the tasks could run.
    pub(crate) round: Cell<u32>,
    broken: OnceCell<Error>,
}

/// The number of the next core. Buffers contain the number of theirs.
static NEXT: AtomicU64 = AtomicU64::new(0);

impl Core {
    /// Builds a core on the device of this name. `ibv_devices` lists the names; with the feature `softrnic`, `soft0` and
    /// `softiw0` are always there. Addresses of this host lead to `soft0`, unless `SOFTRNIC_DEVICES=softiw0` is set.
    pub fn builder(device: &str) -> Builder {
        Builder::new(Device::Name(device.to_owned()))
    }

    /// Builds a core on an open device. Connections by address need a device of the connection manager
    /// ([`sideway::rdmacm::devices`]).
    pub fn builder_on(device: &Arc<DeviceContext>) -> Builder {
        Builder::new(Device::Open(Arc::clone(device)))
    }

    pub(crate) fn from_inner(inner: Inner) -> Self {
        Self { inner: Rc::new(inner) }
    }

    /// Registers `count` buffers of `size` bytes for requests of this core.
    ///
    /// # Errors
    ///
    /// - [`Error::Shape`]: a number is zero, or the size is 2 GiB or more.
    /// - [`Error::Verb`]: there is too little memory, or too little that may be locked.
    pub fn pool(&self, size: usize, count: u32) -> Result<Pool, Error> {
        Pool::new(&self.inner.origin, size, count)
    }

    /// Registers memory that peers of this core's connections access. It starts with zeros.
    ///
    /// # Errors
    ///
    /// [`Error::Verb`]: the length is zero, there is too little memory, or too little that may be locked.
    pub fn expose(&self, len: usize, rights: Rights) -> Result<Exposed, Error> {
        Exposed::new(&self.inner.origin.pd, len, rights, !self.inner.origin.is_iwarp)
    }

    /// Returns the device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.inner.context
    }
}

impl Inner {
    fn new(builder: &Builder, context: &Arc<DeviceContext>) -> Result<Self, Error> {
        let limits = context.query_device()?;
        let requests = builder.connections.checked_mul(builder.depth);
        let entries = requests.and_then(|requests| requests.checked_add(builder.receives));
        let entries = entries.filter(|&entries| entries <= limits.max_cqe()).ok_or_else(|| {
            shape(format!(
                "{} connections with {} requests each, and {} receives, need more completions than the {} of {}; lower \
                one of them",
                builder.connections,
                builder.depth,
                builder.receives,
                limits.max_cqe(),
                context.name()
            ))
        })?;
        for (what, wish, most) in [
            ("receives", builder.receives, limits.max_srq_wr()),
            ("requests of a connection", builder.depth, limits.max_qp_wr()),
            ("connections", builder.connections, limits.max_qp()),
        ] {
            if wish > most {
                return Err(shape(format!("{wish} {what}: {} has at most {most}", context.name())));
            }
        }
        let origin = Origin {
            pd: context.alloc_pd()?,
            core: NEXT.fetch_add(1, Ordering::Relaxed),
            is_iwarp: context.transport_type() == TransportType::IWarp,
        };
        let channel = context.create_comp_channel()?;
        let mut cq = context.create_cq_builder();
        let cq = cq.setup_cqe(entries).setup_comp_channel(&channel, 0).build_generic()?;
        let rouser = Arc::new(Rouser::new()?);
        let receives = Receives::new(&origin, builder.receive_size, builder.receives, &rouser)?;
        let inner = Self {
            links: RefCell::default(),
            retired: RefCell::default(),
            cm: RefCell::default(),
            tasks: Tasks::new(&rouser),
            sleeper: Sleeper::new(channel)?,
            rouser,
            receives,
            cq: RefCell::new(cq),
            table: RefCell::default(),
            words: Pool::new(&origin, 8, entries - builder.receives)?,
            origin,
            context: Arc::clone(context),
            connections: builder.connections as usize,
            depth: builder.depth,
            inline: 0,
            unread: builder.unread.unwrap_or(builder.receives as usize / 4).max(1),
            spin: builder.spin,
            handshake: builder.handshake,
            scratch: RefCell::default(),
            entries,
            round: Cell::new(0),
            broken: OnceCell::new(),
        };
        inner.sleeper.watch(inner.rouser.descriptor())?;
        inner.replenish()?;
        // A queue pair that the device refuses would be known only when the first peer connects.
        let inline = inner.most_inline(builder.inline)?;
        Ok(Self { inline, ..inner })
    }

    /// The largest size of inline data, up to `wish`, that the device supports. Devices do not report it.
    fn most_inline(&self, wish: u32) -> Result<usize, VerbError> {
        let mut bytes = wish;
        loop {
            let mut builder = self.shape_of_queue_pairs();
            let built: Result<GenericQueuePair, VerbError> = builder.setup_max_inline_data(bytes).build_generic();
            match built {
                Err(_) if bytes > 0 => bytes /= 2,
                built => return built.map(|_| bytes as usize),
            }
        }
    }

    fn shape_of_queue_pairs(&self) -> QueuePairBuilder {
        let cq = self.cq.borrow();
        let mut builder = self.origin.pd.create_qp_builder();
        builder.setup_send_cq(&*cq).setup_recv_cq(&*cq).setup_max_send_wr(self.depth).setup_max_recv_wr(0);
        builder.setup_max_send_sge(1).setup_srq(&self.receives.queue());
        builder
    }

    /// Creates a queue pair.
    pub(crate) fn queue_pair(
        &self,
        build: impl FnOnce(&QueuePairBuilder) -> Result<GenericQueuePair, VerbError>,
    ) -> Result<GenericQueuePair, Error> {
        if self.links.borrow().len() >= self.connections {
            return Err(Error::Connections { limit: self.connections });
        }
        // Completions of earlier queue pairs may be left, and the queue has no entries for them and for new ones.
        self.catch_up()?;
        self.bury((self.connections - 1).saturating_sub(self.links.borrow().len()));
        let mut builder = self.shape_of_queue_pairs();
        Ok(build(builder.setup_max_inline_data(self.inline as u32))?)
    }

    /// Adds a connection.
    pub(crate) fn add(&self, link: Link) -> Rc<Link> {
        let link = Rc::new(link);
        self.links.borrow_mut().insert(link.number, Rc::clone(&link));
        link
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    pub(crate) fn id(&self) -> u64 {
        self.origin.core
    }

    /// The manager of connections by address, which the first use creates.
    pub(crate) fn manager(&self) -> Result<Rc<Manager>, Error> {
        if let Some(manager) = &*self.cm.borrow() {
            manager.check()?;
            return Ok(Rc::clone(manager));
        }
        let manager = Rc::new(Manager::new()?);
        self.sleeper.watch(manager.descriptor())?;
        *self.cm.borrow_mut() = Some(Rc::clone(&manager));
        Ok(manager)
    }
}
