//! A device that only records: an in-process provider without hardware, which logs every call, follows a script, and
//! detects actions that would crash a driver.
//!
//! [`Recording::new`] creates a device for the calling thread, and only that thread lists it: parallel tests
//! do not see each other. The library of the system is never called.
//!
//! ```
//! use sideway_tests::recording::{Failure, Kind, Recording};
//!
//! let recording = Recording::new();
//! recording.fail("alloc_pd", 0, Failure::documented(libc::ENOMEM));
//! let context = recording.open();
//! assert_eq!(context.alloc_pd().unwrap_err().to_string(), "ibv_alloc_pd: ENOMEM (Cannot allocate memory)");
//! drop(context);
//! assert_eq!(recording.verbs(), ["get_device_list", "open_device", "free_device_list", "alloc_pd", "close_device"]);
//! assert_eq!(recording.live(), [Kind::Context; 0]);
//! ```
//!
//! Connections are softrnic's: [`shim`](crate::shim). These verbs are not softrnic's under rdma-lens, for four reasons:
//!
//! * Each verb must misbehave. `everything` makes each call fail in ways that no manual page documents, and replaces
//!   each number that it returns; a lens only injects documented failures into a device that behaves.
//! * Drivers lack functions, report any attributes, and crash on some requests ([`Recording::without`],
//!   [`Recording::edit`], [`Driver`]); softrnic has one set of functions and attributes, and refuses such requests.
//! * softrnic lacks work queues, flows, counters, tag matching, and the dynamic connections and datagrams of vendors.
//!   The vendors' requests need the queue pairs, completion queues and shared receive queues of this device.
//! * A lens belongs to the process, and its trace has texts. Tests here run in parallel, each with a device, and
//!   compare the arguments as C has them, also under Miri.
//!
//! All functions have one shape: `stub.rs`.
//!
//! `ibv_context`, `ibv_cq_ex` and `ibv_qp_ex` have only the requested functions: a field or
//! operation that was not requested is a null pointer, and calling it ends the process.

mod address;
mod async_events;
mod buffer;
mod calls;
mod completion;
mod control;
mod counters;
mod device;
mod device_memory;
mod domain;
mod driver;
mod efa;
mod extended_cq;
mod extended_qp;
mod failure;
mod flow;
mod import;
mod memory;
mod mlx5;
mod objects;
mod post;
mod qp;
mod query;
mod receives;
mod script;
mod semaphore;
mod spoil;
mod srq;
mod state;
mod stub;
mod values;
mod vendor;
mod warnings;
mod window;
mod work_queue;
mod world;
mod xrc;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Once};

use rdma_mummy_sys::load::ibverbs::{Ibverbs, IbverbsTable};
use rdma_mummy_sys::load::provider::{Provider, register};
use sideway::ibverbs::completion::CompletionQueue;
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::DeviceContext;

pub use async_events::Raised;
pub use calls::{Bind, Call, Completion, Kind, Posted};
pub use driver::Driver;
pub use efa::install_efa;
pub use failure::Failure;
pub(crate) use failure::set_errno;
pub use import::{answer, loose_calls};
pub use mlx5::install_mlx5;
pub(crate) use script::Script;
pub use script::{Bad, Facts};
pub(crate) use spoil::Spoil;
use stub::provide;
pub(crate) use values::{Answer, Argument, verb};
pub use warnings::Warnings;
pub use world::{World, connect};

/// What tests do with a device and with the shim: let calls fail, and read the log.
macro_rules! controls {
    ($this:ident => $state:expr) => {
        /// Makes the `passing + 1`th call of `verb` from now on fail.
        pub fn fail(&$this, verb: &'static str, passing: u32, failure: Failure) -> &Self {
            $state.script.fail(verb, passing, failure);
            $this
        }

        /// Makes every call of `verb` from now on fail.
        pub fn fail_always(&$this, verb: &'static str, failure: Failure) -> &Self {
            $state.script.fail_always(verb, failure);
            $this
        }

        /// Makes the `passing + 1`th call that can fail, of any verb, fail.
        pub fn fail_any(&$this, passing: u32, failure: Failure) -> &Self {
            $state.script.fail_any(passing, failure);
            $this
        }

        /// Fills the `passing + 1`th output of a call from now on with this byte; see [`outputs`](Self::outputs).
        pub fn spoil(&$this, passing: u32, byte: u8) -> &Self {
            $state.spoil.set(passing, byte);
            $this
        }

        /// The outputs of calls since the last query, in order: structs of integers, returned numbers, the numbers in
        /// new objects.
        pub fn outputs(&$this) -> Vec<&'static str> {
            $state.spoil.take()
        }

        /// All calls since the last query.
        pub fn calls(&$this) -> Vec<Call> {
            std::mem::take(&mut $state.calls)
        }

        /// The names of all calls since the last query.
        pub fn verbs(&$this) -> Vec<&'static str> {
            $this.calls().iter().map(|call| call.verb).collect()
        }

        /// The number of calls that could have failed.
        pub fn failable(&$this) -> u32 {
            $state.failable
        }
    };
}
pub(crate) use controls;

