//! Faults, and what a program sees of them.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rdma_lens::{Devices, Format, What};
use sideway::ibverbs::completion::WorkCompletionStatus;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, PostSendGuard, QueuePairAttributeMask, QueuePairState,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::loopback::{Give, Kind, Loopback, QueueKind};

use crate::support::{Session, calls, completions};

fn post<Q: Kind>(pair: &mut Loopback<Q>, wr_id: u64) -> Result<(), Box<dyn std::error::Error>> {
    let range = pair.near.range(0, 8);
    let (rkey, address) = pair.far.remote(0);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_write(rkey, address).give(range);
    batch.post().map_err(Into::into)
}

#[test]
fn call_is_refused_with_the_error_of_the_schedule() {
    let session = Session::with_faults("after 1 calls of ibv_reg_mr: fail with ENOMEM");
    let context = sideway_tests::device::open();
    let pd = context.alloc_pd().unwrap();
    let flags = sideway::ibverbs::AccessFlags::LocalWrite;
    let _first = pd.reg_owned_mr(64, flags).unwrap();
    let error = pd.reg_owned_mr(64, flags).unwrap_err();
    assert!(error.to_string().contains("ENOMEM"), "{error}");
    let _third = pd.reg_owned_mr(64, flags).unwrap();
    let records = session.records();
    let injected: Vec<&What> = records.iter().filter(|record| record.injected).map(|record| &record.what).collect();
    assert!(matches!(injected[..], [What::Call { error: Some(error), .. }] if error == "ENOMEM"), "{injected:?}");
}

fn post_is_refused<Q: Kind>(queue: QueueKind) {
    let session = Session::with_faults("after 1 posts on qp 1: fail with ENOMEM");
    let mut pair = Loopback::<Q>::new(queue);
    post(&mut pair, 1).unwrap();
    let error = post(&mut pair, 2).unwrap_err();
    assert!(error.to_string().contains("ENOMEM"), "{error}");
    // The queue pair works on: the device does not know of it.
    post(&mut pair, 3).unwrap();
    assert_eq!([pair.near.success().wr_id, pair.near.success().wr_id], [1, 3]);
    drop(pair);
    let records = session.records();
    let refused = records.iter().filter(|record| record.injected && matches!(record.what, What::Refused { .. }));
    assert_eq!(refused.count(), 1);
    assert_eq!(completions(&records).len(), 2);
}

#[test]
fn post_is_refused_on_a_basic_queue_pair() {
    post_is_refused::<BasicQueuePair>(QueueKind::Basic);
}

#[test]
fn post_is_refused_on_an_extended_queue_pair() {
    post_is_refused::<ExtendedQueuePair>(QueueKind::Extended);
}

fn request_fails_and_the_rest_is_flushed<Q: Kind>(queue: QueueKind) {
    let session = Session::with_faults("after 2 posts on qp 1: complete with RETRY_EXC");
    let mut pair = Loopback::<Q>::new(queue);
    for wr_id in 1..=2 {
        post(&mut pair, wr_id).unwrap();
        assert_eq!(pair.near.success().wr_id, wr_id);
    }
    for wr_id in 3..=4 {
        post(&mut pair, wr_id).unwrap();
    }
    let found =
        [pair.near.completion(), pair.near.completion()].map(|completion| (completion.wr_id, completion.status));
    assert_eq!(
        found,
        [(3, WorkCompletionStatus::RetryCounterExceededError), (4, WorkCompletionStatus::WorkRequestFlushedError)]
    );
    assert_eq!(pair.near.qp.query(QueuePairAttributeMask::State).unwrap().0.state(), QueuePairState::Error);
    drop(pair);
    let records = session.records();
    let injected: Vec<&What> = records.iter().filter(|record| record.injected).map(|record| &record.what).collect();
    assert!(
        matches!(injected[..], [What::Call { verb, .. }, What::Completion { wr_id: 3, .. }] if verb == "fault"),
        "{injected:?}"
    );
    // The fault's own call is not one of the program.
    assert_eq!(calls(&records, "ibv_modify_qp").len(), 6);
}

#[test]
fn request_fails_on_a_basic_queue_pair() {
    request_fails_and_the_rest_is_flushed::<BasicQueuePair>(QueueKind::Basic);
}

#[test]
fn request_fails_on_an_extended_queue_pair() {
    request_fails_and_the_rest_is_flushed::<ExtendedQueuePair>(QueueKind::Extended);
}

#[test]
fn seed_repeats_the_faults() {
    let run = |seed| {
        let faults =
            |builder: rdma_lens::Builder| builder.faults("20 % of posts: fail with EAGAIN".parse().unwrap(), seed);
        let session = Session::new(Format::Text, faults);
        let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
        let results: Vec<bool> = (0..200)
            .map(|wr_id| {
                let is_posted = post(&mut pair, wr_id).is_ok();
                if is_posted {
                    pair.near.success();
                }
                is_posted
            })
            .collect();
        drop(session);
        results
    };
    let first = run(1);
    assert!(first.contains(&false) && first.contains(&true));
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
}

#[test]
fn faults_end_with_the_lens() {
    let session = Session::with_faults("each post: fail with ENOMEM");
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    post(&mut pair, 1).unwrap_err();
    let _turn = session.end();
    post(&mut pair, 2).unwrap();
    pair.near.success();
    drop(pair);
}

