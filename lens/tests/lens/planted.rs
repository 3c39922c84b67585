//! Mistakes on queue pairs, and what `explain` finds in their traces.

use rdma_lens::{Certainty, Format, Record, Report, Trace, What, explain};
use rdma_mummy_sys as ffi;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, Datagram, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::datagrams::{Datagrams, QKEY};
use sideway_tests::device;
use sideway_tests::loopback::{Give, Loopback, Memory, PSN, QueueKind, init, ready_to_receive, ready_to_send, to};

use crate::support::Session;

type Pair = Loopback<BasicQueuePair>;

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Near,
    Far,
}

fn session() -> Session {
    Session::new(Format::Json, |builder| builder)
}

pub(crate) fn explained(session: Session) -> Report {
    explain(&[Trace::from(session.records())])
}

/// The report of a trace in which the lens stood in for a device: without the marks of its faults.
pub(crate) fn explained_as_of_a_device(session: Session) -> Report {
    let mut records = session.records();
    records.retain(|record| !matches!(&record.what, What::Call { verb, .. } if verb == "fault"));
    records.iter_mut().for_each(|record| record.injected = false);
    explain(&[Trace::from(records)])
}

#[test]
fn faults_of_a_schedule_are_named_as_such() {
    let session = Session::with_faults(
        "each post on qp 1: complete with RETRY_EXC\nafter 3 calls of ibv_reg_mr: fail with ENOMEM",
    );
    let mut pair = Pair::new(QueueKind::Basic);
    connect(&pair, |_, _, _| true);
    pair.near.post_send(1, 0, 8);
    pair.near.completion();
    for _ in 0..2 {
        let _ = pair.pd.reg_owned_mr(64, AccessFlags::LocalWrite);
    }
    drop(pair);
    let report = explained(session);
    let causes: Vec<&str> = report.findings.iter().map(|finding| finding.cause.as_str()).collect();
    let expected =
        ["the schedule of faults: complete with RETRY_EXC_ERR", "the schedule of faults made ibv_reg_mr_iova2 fail"];
    assert_eq!(causes, expected, "{report}");
}

/// Asserts that the first finding has a certain cause with these parts, and is the only one.
#[track_caller]
pub(crate) fn finds(report: &Report, parts: &[&str]) {
    let text = report.to_string();
    assert!(report.findings.len() == 1 && parts.iter().all(|part| report.findings[0].cause.contains(part)), "{text}");
    assert!(!report.findings[0].remedy.is_empty(), "{text}");
}

#[track_caller]
fn is_certain(report: &Report, parts: &[&str]) {
    finds(report, parts);
    assert_eq!(report.findings[0].certainty, Certainty::Certain, "{report}");
}

/// Connects both sides again, with attributes that `change` may spoil. If it returns `false`, the side stays there.
fn connect(pair: &Pair, change: impl Fn(Side, usize, &mut QueuePairAttribute) -> bool) {
    for end in [&pair.near, &pair.far] {
        end.qp.modify(&to(QueuePairState::Reset)).unwrap();
    }
    let sides =
        [(Side::Near, &pair.near, &pair.far, PSN[0], PSN[1]), (Side::Far, &pair.far, &pair.near, PSN[1], PSN[0])];
    for (side, here, there, sq_psn, rq_psn) in sides {
        let to_receive = ready_to_receive(&pair.context, there.qp.qp_number(), rq_psn);
        for (step, mut attributes) in [init(), to_receive, ready_to_send(sq_psn, 1)].into_iter().enumerate() {
            if step == 2 {
                attributes.setup_timeout(10).setup_retry_cnt(1);
            }
            if !change(side, step, &mut attributes) {
                break;
            }
            here.qp.modify(&attributes).unwrap();
        }
    }
}

fn write(pair: &mut Pair, wr_id: u64, rkey: RemoteKey, address: u64) {
    let range = pair.near.range(0, 8);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_write(rkey, address).give(range);
    batch.post().unwrap();
}

