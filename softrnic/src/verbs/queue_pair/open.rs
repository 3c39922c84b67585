//! `ibv_open_qp`: a target of XRC has as many handles as there are who opened it, each with events of its own.

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

/// The handles of a queue pair, which all are told of what happens to it.
#[derive(Debug)]
pub(super) struct Handles {
    /// Held while the state or the attributes are changed.
    changing: Mutex<()>,
    /// None once the last was destroyed, and then for good.
    sources: Mutex<Vec<Arc<Source<ibv_qp>>>>,
}

/// What can be opened: targets of XRC by their numbers.
static TARGETS: PerProcess<Mutex<BTreeMap<u32, Target>>> = PerProcess::new(Mutex::new(BTreeMap::new()), Box::default);

#[derive(Debug)]
struct Target {
    pair: Weak<QueuePair>,
    handles: Weak<Handles>,
}

impl Handles {
    /// Of a queue pair with one handle.
    pub(super) fn of(source: &Arc<Source<ibv_qp>>) -> Arc<Self> {
        Arc::new(Self { changing: Mutex::new(()), sources: Mutex::new(vec![Arc::clone(source)]) })
    }

    pub(super) fn changing(&self) -> &Mutex<()> {
        &self.changing
    }

    /// Lets others open the queue pair.
    pub(super) fn enter(self: &Arc<Self>, pair: &Arc<QueuePair>) {
        let mut targets = unpoisoned(TARGETS.get().lock());
        targets.retain(|_, target| target.pair.strong_count() != 0);
        targets.insert(pair.number(), Target { pair: Arc::downgrade(pair), handles: Arc::downgrade(self) });
    }

    /// One more; `None` where the last was destroyed.
    fn add(&self, source: &Arc<Source<ibv_qp>>) -> Option<()> {
        let mut sources = unpoisoned(self.sources.lock());
        (!sources.is_empty()).then(|| sources.push(Arc::clone(source)))
    }

    /// One is destroyed, and told of nothing any more. Whether it was the last.
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

/// `ibv_open_qp(context, qp_open_attr)`: of a target of XRC, in a domain that is the same as its own.
///
/// # Safety
///
/// As for C: the context is open, the attributes can be read, and their domain is alive.
pub(crate) unsafe extern "C" fn open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp {
    // SAFETY: the caller's promise.
    unsafe { open(context, &*attr) }.unwrap_or_else(failure::null)
}

/// # Safety
///
/// As [`open_qp`].
unsafe fn open(context: *mut ibv_context, attr: &ibv_qp_open_attr) -> Result<*mut ibv_qp, Errno> {
    const NEEDED: u32 = mask::IBV_QP_OPEN_ATTR_NUM.0 | mask::IBV_QP_OPEN_ATTR_XRCD.0 | mask::IBV_QP_OPEN_ATTR_TYPE.0;
    const TAKEN: u32 = NEEDED | mask::IBV_QP_OPEN_ATTR_CONTEXT.0;
    if attr.comp_mask & NEEDED != NEEDED || attr.comp_mask & !TAKEN != 0 {
        return Err(Errno::INVALID);
    }
    if attr.qp_type != ibv_qp_type::IBV_QPT_XRC_RECV || attr.xrcd.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: the caller's promise.
    let (open, xrc, at) = unsafe { (Context::of(context), XrcDomain::of(attr.xrcd), (*attr.xrcd).context) };
    if at != context {
        return Err(Errno::INVALID);
    }
    let (pair, handles) = find(attr.qp_num, &xrc.domain).ok_or(Errno::INVALID)?;
    // SAFETY: zeros are a value of all its fields: pointers, functions that are not there, numbers, and what `Source` makes ready.
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
    // SAFETY: it lies where it stays until `destroy_qp` finishes its events, and nobody has it yet.
    unsafe { events.begin(qp) };
    if handles.add(&events).is_none() {
        // Its last handle has gone meanwhile.
        // SAFETY: it was made above, nobody has it, and nothing puts events to it.
        unsafe {
            events.finish();
            drop(Pair::from_c(qp));
        }
        return Err(Errno::INVALID);
    }
    Ok(qp)
}

/// The target of a number, where it is of this domain.
fn find(number: u32, domain: &Domain) -> Option<(Arc<QueuePair>, Arc<Handles>)> {
    let (pair, handles) = {
        let targets = unpoisoned(TARGETS.get().lock());
        let target = targets.get(&number)?;
        (target.pair.upgrade()?, target.handles.upgrade()?)
    };
    let is_same = pair.parts().xrc_domain.as_ref().is_some_and(|own| own.is(domain));
    is_same.then_some((pair, handles))
}
