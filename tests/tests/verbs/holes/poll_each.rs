//! Polls that pass completions to a closure: their number, and their end.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use sideway::ibverbs::completion::{GenericCompletionQueue, GenericWorkCompletion, PollCompletionQueueError};
use sideway::ibverbs::single_threaded::SingleThreadedDomain;
use sideway_tests::recording::{Completion, Failure, Recording};

/// The error that the closures of these tests return.
#[derive(Debug, PartialEq)]
enum Ended {
    Poll(PollCompletionQueueError),
    Enough,
}

impl From<PollCompletionQueueError> for Ended {
    fn from(error: PollCompletionQueueError) -> Self {
        Self::Poll(error)
    }
}

/// A queue of each kind with the completions 1 to 5.
fn queues(recording: &Recording) -> [GenericCompletionQueue; 2] {
    let context = recording.open();
    let builder = context.create_cq_builder();
    let queues = [builder.build().unwrap().into(), builder.build_ex().unwrap().into()];
    for cq in &queues {
        for wr_id in 1..=5 {
            recording.complete(cq, Completion { wr_id, ..Completion::default() });
        }
    }
    recording.calls();
    queues
}

/// Polls by the queue's own type or by the generic type, which return the same.
fn poll_each(
    cq: &mut GenericCompletionQueue,
    by_type: bool,
    most: u32,
    take: &mut dyn FnMut(u64) -> Result<(), Ended>,
) -> Result<u32, Ended> {
    match cq {
        cq if !by_type => cq.poll_each(most, |wc| take(wc.wr_id())),
        GenericCompletionQueue::Basic(cq) => cq.poll_each(most, |wc| take(wc.wr_id())),
        GenericCompletionQueue::Extended(cq) => cq.poll_each(most, |wc| take(wc.wr_id())),
    }
}

fn keep(seen: &mut Vec<u64>, wr_id: u64) -> Result<(), Ended> {
    seen.push(wr_id);
    Ok(())
}

#[test]
fn poll_returns_at_most_the_requested_number_and_keeps_the_rest() {
    for by_type in [true, false] {
        let recording = Recording::new();
        for mut cq in queues(&recording) {
            let mut seen = Vec::new();
            let mut given = |cq: &mut GenericCompletionQueue, most| {
                poll_each(cq, by_type, most, &mut |wr_id| keep(&mut seen, wr_id)).unwrap()
            };
            let counts =
                [given(&mut cq, 0), given(&mut cq, 1), given(&mut cq, 3), given(&mut cq, 9), given(&mut cq, 9)];
            assert_eq!(counts, [0, 1, 3, 1, 0], "{cq:?}");
            assert_eq!(seen, [1, 2, 3, 4, 5], "{cq:?}");
        }
    }
}

#[test]
fn cursor_moves_once_a_completion_and_the_poll_ends() {
    let recording = Recording::new();
    let [_basic, mut extended] = queues(&recording);
    assert_eq!(poll_each(&mut extended, true, 0, &mut |_| Ok(())), Ok(0));
    // No poll starts for zero completions.
    assert_eq!(recording.verbs(), [""; 0]);
    assert_eq!(poll_each(&mut extended, true, 2, &mut |_| Ok(())), Ok(2));
    assert_eq!(recording.verbs(), ["start_poll", "next_poll", "end_poll"]);
    assert_eq!(poll_each(&mut extended, true, 4, &mut |_| Ok(())), Ok(3));
    assert_eq!(recording.verbs(), ["start_poll", "next_poll", "next_poll", "next_poll", "end_poll"]);
    assert_eq!(poll_each(&mut extended, true, 4, &mut |_| Ok(())), Ok(0));
    assert_eq!(recording.verbs(), ["start_poll"]);
}