/// Writes twice to a peer that does not acknowledge.
fn writes_in_vain(change: impl Fn(Side, usize, &mut QueuePairAttribute) -> bool) -> Report {
    let session = session();
    let mut pair = Pair::new(QueueKind::Basic);
    connect(&pair, change);
    let (rkey, address) = pair.far.remote(0);
    (1..=2).for_each(|wr_id| write(&mut pair, wr_id, rkey, address));
    assert_eq!(pair.near.completion().status, Status::RetryCounterExceededError);
    assert_eq!(pair.near.completion().status, Status::WorkRequestFlushedError);
    drop(pair);
    explained(session)
}

#[test]
fn wrong_gid_index_is_named() {
    let context = device::open();
    let used = device::gid(&context).unwrap();
    let other = context
        .query_gid_table()
        .unwrap()
        .into_iter()
        .find(|entry| entry.gid() != used.gid() && entry.gid().is_ipv4_mapped() == used.gid().is_ipv4_mapped());
    let index = other.map_or(200, |entry| entry.gid_index() as u8);
    let way = || {
        let mut way = AddressHandleAttribute::new();
        way.setup_port(device::PORT).setup_grh(&used.gid(), 0, index, 64, 0);
        way
    };
    let report = if other.is_some() {
        writes_in_vain(|side, step, attributes| {
            if (side, step) == (Side::Near, 1) {
                attributes.setup_address_vector(&way());
            }
            true
        })
    } else {
        let session = session();
        let pair = Pair::new(QueueKind::Basic);
        pair.near.qp.modify(&to(QueuePairState::Reset)).unwrap();
        pair.near.qp.modify(&init()).unwrap();
        let mut attributes = ready_to_receive(&pair.context, pair.far.qp.qp_number(), 0);
        pair.near.qp.modify(attributes.setup_address_vector(&way())).unwrap_err();
        drop(pair);
        explained(session)
    };
    is_certain(&report, &["wrong GID index", &format!("sgid_index {index}")]);
}

#[test]
fn empty_gid_index_is_named() {
    let session = session();
    let pair = Pair::new(QueueKind::Basic);
    pair.near.qp.modify(&to(QueuePairState::Reset)).unwrap();
    pair.near.qp.modify(&init()).unwrap();
    let mut way = AddressHandleAttribute::new();
    way.setup_port(device::PORT).setup_grh(&device::gid(&pair.context).unwrap().gid(), 0, 200, 64, 0);
    let mut attributes = ready_to_receive(&pair.context, pair.far.qp.qp_number(), 0);
    pair.near.qp.modify(attributes.setup_address_vector(&way)).unwrap_err();
    drop(pair);
    is_certain(&explained(session), &["wrong GID index", "sgid_index 200 has no GID"]);
}

#[test]
fn psn_mismatch_is_named_with_its_consequences() {
    let report = writes_in_vain(|side, step, attributes| {
        if (side, step) == (Side::Far, 1) {
            attributes.setup_rq_psn(7);
        }
        true
    });
    is_certain(&report, &["PSN mismatch", "rq_psn 7"]);
    assert_eq!(report.findings[0].consequences(), "1 flushed request follows from it");
}

#[test]
fn peer_that_is_not_ready_is_named() {
    let report = writes_in_vain(|side, step, _| (side, step) != (Side::Far, 1));
    is_certain(&report, &["is in INIT", "from RTR on"]);
}

