//! What `explain` finds in traces of connections by address, of both peers, and of programs without a mistake.

use rdma_lens::{Certainty, Format, Record, Trace, What, explain};
use rdma_mummy_sys as ffi;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::queue_pair::{BasicQueuePair, ExtendedQueuePair, QueuePair, QueuePairState};
use sideway::rdmacm::communication_manager::{ConnectionParameter, EventType, PortSpace};
use sideway_tests::connections::{self, LONG};
use sideway_tests::device;
use sideway_tests::loopback::{Loopback, PSN, QueueKind, init, ready_to_receive, ready_to_send, to};

use crate::planted::{explained, explained_as_of_a_device, finds};
use crate::support::{Session, about};

fn session() -> Session {
    Session::new(Format::Json, |builder| builder)
}

#[test]
fn wrong_port_is_named_with_the_listener() {
    let session = session();
    let channel = connections::channel();
    let [(first, address), (second, wrong)] = [(); 2].map(|()| connections::listen(&channel, PortSpace::Tcp));
    drop((first, second));
    let (listener, _) = connections::listen_at(&channel, PortSpace::Tcp, address);
    let active = connections::End::of(connections::resolve(&channel, PortSpace::Tcp, wrong));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    drop(connections::expect(&channel, EventType::Rejected));
    drop((active, listener, channel));
    let report = explained(session);
    finds(
        &report,
        &["wrong port", &format!("no listener at {wrong}"), "port space TCP", &format!("there is one at {address}")],
    );
}

#[test]
fn unroutable_address_is_named() {
    let session = session();
    let channel = connections::channel();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    if id.resolve_addr(None, "203.0.113.9:7".parse().unwrap(), LONG).is_ok() {
        drop(connections::expect(&channel, EventType::AddressError));
    }
    drop((id, channel));
    finds(&explained(session), &["203.0.113.9:7 is unroutable"]);
}

#[test]
fn firewall_is_named() {
    let session = Session::with_faults("each event ESTABLISHED: report UNREACHABLE");
    let channel = connections::channel();
    let (listener, address) = connections::listen(&channel, PortSpace::Tcp);
    let active = connections::End::of(connections::resolve(&channel, PortSpace::Tcp, address));
    active.id.connect(&ConnectionParameter::default()).unwrap();
    let request = connections::expect(&channel, EventType::ConnectRequest);
    let passive = connections::End::of(std::sync::Arc::clone(request.cm_id()));
    drop(request);
    passive.id.accept(&ConnectionParameter::default()).unwrap();
    drop(connections::expect(&channel, EventType::Unreachable));
    drop((active, passive, listener, channel));
    let report = explained_as_of_a_device(session);
    finds(&report, &[&format!("{address} does not reply"), "ETIMEDOUT", "firewall"]);
    assert_eq!(report.findings[0].certainty, Certainty::Likely);
}

#[test]
fn destroy_of_a_used_queue_names_the_users() {
    let session = session();
    device::name();
    // SAFETY: each object is live when it is used, and destroyed once.
    let (cq, qp) = unsafe {
        let list = ffi::ibv_get_device_list(std::ptr::null_mut());
        let context = ffi::ibv_open_device(*list);
        ffi::ibv_free_device_list(list);
        let pd = ffi::ibv_alloc_pd(context);
        let cq = ffi::ibv_create_cq(context, 8, std::ptr::null_mut(), std::ptr::null_mut(), 0);
        let mut attr: ffi::ibv_qp_init_attr = std::mem::zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, ffi::ibv_qp_type::IBV_QPT_RC);
        let qp = ffi::ibv_create_qp(pd, &raw mut attr);
        let names = ((*cq).handle, (*qp).qp_num);
        assert_eq!(ffi::ibv_destroy_cq(cq), libc::EBUSY);
        assert_eq!((ffi::ibv_destroy_qp(qp), ffi::ibv_destroy_cq(cq)), (0, 0));
        assert_eq!((ffi::ibv_dealloc_pd(pd), ffi::ibv_close_device(context)), (0, 0));
        names
    };
    finds(&explained(session), &[&format!("cq {cq} is still in use by qp {qp:#x}")]);
}

