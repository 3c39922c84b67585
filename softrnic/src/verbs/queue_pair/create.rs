//! `ibv_create_qp`, `ibv_create_qp_ex` and `ibv_destroy_qp`.

use std::ffi::c_int;
use std::mem;
use std::sync::Arc;

use rdma_mummy_sys::{
    ibv_context, ibv_cq, ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex_since_v44, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_qp_init_attr_mask as mask, ibv_qp_state, ibv_qp_type,
};

use super::open::Handles;
use super::{Pair, extended};
use crate::mem::domain::Domain;
use crate::qp::registry::QpRegistry;
use crate::qp::{Parts, QueuePair, State};
use crate::srq::ReceiveQueue;
use crate::sys::errno::Errno;
use crate::verbs::async_event::Source;
use crate::verbs::completion_queue::Queue;
use crate::verbs::context::Context;
use crate::verbs::failure;
use crate::verbs::kind::Kind;
use crate::verbs::limits::Limits;
use crate::verbs::object::Object;
use crate::verbs::port;
use crate::verbs::protection_domain::ProtectionDomain;
use crate::verbs::shared_receive_queue::SharedReceiveQueue;
use crate::verbs::xrc_domain::XrcDomain;
use crate::wire::condition::Condition;
use crate::wire::limits;
use crate::wire::operation::Service;

/// The object from which a QP is created.
enum Parent<'o> {
    Domain(*mut ibv_pd),
    /// The XRC domain from which an XRC target is created.
    Xrc(&'o XrcDomain),
}

/// `ibv_create_qp(pd, qp_init_attr)`: creates a QP of any service except an XRC target.
///
/// # Safety
///
/// As in C: the domain and the objects of the attributes are alive, and the attributes are readable and writable.
pub(crate) unsafe extern "C" fn create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp {
    // SAFETY: guaranteed by the caller.
    unsafe { create((*pd).context, &Parent::Domain(pd), init, None) }.unwrap_or_else(failure::null)
}

/// `ibv_create_qp_ex(context, qp_init_attr_ex)`: the mask may contain `PD` or `XRCD`, `SEND_OPS_FLAGS`, and
/// `CREATE_FLAGS` with flags of zero.
///
/// # Safety
///
/// As in C: the context and the objects of the mask are alive, and the attributes are readable and writable.
pub(crate) unsafe extern "C" fn create_qp_ex(context: *mut ibv_context, init: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp {
    // SAFETY: guaranteed by the caller. The basic attributes are the first part of the extended ones.
    unsafe {
        parent(context, &*init)
            .and_then(|(parent, operations)| create(context, &parent, init.cast(), operations))
            .unwrap_or_else(failure::null)
    }
}

/// Returns the object from which the QP is created, and the requested operations.
///
/// # Safety
///
/// The objects of the mask are alive.
unsafe fn parent<'o>(
    context: *mut ibv_context,
    init: &ibv_qp_init_attr_ex,
) -> Result<(Parent<'o>, Option<u64>), Errno> {
    const SUPPORTED: u32 = mask::IBV_QP_INIT_ATTR_PD.0
        | mask::IBV_QP_INIT_ATTR_XRCD.0
        | mask::IBV_QP_INIT_ATTR_CREATE_FLAGS.0
        | mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0;
    let has = |bit: mask| init.comp_mask & bit.0 != 0;
    if init.comp_mask & !SUPPORTED != 0 || (has(mask::IBV_QP_INIT_ATTR_CREATE_FLAGS) && init.create_flags != 0) {
        return Err(Errno::NOT_SUPPORTED);
    }
    let operations = has(mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS).then_some(init.send_ops_flags);
    // SAFETY: guaranteed by the caller, for each object whose bit is set.
    let parent = unsafe {
        if init.qp_type == ibv_qp_type::IBV_QPT_XRC_RECV {
            if !has(mask::IBV_QP_INIT_ATTR_XRCD) || init.xrcd.is_null() || (*init.xrcd).context != context {
                return Err(Errno::INVALID);
            }
            Parent::Xrc(XrcDomain::of(init.xrcd))
        } else {
            if !has(mask::IBV_QP_INIT_ATTR_PD) || init.pd.is_null() || (*init.pd).context != context {
                return Err(Errno::INVALID);
            }
            Parent::Domain(init.pd)
        }
    };
    Ok((parent, operations))
}