/// softrnic accepts packets of any size, so the lens reports what a NIC does.
#[test]
fn mtu_mismatch_is_named() {
    let session = Session::with_faults("each post on qp 1: complete with REM_INV_REQ");
    let mut pair = Pair::new(QueueKind::Basic);
    connect(&pair, |side, step, attributes| {
        if (side, step) == (Side::Near, 1) {
            attributes.setup_path_mtu(Mtu::Mtu4096);
        }
        true
    });
    let (rkey, address) = pair.far.remote(0);
    let range = pair.near.range(0, 4096);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(1, WorkRequestFlags::Signaled).setup_write(rkey, address).give(range);
    batch.post().unwrap();
    pair.near.completion();
    drop(pair);
    let report = explained_as_of_a_device(session);
    is_certain(&report, &["MTU mismatch", "path_mtu 4096", "1024"]);
}

fn access_is_refused(spoil: impl FnOnce(&mut Pair) -> (RemoteKey, u64)) -> Report {
    let session = session();
    let mut pair = Pair::new(QueueKind::Basic);
    let (rkey, address) = spoil(&mut pair);
    write(&mut pair, 1, rkey, address);
    // softrnic rejects an operation that a queue pair does not permit as an invalid request.
    let status = pair.near.completion().status;
    assert!(matches!(status, Status::RemoteAccessError | Status::RemoteInvalidRequestError), "{status:?}");
    drop(pair);
    explained(session)
}

#[test]
fn missing_access_flag_of_the_region_is_named() {
    let report = access_is_refused(|pair| {
        pair.far.memory = Memory::new(&pair.pd, 64, AccessFlags::LocalWrite);
        pair.far.remote(0)
    });
    is_certain(&report, &["memory region mr ", "lacks REMOTE_WRITE", "LOCAL_WRITE"]);
}

#[test]
fn missing_access_flag_of_the_queue_pair_is_named() {
    let report = access_is_refused(|pair| {
        connect(pair, |side, step, attributes| {
            if (side, step) == (Side::Far, 0) {
                attributes.setup_access_flags(AccessFlags::LocalWrite | AccessFlags::RemoteRead);
            }
            true
        });
        pair.far.remote(0)
    });
    is_certain(&report, &["queue pair qp ", "lacks REMOTE_WRITE"]);
}

#[test]
fn wrong_rkey_is_named_with_the_right_one() {
    let mut right = 0;
    let report = access_is_refused(|pair| {
        let (rkey, address) = pair.far.remote(0);
        right = rkey.raw();
        (RemoteKey::from_raw(!rkey.raw()), address)
    });
    is_certain(&report, &["wrong rkey", &format!("with rkey {right:#x}")]);
}

#[test]
fn range_outside_the_region_is_named() {
    let report = access_is_refused(|pair| pair.far.remote(64 * 1024 - 4));
    is_certain(&report, &["8 bytes at", "outside of mr "]);
}

#[test]
fn expired_region_of_the_peer_is_named() {
    let report = access_is_refused(|pair| {
        let old = pair.far.remote(0);
        pair.far.memory = Memory::new(&pair.pd, 64, AccessFlags::LocalWrite);
        old
    });
    is_certain(&report, &["has expired", "deregistered mr "]);
}

#[test]
fn region_that_was_deregistered_before_the_completion_is_named() {
    let session = session();
    let mut pair = Pair::new(QueueKind::Basic);
    pair.far.post_receive(1, 0, 64);
    pair.far.memory = Memory::new(&pair.pd, 64, AccessFlags::LocalWrite);
    pair.near.post_send(2, 0, 8);
    assert_eq!(pair.near.completion().status, Status::RemoteOperationError);
    assert_eq!(pair.far.completion().status, Status::LocalProtectionError);
    drop(pair);
    is_certain(&explained(session), &["the peer's receive failed", "was deregistered before its completion"]);
}

#[test]
fn missing_receive_is_named() {
    let session = session();
    let mut pair = Pair::new(QueueKind::Basic);
    connect(&pair, |_, _, _| true);
    pair.near.post_send(2, 0, 8);
    assert_eq!(pair.near.completion().status, Status::ResponderNotReadyRetryCounterExceededError);
    drop(pair);
    is_certain(&explained(session), &["had no receive posted", "rnr_retry 1"]);
}