/// A second call with a pointer is undefined behaviour, so the second call is only in the trace.
#[test]
fn double_destroy_is_named() {
    let session = session();
    drop(Loopback::<BasicQueuePair>::new(QueueKind::Basic));
    let mut records = session.records();
    let is_destroy = |record: &&Record| matches!(&record.what, What::Call { verb, .. } if verb == "ibv_destroy_cq");
    let mut second = records.iter().find(is_destroy).unwrap().clone();
    second.at += 1;
    if let What::Call { error, .. } = &mut second.what {
        *error = Some("EINVAL".to_owned());
    }
    records.push(second);
    finds(&explain(&[Trace::from(records)]), &["double destroy", "ibv_destroy_cq of cq "]);
}

/// Two sides that disagree on the PSN, each on a thread of its own.
fn two_threads() -> [Trace; 2] {
    let session = session();
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let context = std::sync::Arc::clone(&pair.context);
    let (near, far) = (pair.near.qp.qp_number(), pair.far.qp.qp_number());
    let connect = |qp: &BasicQueuePair, peer, sq_psn, rq_psn| {
        let mut last = ready_to_send(sq_psn, 1);
        last.setup_timeout(10).setup_retry_cnt(1);
        for attributes in [to(QueuePairState::Reset), init(), ready_to_receive(&context, peer, rq_psn), last] {
            qp.modify(&attributes).unwrap();
        }
    };
    connect(&pair.near.qp, far, PSN[0], PSN[1]);
    connect(&pair.far.qp, near, PSN[1], PSN[0] + 1);
    pair.near.post_send(1, 0, 8);
    assert_eq!(pair.near.completion().status, Status::RetryCounterExceededError);
    drop(pair);
    let records = session.records();
    [near, far].map(|number| Trace::from(about(&records, &[&format!("qp {number:#x}")])))
}

#[test]
fn both_traces_are_needed_for_the_exact_cause() {
    let [near, far] = two_threads();
    let report = explain(&[far, near.clone()]);
    finds(&report, &["PSN mismatch"]);
    assert_eq!((report.findings[0].trace, report.findings[0].certainty), (1, Certainty::Certain));
    let alone = explain(&[near]);
    finds(&alone, &["cannot be distinguished"]);
    assert_eq!(alone.findings[0].certainty, Certainty::Likely);
    assert!(alone.findings[0].others.iter().any(|other| other.contains("PSN")), "{alone}");
}

fn is_clean(session: Session) {
    let report = explained(session);
    assert_eq!(report.to_string(), "nothing went wrong in what the traces contain\n");
}

#[test]
fn exchange_has_no_finding() {
    let session = session();
    let mut pair = Loopback::<ExtendedQueuePair>::new(QueueKind::Extended);
    pair.works();
    drop(pair);
    is_clean(session);
}

#[test]
fn flushes_of_a_normal_end_have_no_finding() {
    let session = session();
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    pair.works();
    pair.far.post_receive(1, 0, 64);
    pair.far.qp.modify(&to(QueuePairState::Error)).unwrap();
    assert_eq!(pair.far.completion().status, Status::WorkRequestFlushedError);
    drop(pair);
    is_clean(session);
}

#[test]
fn connection_that_ends_has_no_finding() {
    let session = session();
    let channel = connections::channel();
    let (active, passive) = connections::connect(&channel);
    active.id.disconnect().unwrap();
    drop(connections::expect(&channel, EventType::Disconnected));
    passive.id.disconnect().unwrap();
    drop(connections::expect(&channel, EventType::Disconnected));
    drop((active, passive, channel));
    is_clean(session);
}

#[test]
fn waits_and_probes_have_no_finding() {
    let session = Session::with_faults("after 0 calls of ibv_reg_mr: fail with EOPNOTSUPP");
    let channel = connections::channel();
    channel.get_cm_event(Some(std::time::Duration::ZERO)).unwrap_err();
    let context = device::open();
    let _ = context.query_gid(device::PORT, 200);
    let pd = context.alloc_pd().unwrap();
    pd.reg_owned_mr(64, AccessFlags::LocalWrite | AccessFlags::OnDemand).unwrap_err();
    drop(pd.reg_owned_mr(64, AccessFlags::LocalWrite).unwrap());
    drop((channel, pd, context));
    is_clean(session);
}
