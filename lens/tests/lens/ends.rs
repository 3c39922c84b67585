//! What `explain` finds if the peer ended: its process, its connection, or the path to it.

use rdma_lens::{Certainty, Format, Record, Report, Trace, What, explain};
use rdma_mummy_sys as ffi;
use sideway::ibverbs::completion::{CompletionQueue, WorkCompletionStatus as Status};
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::communication_manager::EventType;
use sideway_tests::loopback::{Loopback, QueueKind};
use sideway_tests::{connections, device};

use crate::planted::finds;
use crate::support::{Session, about, calls};

fn session() -> Session {
    Session::new(Format::Json, |builder| builder)
}

fn explained(records: &[Vec<Record>]) -> Report {
    explain(&records.iter().cloned().map(Trace::from).collect::<Vec<_>>())
}

/// The trace of a process that was killed at a time.
fn killed(mut records: Vec<Record>, at: u64) -> Vec<Record> {
    records.retain(|record| match record.what {
        What::Start { .. } => true,
        What::End { .. } => false,
        _ => record.at < at,
    });
    records
}

fn is_end(record: &Record) -> bool {
    matches!(record.what, What::End { process } if process == std::process::id())
}

#[test]
fn trace_ends_with_a_record() {
    let session = session();
    drop(device::open());
    let records = session.records();
    assert!(is_end(records.last().unwrap()), "{:?}", records.last());
    let killed = explained(&[killed(records, u64::MAX)]).to_string();
    assert!(killed.contains("ended without an end record: killed or crashed"), "{killed}");
}

/// A request that the peer did not acknowledge: the traces of both sides, and when it failed.
fn unacknowledged() -> ([Vec<Record>; 2], u64) {
    let session = Session::with_faults("each post on qp 1: complete with RETRY_EXC");
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let context = std::sync::Arc::clone(&pair.context);
    let index = device::gid(&context).unwrap().gid_index();
    let gid = context.query_gid(device::PORT, index).unwrap();
    let entry = context.query_gid_ex(device::PORT, index).unwrap();
    let names = [&pair.near, &pair.far].map(|end| format!("qp {:#x}", end.qp.qp_number()));
    pair.near.post_send(1, 0, 8);
    assert_eq!(pair.near.completion().status, Status::RetryCounterExceededError);
    drop((pair, context));
    let mut records = session.records();
    for verb in ["ibv_query_gid", "ibv_query_gid_ex"] {
        let value = std::net::Ipv6Addr::from(gid).to_string();
        let has_gid = |call: &crate::support::Call<'_>| call.0.contains(&("gid".to_owned(), value.clone()));
        assert!(calls(&records, verb).iter().any(has_gid), "{verb} {value}");
    }
    assert_eq!(gid, entry.gid());
    // As of a device: without the marks of the fault.
    records.retain(|record| !matches!(&record.what, What::Call { verb, .. } if verb == "fault"));
    records.iter_mut().for_each(|record| record.injected = false);
    let failed = records.iter().find(|record| matches!(record.what, What::Completion { .. })).unwrap().at;
    let is_common = |record: &&Record| {
        let common = ["ibv_alloc_pd", "ibv_query_gid", "ibv_query_gid_ex"];
        matches!(&record.what, What::Call { verb, .. } if common.contains(&&**verb))
    };
    let traces = names.map(|name| {
        let mut of_one = about(&records, &[&name]);
        of_one.extend(records.iter().filter(is_common).cloned());
        of_one.sort_by_key(|record| record.at);
        of_one
    });
    (traces, failed)
}

#[test]
fn killed_peer_is_named_for_a_request_without_acknowledgement() {
    let ([near, far], failed) = unacknowledged();
    let living = explained(&[near.clone(), far.clone()]);
    assert!(!living.to_string().contains("end record"), "{living}");
    let report = explained(&[near.clone(), killed(far.clone(), failed)]);
    finds(&report, &["the peer's process", "(lens", "without an end record: killed or crashed"]);
    assert_eq!(report.findings[0].certainty, Certainty::Likely, "{report}");
    // Its trace may lack the queue pair.
    let report = explained(&[near, killed(far, 1)]);
    finds(&report, &["the peer's process", "killed or crashed"]);
}

