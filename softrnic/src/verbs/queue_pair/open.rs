//! `ibv_open_qp`. Each call creates another handle of an XRC target, and each handle has its own events. A target can
//! be shared only within the process.

use std::collections::BTreeMap;
use std::mem;
use std::ptr;
use std::sync::{Arc, Mutex, Weak};

use rdma_mummy_sys::{
    ibv_context, ibv_qp, ibv_qp_cap, ibv_qp_ex_since_v44, ibv_qp_open_attr, ibv_qp_open_attr_mask as mask, ibv_qp_type,
};

use super::{Pair, state_to_c};
use crate::mem::domain::Domain;
use crate::qp::{PairEvent, PairEvents, QueuePair};
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::unpoisoned;
use crate::verbs::async_event::Source;
use crate::verbs::context::Context;
use crate::verbs::failure;
use crate::verbs::object::Object;
use crate::verbs::xrc_domain::XrcDomain;

/// The handles of a QP. Each handle receives all events of the QP.
#[derive(Debug)]
pub(super) struct Handles {
    /// This lock is held while the state or the attributes of the QP change.
    changing: Mutex<()>,
    /// The event sources of the handles. After the last handle is destroyed, the list is empty and stays empty.
    sources: Mutex<Vec<Arc<Source<ibv_qp>>>>,
}

/// The XRC targets that can be opened, by their numbers.
static TARGETS: PerProcess<Mutex<BTreeMap<u32, Target>>> = PerProcess::new(Mutex::new(BTreeMap::new()), Box::default);

#[derive(Debug)]
struct Target {
    pair: Weak<QueuePair>,
    handles: Weak<Handles>,
}

impl Handles {
    /// Creates the list of handles of a new QP, which has one handle.
    pub(super) fn of(source: &Arc<Source<ibv_qp>>) -> Arc<Self> {
        Arc::new(Self { changing: Mutex::new(()), sources: Mutex::new(vec![Arc::clone(source)]) })
    }

    pub(super) fn changing(&self) -> &Mutex<()> {
        &self.changing
    }

    /// Makes the QP available to `ibv_open_qp`.
    pub(super) fn enter(self: &Arc<Self>, pair: &Arc<QueuePair>) {
        let mut targets = unpoisoned(TARGETS.get().lock());
        targets.retain(|_, target| target.pair.strong_count() != 0);
        targets.insert(pair.number(), Target { pair: Arc::downgrade(pair), handles: Arc::downgrade(self) });
    }

    /// Adds a handle. Returns `None` if the last handle was destroyed.
    fn add(&self, source: &Arc<Source<ibv_qp>>) -> Option<()> {
        let mut sources = unpoisoned(self.sources.lock());
        (!sources.is_empty()).then(|| sources.push(Arc::clone(source)))
    }

    /// Removes a handle, which then receives no more events. Returns whether the handle was the last one.
    pub(super) fn remove(&self, source: &Arc<Source<ibv_qp>>) -> bool {
        let mut sources = unpoisoned(self.sources.lock());
        sources.retain(|other| !Arc::ptr_eq(other, source));
        sources.is_empty()
    }
}

impl PairEvents for Arc<Handles> {
    fn happened(&self, event: PairEvent) {
        unpoisoned(self.sources.lock()).iter().for_each(|source| source.happened(event));
    }
}

/// `ibv_open_qp(context, qp_open_attr)`: opens an XRC target. The domain in the attributes must be that of the target.
///
/// # Safety
///
/// As in C: the context is open, the attributes are readable, and their domain is alive.
pub(crate) unsafe extern "C" fn open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    // SAFETY: guaranteed by the caller.
    unsafe { open(context, &*attr) }.unwrap_or_else(failure::null)
}

/// Opens a QP.
///
/// # Safety
///
/// As for [`open_qp`].
unsafe fn open(context: *mut ibv_context, attr: &ibv_qp_open_attr) -> Result<*mut ibv_qp, Errno> {
    const REQUIRED: u32 = mask::IBV_QP_OPEN_ATTR_NUM.0 | mask::IBV_QP_OPEN_ATTR_XRCD.0 | mask::IBV_QP_OPEN_ATTR_TYPE.0;
    const SUPPORTED: u32 = REQUIRED | mask::IBV_QP_OPEN_ATTR_CONTEXT.0;
    if attr.comp_mask & REQUIRED != REQUIRED || attr.comp_mask & !SUPPORTED != 0 {
        return Err(Errno::INVALID);
    }
    if attr.qp_type != ibv_qp_type::IBV_QPT_XRC_RECV || attr.xrcd.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    let (open, xrc, at) = unsafe { (Context::of(context), XrcDomain::of(attr.xrcd), (*attr.xrcd).context) };
    if at != context {
        return Err(Errno::INVALID);
    }
    let (pair, handles) = find(attr.qp_num, &xrc.domain).ok_or(Errno::INVALID)?;
    // SAFETY: zeros are valid for all fields: pointers, absent functions, numbers, and fields that `Source`
    // initializes.
    let mut c = unsafe { mem::zeroed::<ibv_qp_ex_since_v44>() };
    let base = &mut c.qp.qp_base;
    base.context = context;
    let has_context = attr.comp_mask & mask::IBV_QP_OPEN_ATTR_CONTEXT.0 != 0;
    base.qp_context = if has_context { attr.qp_context } else { ptr::null_mut() };
    (base.handle, base.qp_num) = (open.handle(), pair.number());
    (base.state, base.qp_type) = (state_to_c(pair.state()), attr.qp_type);
    let cap = ibv_qp_cap { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline_data: 0 };
    let events = Source::new(&open.events);
    let uses = vec![open.usage.begin(), xrc.usage.begin()];
    let (turn, batch) = Default::default();
    let object = Pair { c, pair, cap, handles: Arc::clone(&handles), events: Arc::clone(&events), turn, batch, uses };
    let qp = object.into_c();
    // SAFETY: the handle stays at this address until `destroy_qp` finishes its events, and is not shared yet.
    unsafe { events.begin(qp) };
    if handles.add(&events).is_none() {
        // SAFETY: the handle was created above and is not shared; nothing raises events on it: the last handle was
        // destroyed in the meantime.
        unsafe {
            events.finish();
            drop(Pair::from_c(qp));
        }
        return Err(Errno::INVALID);
    }
    Ok(qp)
}

/// Returns the target with this number, if it belongs to this domain.
fn find(number: u32, domain: &Domain) -> Option<(Arc<QueuePair>, Arc<Handles>)> {
    let (pair, handles) = {
        let targets = unpoisoned(TARGETS.get().lock());
        let target = targets.get(&number)?;
        (target.pair.upgrade()?, target.handles.upgrade()?)
    };
    let is_same = pair.parts().xrc_domain.as_ref().is_some_and(|own| own.is(domain));
    is_same.then_some((pair, handles))
}