/// Creates a QP, and writes the granted capacities.
///
/// # Safety
///
/// The context, the parent and the objects of the attributes are alive; the attributes are readable and writable.
unsafe fn create(
    context: *mut ibv_context,
    parent: &Parent<'_>,
    init: *mut ibv_qp_init_attr,
    operations: Option<u64>,
) -> Result<*mut ibv_qp, Errno> {
    // SAFETY: guaranteed by the caller.
    let (requested, open) = unsafe { (init.read(), Context::of(context)) };
    // SAFETY: guaranteed by the caller; the device belongs to this provider.
    let kind = unsafe { Kind::of(context) };
    let service = kind.service(requested.qp_type)?;
    let mut uses = vec![open.usage.begin()];
    let (pd, domain, xrc_domain) = match *parent {
        Parent::Domain(pd) if service != Service::XrcReceive => {
            // SAFETY: guaranteed by the caller.
            let domain = unsafe { ProtectionDomain::of(pd) };
            uses.push(domain.usage.begin());
            (pd, Arc::clone(&domain.domain), None)
        }
        Parent::Xrc(xrc) if service == Service::XrcReceive => {
            uses.push(xrc.usage.begin());
            // A message uses the protection domain of its shared receive queue, so the domain of the QP itself is never
            // used.
            (std::ptr::null_mut(), Arc::new(Domain::new()), Some(Arc::clone(&xrc.domain)))
        }
        _ => return Err(Errno::INVALID),
    };
    let (mut send_cq, mut recv_cq, mut srq) = (requested.send_cq, requested.recv_cq, requested.srq);
    match service {
        Service::XrcReceive => (send_cq, recv_cq, srq) = Default::default(),
        Service::XrcSend => recv_cq = std::ptr::null_mut(),
        _ => {}
    }
    // SAFETY: guaranteed by the caller.
    let (sends, completes_receives, shared) = unsafe {
        let sends = (service != Service::XrcReceive).then(|| queue(context, send_cq)).transpose()?;
        let receives = is_two_way(service).then(|| queue(context, recv_cq)).transpose()?;
        (sends, receives, shared(context, service, srq)?)
    };
    uses.extend(sends.iter().chain(&completes_receives).map(|queue| queue.usage.begin()));
    uses.extend(shared.map(|shared| shared.usage.begin()));
    let cap = granted(kind.limits, (service, operations), shared.is_some(), requested.cap)?;
    let functions = operations.map(|operations| extended::functions(kind.limits, service, operations)).transpose()?;

    let events = Source::new(&open.events);
    let handles = Handles::of(&events);
    let pair = QueuePair::new(Parts {
        service,
        reach: kind.reach(service)?,
        domain,
        send_queue: sends.map(|queue| Arc::clone(&queue.queue)),
        receive_queue: completes_receives.map(|queue| Arc::clone(&queue.queue)),
        receives: match shared {
            Some(shared) => Arc::clone(&shared.queue),
            None => Arc::new(ReceiveQueue::new(cap.max_recv_wr, cap.max_recv_sge)),
        },
        is_shared: shared.is_some(),
        xrc_domain,
        max_send_wr: cap.max_send_wr,
        max_send_sge: cap.max_send_sge,
        max_inline: cap.max_inline_data,
        max_message: match service {
            Service::UnreliableDatagram => kind.limits.max_message(service).min(port::mtu(kind)),
            _ => kind.limits.max_message(service),
        },
        signals_all: requested.sq_sig_all != 0,
        events: Box::new(Arc::clone(&handles)),
        // SAFETY: guaranteed by the caller; the device belongs to this provider.
        condition: unsafe { Condition::of(context) },
    })?;

    // SAFETY: zeros are valid for all fields: pointers, absent functions, numbers, and fields that `Source`
    // initializes.
    let mut c = functions.unwrap_or_else(|| unsafe { mem::zeroed::<ibv_qp_ex_since_v44>() });
    let base = &mut c.qp.qp_base;
    (base.context, base.qp_context, base.pd) = (context, requested.qp_context, pd);
    (base.send_cq, base.recv_cq, base.srq) = (send_cq, recv_cq, srq);
    (base.handle, base.qp_num) = (open.handle(), pair.number());
    (base.state, base.qp_type) = (ibv_qp_state::IBV_QPS_RESET, requested.qp_type);
    if kind.begins_in_init {
        pair.change(State::Reset, State::Init, pair.attributes())?;
        base.state = ibv_qp_state::IBV_QPS_INIT;
    }
    if service == Service::XrcReceive {
        handles.enter(&pair);
    }
    let (turn, batch) = Default::default();
    let qp = Pair { c, pair, cap, handles, events: Arc::clone(&events), turn, batch, uses }.into_c();
    // SAFETY: the QP stays at this address until `destroy_qp` finishes its events, and is not shared yet. The
    // attributes are writable.
    unsafe {
        events.begin(qp);
        (*init).cap = cap;
    }
    Ok(qp)
}

/// Whether a QP of the service both sends and receives, which is true for all services except XRC.
fn is_two_way(service: Service) -> bool {
    !matches!(service, Service::XrcSend | Service::XrcReceive)
}

/// Returns a completion queue of this context.
///
/// # Safety
///
/// The queue is null or alive.
unsafe fn queue<'q>(context: *mut ibv_context, cq: *mut ibv_cq) -> Result<&'q Queue, Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe { if !cq.is_null() && (*cq).context == context { Ok(Queue::of(cq)) } else { Err(Errno::INVALID) } }
}