#[test]
fn empty_shared_receive_queue_is_named() {
    let session = session();
    let context = device::open();
    let channel = context.create_comp_channel().unwrap();
    let srq = context.alloc_pd().unwrap().create_srq_builder().setup_max_wr(8).build().unwrap();
    let mut pair = Pair::with(QueueKind::Basic, Some((&context, &channel)), |builder| _ = builder.setup_srq(&srq));
    connect(&pair, |_, _, _| true);
    pair.near.post_send(2, 0, 8);
    assert_eq!(pair.near.completion().status, Status::ResponderNotReadyRetryCounterExceededError);
    drop((pair, srq));
    is_certain(&explained(session), &["shared receive queue srq ", "was empty", "0 receives were posted"]);
}

#[test]
fn wrong_q_key_is_named_from_both_sides() {
    let session = session();
    let mut pair = Datagrams::<BasicQueuePair<Datagram>>::new(QueueKind::Basic);
    pair.far.post_receive(1, 0, 256);
    pair.near.post_receive(1, 0, 256);
    pair.send(2, 0, 8, QKEY + 1);
    pair.near.success();
    pair.far.silence();
    drop(pair);
    is_certain(&explained(session), &["Q_Key mismatch", "0x12345679", "0x12345678"]);
}

/// Posts a request past the checks of sideway. The device refuses it.
fn is_refused(segments: usize, length: u32, flags: ffi::ibv_send_flags) -> Report {
    let session = session();
    let pair = Pair::new(QueueKind::Basic);
    let mut list =
        vec![ffi::ibv_sge { addr: pair.near.memory.addr(), length, lkey: pair.near.memory.lkey().raw() }; segments];
    // SAFETY: the queue pair is live, and so are the request and its memory.
    unsafe {
        let mut request: ffi::ibv_send_wr = std::mem::zeroed();
        (request.sg_list, request.num_sge) = (list.as_mut_ptr(), segments as i32);
        (request.opcode, request.send_flags) = (ffi::ibv_wr_opcode::IBV_WR_SEND, flags.0);
        let mut bad = std::ptr::null_mut();
        let code = ffi::ibv_post_send(pair.near.qp.qp().as_ptr(), &raw mut request, &raw mut bad);
        assert_eq!(code, libc::EINVAL);
    }
    drop(pair);
    explained(session)
}

#[test]
fn too_many_segments_are_named() {
    let report = is_refused(5, 8, ffi::ibv_send_flags::IBV_SEND_SIGNALED);
    is_certain(&report, &["too many segments", "has 5", "max_send_sge 4"]);
}

#[test]
fn too_much_inline_data_is_named() {
    let report = is_refused(1, 4000, ffi::ibv_send_flags::IBV_SEND_INLINE);
    is_certain(&report, &["too much inline data", "4000 bytes", "max_inline_data 64"]);
}

#[test]
fn limit_of_locked_memory_is_named() {
    let session = Session::with_faults("after 1 calls of ibv_reg_mr: fail with ENOMEM");
    let pd = device::open().alloc_pd().unwrap();
    let _first = pd.reg_owned_mr(4096, AccessFlags::LocalWrite).unwrap();
    pd.reg_owned_mr(64, AccessFlags::LocalWrite).unwrap_err();
    let report = explained_as_of_a_device(session);
    finds(&report, &["limit of locked memory (`ulimit -l`)", "4096"]);
    assert!(report.findings[0].remedy.contains("ulimit -l unlimited"), "{report}");
}