/// Devices that know one command.
#[derive(Clone, Default)]
struct OneCommand(Arc<Mutex<Vec<String>>>);

impl Devices for OneCommand {
    fn check(&self, command: &str) -> Result<(), String> {
        if command == "blink" { Ok(()) } else { Err("expected `blink`".to_owned()) }
    }

    fn run(&self, command: &str) -> Result<(), String> {
        self.0.lock().unwrap().push(command.to_owned());
        Ok(())
    }
}

#[test]
fn devices_get_commands_by_requests_and_by_time() {
    let devices = OneCommand::default();
    let schedule = "after 1 posts: device blink\nat 10 ms: device blink";
    let session =
        Session::new(Format::Json, |builder| builder.faults(schedule.parse().unwrap(), 0).devices(devices.clone()));
    let deadline = Instant::now() + Duration::from_secs(20);
    while devices.0.lock().unwrap().is_empty() {
        assert!(Instant::now() < deadline, "no command by its time");
        thread::sleep(Duration::from_millis(1));
    }
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    for wr_id in 1..=3 {
        post(&mut pair, wr_id).unwrap();
        pair.near.success();
    }
    drop(pair);
    assert_eq!(*devices.0.lock().unwrap(), ["blink", "blink"]);
    let records = session.records();
    let injected = records
        .iter()
        .filter(|record| record.injected && matches!(&record.what, What::Call { verb, .. } if verb == "device"));
    assert_eq!(injected.count(), 2);
}

#[test]
fn unknown_command_is_refused_before_the_program_runs() {
    let turn = Session::turn();
    let builder = rdma_lens::Lens::builder().faults("\nat 1 s: device explode".parse().unwrap(), 0);
    let error = builder.devices(OneCommand::default()).install().unwrap_err().to_string();
    assert_eq!(error, "line 2: `device explode`: expected `blink`");
    let error = rdma_lens::Lens::builder().faults("at 1 s: device explode".parse().unwrap(), 0).install().unwrap_err();
    assert!(error.to_string().contains("softrnic-run"), "{error}");
    drop(turn);
}

/// Receives and sends of one queue pair, with the same identifiers.
#[test]
fn flushed_receive_keeps_its_status() {
    let session = Session::with_faults("each post on qp 1: complete with RETRY_EXC");
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    for wr_id in 1..=2 {
        pair.near.post_receive(wr_id, 0, 8);
    }
    post(&mut pair, 1).unwrap();
    let statuses: Vec<WorkCompletionStatus> = (0..3).map(|_| pair.near.completion().status).collect();
    let failed = statuses.iter().filter(|status| **status == WorkCompletionStatus::RetryCounterExceededError);
    assert_eq!(failed.count(), 1, "{statuses:?}");
    drop(pair);
    let records = session.records();
    let found = completions(&records);
    assert!(found.contains(&("RETRY_EXC_ERR".to_owned(), "RDMA_WRITE".to_owned(), 1)), "{found:?}");
    assert_eq!(found.iter().filter(|(status, opcode, _)| status == "WR_FLUSH_ERR" && opcode == "RECV").count(), 2);
}

#[test]
fn reset_ends_a_fault_that_has_not_shown() {
    let session = Session::with_faults("after 0 posts on qp 1: complete with RETRY_EXC");
    let mut pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    post(&mut pair, 1).unwrap();
    pair.reconnect(7);
    pair.near.post_receive(2, 0, 8);
    post(&mut pair, 3).unwrap();
    assert_eq!(pair.near.success().wr_id, 3);
    drop(session);
}

#[test]
fn verbs_that_cannot_fail_here_are_refused() {
    let turn = Session::turn();
    for (line, part) in [
        ("each call of ibv_regmr: fail with ENOMEM", "`ibv_regmr` is no verb"),
        ("each call of ibv_post_send: fail with ENOMEM", "requests are `posts`"),
        ("each call of rdma_destroy_ep: fail with ENOMEM", "cannot fail"),
    ] {
        let error = rdma_lens::Lens::builder().faults(line.parse().unwrap(), 0).install().unwrap_err().to_string();
        assert!(error.starts_with("line 1") && error.contains(part), "{error}");
    }
    let lens = rdma_lens::Lens::builder()
        .faults(
            "each call of ibv_query_gid_ex: fail with ENOMEM\neach call of ibv_alloc_mw: fail with ENOMEM"
                .parse()
                .unwrap(),
            0,
        )
        .install()
        .unwrap();
    lens.finish().unwrap();
    drop(turn);
}

/// Each queue pair has its own chances, whatever other threads post.
#[test]
fn chances_of_a_queue_pair_do_not_depend_on_others() {
    let run = |also: bool| {
        let session = Session::with_faults("20 % of posts: fail with EAGAIN");
        let mut one = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
        let mut other = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
        let results: Vec<bool> = (0..100)
            .map(|wr_id| {
                if also && post(&mut other, wr_id).is_ok() {
                    other.near.success();
                }
                let is_posted = post(&mut one, wr_id).is_ok();
                if is_posted {
                    one.near.success();
                }
                is_posted
            })
            .collect();
        drop(session);
        results
    };
    assert_eq!(run(false), run(true));
}