#[test]
fn gid_that_the_program_queried_shows_a_wrong_index() {
    let ([mut near, _], _) = unacknowledged();
    let right = explained(&[near.clone()]).to_string();
    assert!(!right.contains("wrong GID index"), "{right}");
    for record in &mut near {
        let What::Call { verb, arguments, .. } = &mut record.what else { continue };
        let index = arguments.iter_mut().find(|(name, _)| name == "index" || name == "gid_index");
        if let Some(index) = index.filter(|_| verb.starts_with("ibv_query_gid")) {
            index.1 = "77".to_owned();
        }
    }
    finds(&explained(&[near]), &["wrong GID index", "queried the GID of index 77"]);
}

/// A connection that the passive side ended while the active one had a request: the records, and the names of the objects
/// of both sides.
fn disconnected(has_request: bool) -> (Vec<Record>, [[String; 2]; 2]) {
    let session = session();
    let channel = connections::channel();
    let (mut active, passive) = connections::connect(&channel);
    let names = [&active, &passive].map(|end| {
        // SAFETY: only the address is used.
        let id = unsafe { end.id.cm_id() };
        [format!("id {:p}", id.as_ptr()), format!("qp {:#x}", end.qp.qp_number())]
    });
    passive.id.disconnect().unwrap();
    drop(connections::expect(&channel, EventType::Disconnected));
    if has_request {
        let mut batch = active.qp.start_post_send();
        batch
            .construct_wr(1, WorkRequestFlags::Signaled | WorkRequestFlags::Inline)
            .setup_send()
            .setup_inline_data(b"x");
        batch.post().unwrap();
        // SAFETY: the queue is live, and there is space for a completion.
        unsafe {
            let mut completion: ffi::ibv_wc = std::mem::zeroed();
            while ffi::ibv_poll_cq(active.cq.cq().as_ptr(), 1, &raw mut completion) == 0 {
                std::thread::yield_now();
            }
            assert_ne!(completion.status, ffi::ibv_wc_status::IBV_WC_SUCCESS);
        }
    }
    active.id.disconnect().unwrap();
    drop(connections::expect(&channel, EventType::Disconnected));
    drop((active, passive, channel));
    (session.records(), names)
}

/// The traces of both sides, without the calls of `rdma_disconnect`, and the time of the active side's event.
fn without_calls((mut records, names): (Vec<Record>, [[String; 2]; 2])) -> ([Vec<Record>; 2], u64) {
    records.retain(|record| !matches!(&record.what, What::Call { verb, .. } if verb == "rdma_disconnect"));
    let is_event = |record: &&Record| matches!(&record.what, What::Call { arguments, .. } if arguments.iter().any(|(_, value)| value == "DISCONNECTED"));
    let at = records.iter().find(is_event).unwrap().at;
    (names.map(|[id, pair]| about(&records, &[&id, &pair])), at)
}

#[test]
fn side_that_disconnected_early_is_named() {
    let (records, _) = disconnected(true);
    let report = explained(&[records]);
    finds(&report, &["the peer called rdma_disconnect", "a request of qp "]);
    assert_eq!(report.findings[0].certainty, Certainty::Certain, "{report}");
    let (records, _) = disconnected(false);
    assert_eq!(explained(&[records]).findings, []);
}

#[test]
fn disconnection_that_no_side_asked_for_is_named() {
    let ([active, passive], at) = without_calls(disconnected(false));
    // The peer is there until the end, and has an event too.
    let living = |mut records: Vec<Record>| {
        records.iter_mut().filter(|record| is_end(record)).for_each(|record| record.at += 2_000_000_000);
        records.retain(|record| !matches!(&record.what, What::Call { verb, .. } if verb.contains("destroy")));
        records
    };
    let report = explained(&[living(active.clone()), living(passive.clone())]);
    assert!(report.findings[0].cause.starts_with("neither side called rdma_disconnect"), "{report}");
    let report = explained(&[active, killed(passive, at)]);
    finds(&report, &["neither side called rdma_disconnect", "killed or crashed"]);
}