#[test]
fn small_completion_queue_is_named() {
    let session = session();
    let context = device::open();
    let channel = context.create_comp_channel().unwrap();
    let events = context.async_events().unwrap();
    let small = QueueKind::Basic.build(context.create_cq_builder().setup_cqe(1));
    let mut pair =
        Pair::with(QueueKind::Basic, Some((&context, &channel)), |builder| _ = builder.setup_send_cq(&small));
    let (rkey, address) = pair.far.remote(0);
    (1..=4).for_each(|wr_id| write(&mut pair, wr_id, rkey, address));
    for _ in 0..2 {
        drop(events.get_async_event(Some(sideway_tests::connections::LONG)).unwrap());
    }
    drop((events, pair, small));
    let report = explained(session);
    is_certain(&report, &["is too small and overran", "with 1 entries"]);
    assert_eq!(report.findings[0].consequences(), "1 event follows from it");
}

#[test]
fn suspicious_immediate_data_is_a_hint() {
    let session = session();
    let mut pair = Pair::new(QueueKind::Basic);
    pair.far.post_receive(1, 0, 64);
    let range = pair.near.range(0, 8);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(2, WorkRequestFlags::Signaled).setup_send_imm(7_u32.swap_bytes()).give(range);
    batch.post().unwrap();
    pair.near.success();
    drop(pair);
    let report = explained(session);
    finds(&report, &["immediate data 0x7000000 looks like 7", "byte order"]);
    assert_eq!(report.findings[0].certainty, Certainty::Hint);
}

#[test]
fn fork_without_fork_init_is_a_hint_on_old_kernels() {
    let session = session();
    let pair = Pair::new(QueueKind::Basic);
    // SAFETY: the child only exits.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::_exit(0);
        }
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    drop(pair);
    let mut records = session.records();
    let kernel = |records: &mut [Record], release: &str| {
        let fork = records.iter_mut().find_map(|record| match &mut record.what {
            What::Call { verb, arguments, .. } if verb == "fork" => Some(arguments),
            _ => None,
        });
        fork.unwrap()[0].1 = release.to_owned();
    };
    kernel(&mut records, "5.4.0-42-generic");
    let report = explain(&[Trace::from(records.clone())]);
    finds(&report, &["fork with 2 registered memory regions", "ibv_fork_init"]);
    assert_eq!(report.findings[0].certainty, Certainty::Hint);
    kernel(&mut records, "6.1.0");
    assert_eq!(explain(&[Trace::from(records)]).findings, []);
}

#[test]
fn region_that_was_registered_again_counts_once() {
    let call = |at: u32, verb: &str, arguments: &[(&str, &str)], result: &str, error: &str| {
        let arguments: Vec<String> = arguments.iter().map(|(name, value)| format!(r#"["{name}","{value}"]"#)).collect();
        let error = if error.is_empty() { String::new() } else { format!(r#","error":"{error}""#) };
        let arguments = arguments.join(",");
        format!(
            r#"{{"at":{at},"thread":1,"kind":"call","verb":"{verb}","arguments":[{arguments}],"result":"{result}"{error}}}"#
        )
    };
    let (region, change) = (("mr", "mr 0x1"), [("addr", "0x9000"), ("length", "64"), ("access", "0")]);
    let with =
        |length: &'static str| [("pd", "pd 1"), ("addr", "0x1000"), ("length", length), ("access", "LOCAL_WRITE")];
    let lines = [
        call(1, "ibv_reg_mr", &with("4096"), "mr 0x1 rkey 0x1", ""),
        call(2, "ibv_rereg_mr", &[&[region, ("flags", "1")], &change[..]].concat(), "0", ""),
        call(3, "ibv_reg_mr", &with("8"), "", "ENOMEM"),
        call(4, "ibv_rereg_mr", &[&[region, ("flags", "1")], &change[..]].concat(), "", "ENOMEM"),
    ];
    let report = explain(&[Trace::read(lines.join("\n").as_bytes()).unwrap()]);
    let causes: Vec<&str> = report.findings.iter().map(|finding| finding.cause.as_str()).collect();
    assert!(causes[0].contains("8 bytes more than the 64 that"), "{report}");
    assert!(causes[1].contains("64 bytes more than the 0 that"), "{report}");
}