/// Whether this is a provider, or the library of the system.
static REGISTERED: Once = Once::new();

/// A device of this provider. Dropping it fails the test after a violation: an action that would crash a driver.
pub struct Recording {
    device: &'static state::Device,
}

impl Recording {
    /// Creates a device for this thread.
    pub fn new() -> Self {
        REGISTERED.call_once(|| {
            // SAFETY: the table has the calls without an object, which the recording device performs as the manual
            // pages document; no device of the system is ever listed.
            if let Err(_loaded) = unsafe { Ibverbs::from_table(import::system_table()) }.install() {
                // If other code has loaded a library, the lists contain that library's devices too.
            }
            // SAFETY: the functions do what the manual pages of their names document.
            let registered = unsafe { register(Provider::new("recording", table())) };
            registered.unwrap_or_else(|error| panic!("{error}"));
        });
        Self { device: device::plug_in() }
    }

    /// Creates a device of the system, the only ones that vendors' libraries support. Use it alone in a test program.
    ///
    /// # Panics
    ///
    /// If devices of a provider were created before.
    pub fn of_system() -> Self {
        REGISTERED.call_once(|| {
            // SAFETY: the functions do what the manual pages of their names document.
            let installed = unsafe { Ibverbs::from_table(table()) }.install();
            assert!(installed.is_ok(), "another library is loaded");
        });
        Self { device: device::plug_in() }
    }

    /// The name of the device.
    pub fn name(&self) -> String {
        // SAFETY: the name does not change once the device was created.
        let name = unsafe { (*self.device.device.get()).name };
        name.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte as u8)).collect()
    }

    /// Opens the device.
    ///
    /// # Panics
    ///
    /// If the device cannot be opened.
    #[track_caller]
    pub fn open(&self) -> Arc<DeviceContext> {
        let list = DeviceList::new().unwrap_or_else(|error| panic!("{error}"));
        let device = list.find(&self.name()).unwrap_or_else(|error| panic!("{error}"));
        device.open().unwrap_or_else(|error| panic!("{error}"))
    }

    controls!(self => self.device.state.lock());

    /// Lets calls of `verb` succeed again.
    pub fn succeed(&self, verb: &'static str) -> &Self {
        self.device.state.lock().script.succeed(verb);
        self
    }

    /// Makes the next `rereg_mr` return this code, with errno set.
    pub fn fail_rereg(&self, code: libc::c_int, errno: libc::c_int) -> &Self {
        self.device.state.lock().script.rereg = Some((code, errno));
        self
    }

    /// Makes the device refuse the next list of requests.
    pub fn refuse_requests(&self, bad: Bad, failure: Failure) -> &Self {
        self.device.state.lock().script.refusal = Some((bad, failure));
        self
    }

    /// Objects created from now on have no function of this name: a verb of the extended table, a reader, a `wr_`
    /// function, `qp_to_qp_ex`, or the `descriptor` of a channel or the `async_fd` of a context.
    pub fn without(&self, function: &'static str) -> &Self {
        self.device.state.lock().script.without.insert(function);
        self
    }

    /// Devices opened from now on have the faults of this driver.
    pub fn behave_as(&self, driver: Driver) -> &Self {
        self.device.state.lock().script.driver = Some(driver);
        self
    }

    /// Like `behave_as`, with the functions in a file of the driver's name in `directory`. `None`, after
    /// [`did_not_run`](crate::requirements::did_not_run), without a C compiler.
    pub fn pass_for(&self, driver: Driver, directory: &std::path::Path) -> Option<&Self> {
        let poll_cq = driver::poll_cq_of(driver, directory)?;
        self.device.state.lock().script.poll_cq = Some(poll_cq);
        Some(self.behave_as(driver))
    }

    /// Changes the attributes that the device reports.
    pub fn edit(&self, change: impl FnOnce(&mut Facts)) -> &Self {
        change(&mut self.device.state.lock().facts);
        self
    }

    /// Stops logging calls and requests, and allocates nothing on the data path.
    pub fn quiet(&self) -> &Self {
        self.device.state.quiet.store(true, Ordering::Relaxed);
        self.device.state.lock().spoil.quiet();
        self
    }

    /// Adds a completion to a queue.
    pub fn complete(&self, cq: &impl CompletionQueue, completion: Completion) -> &Self {
        // SAFETY: the pointer is used while the queue is borrowed.
        let cq = unsafe { cq.cq() };
        self.complete_at(cq.as_ptr().addr(), completion)
    }

    /// Adds a completion to the queue with this address.
    pub fn complete_at(&self, cq: usize, completion: Completion) -> &Self {
        completion::complete(&mut self.device.state.lock(), cq, completion);
        self
    }

    /// Raises an asynchronous event on an open device.
    pub fn raise(&self, context: &DeviceContext, event: Raised) -> &Self {
        // SAFETY: the pointer becomes a number.
        let context = unsafe { context.context() }.as_ptr().addr();
        async_events::raise(&mut self.device.state.lock(), context, event);
        self
    }

    /// Makes another thread list the device as well, until that thread ends.
    pub fn plug_in_here(&self) -> &Self {
        device::plug_in_too(self.device);
        self
    }

    /// The requests that were posted since the last query.
    pub fn posted(&self) -> Vec<Posted> {
        std::mem::take(&mut self.device.state.lock().posted)
    }

    /// The structs of variable length that C has received since the last query: `struct ibv_flow_attr` with its
    /// specifications.
    pub fn bytes(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.device.state.lock().bytes)
    }

    /// The attributes of the last `ibv_modify_qp`.
    pub fn qp_attr(&self) -> Option<rdma_mummy_sys::ibv_qp_attr> {
        self.device.state.lock().qp_attr
    }

    /// The violations since the last query: actions that would crash a driver.
    pub fn violations(&self) -> Vec<String> {
        let mut violations = std::mem::take(&mut self.device.state.lock().violations);
        for _ in 0..self.device.state.late.swap(0, Ordering::Relaxed) {
            violations.push(String::from("a closed context was used"));
        }
        violations
    }

    /// The kinds of all objects that were created and not destroyed.
    pub fn live(&self) -> Vec<Kind> {
        self.device.state.lock().kinds()
    }
}