/// Returns the shared receive queue, which only QPs of the services RC and UD may have.
///
/// # Safety
///
/// The queue is null or alive.
unsafe fn shared<'q>(
    context: *mut ibv_context,
    service: Service,
    srq: *mut rdma_mummy_sys::ibv_srq,
) -> Result<Option<&'q SharedReceiveQueue>, Errno> {
    if srq.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    let (shared, at) = unsafe { (SharedReceiveQueue::of(srq), (*srq).context) };
    let may_share = matches!(service, Service::ReliableConnection | Service::UnreliableDatagram | Service::Iwarp);
    if may_share && at == context && shared.xrc.is_none() { Ok(Some(shared)) } else { Err(Errno::INVALID) }
}

/// Returns the granted capacities. They are at least the requested ones, and allow at least one piece per request.
fn granted(
    own: &Limits,
    (service, operations): (Service, Option<u64>),
    is_shared: bool,
    requested: ibv_qp_cap,
) -> Result<ibv_qp_cap, Errno> {
    let mut cap = requested;
    if service == Service::XrcReceive {
        (cap.max_send_wr, cap.max_send_sge, cap.max_inline_data) = (0, 0, 0);
    }
    if is_shared || !is_two_way(service) {
        (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
    }
    let is_within = cap.max_send_wr.max(cap.max_recv_wr) <= limits::MAX_QP_WR
        && cap.max_send_sge.max(cap.max_recv_sge) <= own.max_sge;
    if !is_within {
        return Err(Errno::INVALID);
    }
    if service != Service::XrcReceive {
        (own.send_queue)(service, operations, &mut cap)?;
    }
    if cap.max_send_wr != 0 {
        cap.max_send_sge = cap.max_send_sge.max(1);
    }
    if cap.max_recv_wr != 0 {
        cap.max_recv_sge = cap.max_recv_sge.max(1);
    }
    Ok(cap)
}

/// `ibv_destroy_qp(qp)`: `EBUSY` while the QP is attached to a multicast group. Waits until all asynchronous events
/// that were taken are acknowledged. If the QP has other handles (`ibv_open_qp`), it exists until the last handle is
/// destroyed.
///
/// # Safety
///
/// As in C: the QP is alive, and no longer used if this succeeds.
pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: guaranteed by the caller.
    let (pair, events, handles) = unsafe {
        let object = qp.cast::<Pair>();
        (Arc::clone(Pair::qp(qp)), Arc::clone(&(*object).events), Arc::clone(&(*object).handles))
    };
    if QpRegistry::of_process().is_attached(pair.number()) {
        return failure::code(Errno::BUSY);
    }
    if handles.remove(&events) {
        pair.close();
    }
    // SAFETY: a closed QP raises no events, and a QP with other handles raises its events there. The caller guarantees
    // the rest.
    unsafe {
        events.finish();
        drop(Pair::from_c(qp));
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::verbs::limits::SOFT;

    const REQUESTED: ibv_qp_cap =
        ibv_qp_cap { max_send_wr: 5, max_recv_wr: 6, max_send_sge: 0, max_recv_sge: 3, max_inline_data: 7 };

    fn counts(cap: ibv_qp_cap) -> [u32; 5] {
        [cap.max_send_wr, cap.max_recv_wr, cap.max_send_sge, cap.max_recv_sge, cap.max_inline_data]
    }

    #[test]
    fn requested_capacities_are_granted() {
        let granted = |service, is_shared| granted(&SOFT, (service, None), is_shared, REQUESTED).map(counts);
        assert_eq!(granted(Service::ReliableConnection, false), Ok([5, 6, 1, 3, 64]));
        assert_eq!(granted(Service::ReliableConnection, true), Ok([5, 0, 1, 0, 64]));
        assert_eq!(granted(Service::XrcSend, false), Ok([5, 0, 1, 0, 64]));
        assert_eq!(granted(Service::XrcReceive, false), Ok([0; 5]));
    }

    #[test]
    fn capacities_beyond_the_limits_are_refused() {
        type Change = fn(&mut ibv_qp_cap, u32);
        let is_granted = |change: Change, value| {
            let mut cap = REQUESTED;
            change(&mut cap, value);
            granted(&SOFT, (Service::UnreliableDatagram, None), false, cap).is_ok()
        };
        let limits: [(Change, u32); 5] = [
            (|cap, value| cap.max_send_wr = value, limits::MAX_QP_WR),
            (|cap, value| cap.max_recv_wr = value, limits::MAX_QP_WR),
            (|cap, value| cap.max_send_sge = value, limits::MAX_SGE),
            (|cap, value| cap.max_recv_sge = value, limits::MAX_SGE),
            (|cap, value| cap.max_inline_data = value, limits::MAX_INLINE),
        ];
        for (change, limit) in limits {
            assert!(is_granted(change, limit) && !is_granted(change, limit + 1) && !is_granted(change, u32::MAX));
        }
    }

    #[test]
    fn other_qp_types_are_refused() {
        for qp_type in [ibv_qp_type::IBV_QPT_RAW_PACKET, ibv_qp_type::IBV_QPT_DRIVER, ibv_qp_type(0), ibv_qp_type(77)] {
            assert_eq!(Kind::named("soft0", None).service(qp_type), Err(Errno::NOT_SUPPORTED));
        }
    }
}
