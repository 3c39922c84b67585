//! Posting to one queue pair from several threads.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use sideway::ibverbs::completion::{
    PollCompletionQueueError, WorkCompletionOperationType as Operation, WorkCompletionStatus as Status,
};
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, GenericQueuePair, PostSendGuard, QueuePair, SendQueue,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::device;
use sideway_tests::loopback::{End, Give, Loopback, Named, QueueKind, REQUESTS};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;
const LONG: Duration = Duration::from_secs(60);

/// On both ends, one thread posts sends and one posts receives, while this thread polls.
macro_rules! posts_from_threads {
    ($name:ident, $Kind:ty) => {
        #[test]
        fn $name() {
            const MESSAGES: u64 = 500;
            let is_extended = <$Kind as Named>::NAME == <ExtendedQueuePair>::NAME;
            if is_extended && !device::has_extended_queue_pairs() {
                return;
            }
            let pair = Loopback::<$Kind>::new(QueueKind::Generic);
            let Loopback { near, far, .. } = pair;
            let mut ends = Vec::new();
            for end in [near, far] {
                let (from, into) = (end.range(0, 8), end.range(8, 8));
                let number = end.qp.qp_number();
                let End { qp, cq, memory } = end;
                let (mut sends, mut receives) = qp.split();
                assert_eq!((sends.qp_number(), receives.qp_number()), (number, number));
                let (may_send, send_turns) = mpsc::channel::<()>();
                let (may_receive, receive_turns) = mpsc::channel::<()>();
                let sender = thread::spawn(move || {
                    let mut posted = 0;
                    while posted < MESSAGES && send_turns.recv().is_ok() {
                        let mut batch = sends.start_post_send();
                        batch.construct_wr(posted, SIGNALED).setup_send_imm(posted as u32).give(from);
                        batch.post().expect("there is room");
                        posted += 1;
                    }
                    (posted, sends)
                });
                let receiver = thread::spawn(move || {
                    let mut posted = 0;
                    while posted < MESSAGES && receive_turns.recv().is_ok() {
                        let mut batch = receives.start_post_recv();
                        batch.construct_wr(posted).give(into);
                        batch.post().expect("there is room");
                        posted += 1;
                    }
                    (posted, receives)
                });
                for _ in 0..REQUESTS {
                    may_send.send(()).expect("the sender runs");
                    may_receive.send(()).expect("the receiver runs");
                }
                ends.push((cq, may_send, may_receive, sender, receiver, memory, [0_u64; 2]));
            }
            let started = Instant::now();
            while ends.iter().any(|end| end.6 != [MESSAGES; 2]) {
                assert!(started.elapsed() < LONG, "{:?}", ends.iter().map(|end| end.6).collect::<Vec<_>>());
                for (cq, may_send, may_receive, _, _, _, [sent, received]) in &mut ends {
                    let mut poller = match cq.start_poll() {
                        Ok(poller) => poller,
                        Err(error) => {
                            assert_eq!(error, PollCompletionQueueError::CompletionQueueEmpty);
                            thread::yield_now();
                            continue;
                        }
                    };
                    while let Some(completion) = poller.next().expect("a working queue") {
                        assert_eq!(completion.status(), Status::Success);
                        let is_receive = completion.opcode() == Operation::Receive;
                        let (count, turns) =
                            if is_receive { (&mut *received, &*may_receive) } else { (&mut *sent, &*may_send) };
                        assert_eq!(completion.wr_id(), *count, "in order");
                        if is_receive {
                            assert_eq!(u64::from(completion.imm_data()), *count);
                        }
                        *count += 1;
                        // A thread exits after its last post.
                        let _ = turns.send(());
                    }
                }
            }
            for (_, may_send, may_receive, sender, receiver, _, _) in ends {
                drop((may_send, may_receive));
                assert_eq!(sender.join().expect("the sender").0, MESSAGES);
                assert_eq!(receiver.join().expect("the receiver").0, MESSAGES);
            }
        }
    };
}

posts_from_threads!(a_basic_pair_is_posted_to_from_two_threads, BasicQueuePair);
posts_from_threads!(an_extended_pair_is_posted_to_from_two_threads, ExtendedQueuePair);
posts_from_threads!(a_generic_pair_is_posted_to_from_two_threads, GenericQueuePair);