impl Default for Recording {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        device::pull_out(self.device);
        let violations = self.violations();
        assert!(violations.is_empty() || std::thread::panicking(), "{violations:#?}");
    }
}

fn table() -> IbverbsTable {
    let mut table = IbverbsTable::default();
    let every = |_name: &str| true;
    provide! { table, every;
        device: ibv_get_device_list ibv_free_device_list ibv_get_device_name ibv_get_device_guid ibv_get_device_index
            ibv_open_device ibv_close_device;
        query: ibv_query_device ibv_query_gid _ibv_query_gid_ex _ibv_query_gid_table ibv_query_pkey ibv_get_pkey_index;
        objects: ibv_alloc_pd ibv_dealloc_pd ibv_create_comp_channel ibv_destroy_comp_channel ibv_get_cq_event
            ibv_ack_cq_events ibv_destroy_cq;
        memory: ibv_dereg_mr ibv_reg_dmabuf_mr ibv_rereg_mr;
        import: ibv_import_pd ibv_unimport_pd ibv_import_mr ibv_unimport_mr ibv_import_dm ibv_unimport_dm;
        address: ibv_create_ah ibv_destroy_ah ibv_init_ah_from_wc ibv_resolve_eth_l2_from_gid;
        async_events: ibv_get_async_event ibv_ack_async_event;
        completion: ibv_create_cq ibv_resize_cq;
        srq: ibv_create_srq ibv_modify_srq ibv_query_srq ibv_destroy_srq;
        qp: ibv_create_qp ibv_modify_qp ibv_query_qp ibv_destroy_qp;
        extended_qp: ibv_qp_to_qp_ex;
        control: ibv_query_qp_data_in_order ibv_attach_mcast ibv_detach_mcast ibv_set_ece ibv_query_ece;
    }
    table.ibv_query_port = Some(query::query_port_basic);
    table.ibv_reg_mr_iova2 = Some(memory::reg_mr);
    provide! { table.since_v44, every;
        query: ibv_query_port_speed;
        memory: ibv_reg_mr_ex;
        device_memory: ibv_alloc_dmah ibv_dealloc_dmah ibv_dm_export_dmabuf_fd;
        buffer: ibv_alloc_buf ibv_free_buf ibv_reg_buf_mr ibv_alloc_user_buf ibv_free_user_buf;
        counters: _ibv_query_comp_cntr_caps ibv_create_comp_cntr ibv_destroy_comp_cntr ibv_set_comp_cntr
            ibv_set_err_comp_cntr ibv_inc_comp_cntr ibv_inc_err_comp_cntr ibv_read_comp_cntr ibv_read_err_comp_cntr
            ibv_qp_attach_comp_cntr;
    }
    table
}