#[test]
fn closure_error_is_returned_and_the_poll_ends() {
    let recording = Recording::new();
    for mut cq in queues(&recording) {
        let mut seen = Vec::new();
        let ended = poll_each(&mut cq, false, 9, &mut |wr_id| {
            seen.push(wr_id);
            if wr_id == 2 { Err(Ended::Enough) } else { Ok(()) }
        });
        assert_eq!(ended, Err(Ended::Enough));
        // Completions that the poll of a basic queue had taken are lost, as with its poller.
        let left: &[u64] = if matches!(cq, GenericCompletionQueue::Basic(_)) { &[] } else { &[3, 4, 5] };
        let mut behind = Vec::new();
        poll_each(&mut cq, false, 9, &mut |wr_id| keep(&mut behind, wr_id)).unwrap();
        assert_eq!((seen.as_slice(), behind.as_slice()), ([1, 2].as_slice(), left), "{cq:?}");
    }
}

#[test]
fn closure_panic_ends_the_poll() {
    for by_type in [true, false] {
        let recording = Recording::new();
        let [_basic, mut extended] = queues(&recording);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            poll_each(&mut extended, by_type, 9, &mut |wr_id| if wr_id == 2 { panic!("on purpose") } else { Ok(()) })
        }));
        assert!(panicked.is_err());
        assert_eq!(recording.verbs(), ["start_poll", "next_poll", "end_poll"]);
        let mut behind = Vec::new();
        poll_each(&mut extended, by_type, 9, &mut |wr_id| keep(&mut behind, wr_id)).unwrap();
        assert_eq!(behind, [3, 4, 5]);
    }
}

#[test]
fn broken_queue_is_not_reported_as_empty() {
    for (verb, of) in [("start_poll", 1), ("next_poll", 1), ("poll_cq", 0)] {
        let recording = Recording::new();
        let mut cq = queues(&recording).into_iter().nth(of).unwrap();
        recording.fail(verb, 0, Failure::documented(libc::EIO));
        let error = poll_each(&mut cq, false, 9, &mut |_| Ok(())).unwrap_err();
        let Ended::Poll(PollCompletionQueueError::Verb(error)) = error else { panic!("{verb}: {error:?}") };
        assert_eq!((error.verb(), error.errno().raw()), (format!("ibv_{verb}").as_str(), libc::EIO));
    }
}

#[test]
fn either_kind_returns_its_own_completions() {
    let recording = Recording::new();
    let [mut basic, mut extended] = queues(&recording);
    let kinds = |cq: &mut GenericCompletionQueue| {
        let (basic, extended) = (Cell::new(0), Cell::new(0));
        cq.poll_each::<PollCompletionQueueError>(9, |wc| {
            let count = match wc {
                GenericWorkCompletion::Basic(_) => &basic,
                GenericWorkCompletion::Extended(_) => &extended,
            };
            count.set(count.get() + 1);
            Ok(())
        })
        .unwrap();
        (basic.get(), extended.get())
    };
    assert_eq!((kinds(&mut basic), kinds(&mut extended)), ((5, 0), (0, 5)));
}

#[test]
fn single_threaded_poll_delays_queue_pair_destruction() {
    let recording = Recording::new();
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    let domain = SingleThreadedDomain::new(&pd);
    let mut cq = domain.create_cq_builder().build().unwrap();
    let mut builder = domain.create_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let mut qp = Some(builder.build().unwrap());
    // SAFETY: the pointer becomes a number.
    let address = unsafe { cq.cq() }.as_ptr().addr();
    for wr_id in 1..=3 {
        recording.complete_at(address, Completion { wr_id, ..Completion::default() });
    }
    recording.calls();
    let mut seen = Vec::new();
    assert_eq!(cq.poll_each::<Ended>(0, |_| Ok(())), Ok(0));
    let given = cq.poll_each::<Ended>(2, |wc| {
        seen.push(wc.wr_id());
        drop(qp.take());
        Ok(())
    });
    assert_eq!((given, seen.as_slice()), (Ok(2), [1, 2].as_slice()));
    assert_eq!(recording.verbs(), ["start_poll", "next_poll", "end_poll", "destroy_qp"]);
    assert_eq!(cq.poll_each::<Ended>(9, |_| Ok(())), Ok(1));
    assert_eq!(cq.poll_each::<Ended>(9, |_| Ok(())), Ok(0));
}
