//! Queues of one thread: messages go from one queue pair to another, and the completions come off a queue without a lock.

use std::time::{Duration, Instant};

use sideway::ibverbs::completion::{CreateCompletionQueueWorkCompletionFlags as Fields, WorkCompletionStatus};
use sideway::ibverbs::queue_pair::{Connected, PostSendGuard, QueuePair, QueuePairState, SetInlineData};
use sideway::ibverbs::single_threaded::{SingleThreadedCompletionQueue, SingleThreadedDomain, SingleThreadedQueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::device;
use sideway_tests::loopback::{PSN, init, ready_to_receive, ready_to_send, to};

/// A completion: the queue pair, the number of the request, and the immediate data.
type Taken = (u32, u64, u32);

fn take(cq: &mut SingleThreadedCompletionQueue, count: usize) -> Vec<Taken> {
    let started = Instant::now();
    let mut taken = Vec::new();
    while taken.len() < count {
        assert!(started.elapsed() < Duration::from_secs(20), "{taken:?}");
        let Ok(mut poller) = cq.start_poll() else { continue };
        while let Some(wc) = poller.next().expect("a working queue") {
            assert_eq!(wc.status(), WorkCompletionStatus::Success);
            assert_eq!(wc.cvlan().expect_err("it was not asked for").field(), Fields::Cvlan);
            taken.push((wc.qp_num(), wc.wr_id(), wc.imm_data()));
        }
    }
    taken
}

#[test]
#[ignore = "needs an RDMA device: cargo xtask softroce"]
fn messages_between_queue_pairs_of_one_thread() {
    let context = device::open();
    let pd = context.alloc_pd().expect("a domain");
    let domain = SingleThreadedDomain::new(&pd);
    let mut send_cq = domain.create_cq_builder().setup_cqe(32).build().expect("a queue");
    let mut recv_cq = domain.create_cq_builder().setup_cqe(32).build().expect("a queue");
    let mut builder = domain.create_qp_builder();
    builder.setup_send_cq(&send_cq).setup_recv_cq(&recv_cq).setup_max_inline_data(16);
    let basic = [builder.build().expect("a queue pair"), builder.build().expect("a queue pair")];
    exchange(basic, &mut send_cq, &mut recv_cq);
    let extended = [builder.build_ex().expect("a queue pair"), builder.build_ex().expect("a queue pair")];
    exchange(extended, &mut send_cq, &mut recv_cq);
    drop(builder);
    recv_cq.close().expect("no queue pair is left");
    send_cq.close().expect("no queue pair is left");
}

fn exchange<Q: QueuePair<Service = Connected>>(
    mut pair: [SingleThreadedQueuePair<Q>; 2],
    send_cq: &mut SingleThreadedCompletionQueue,
    recv_cq: &mut SingleThreadedCompletionQueue,
) {
    let numbers = [pair[0].qp_number(), pair[1].qp_number()];
    let context = device::open();
    for (at, qp) in pair.iter().enumerate() {
        let (peer, rq_psn) = (numbers[1 - at], PSN[1 - at]);
        for attribute in [init(), ready_to_receive(&context, peer, rq_psn), ready_to_send(PSN[at], 7)] {
            qp.modify(&attribute).expect("a transition");
        }
        assert_eq!(qp.state(), QueuePairState::ReadyToSend);
    }
    let [near, far] = &mut pair;
    for wr_id in 0..8 {
        let mut guard = far.start_post_recv();
        guard.construct_wr(wr_id).setup_no_data();
        guard.post().expect("a receive");
    }
    for wr_id in 0..8_u32 {
        let mut guard = near.start_post_send();
        let request = guard.construct_wr(wr_id.into(), WorkRequestFlags::Signaled);
        request.setup_send_imm(100 + wr_id).setup_inline_data(&[]);
        guard.post().expect("a send");
    }
    let sent: Vec<u64> = take(send_cq, 8).into_iter().map(|(_, wr_id, _)| wr_id).collect();
    assert_eq!(sent, (0..8).collect::<Vec<_>>());
    let received = take(recv_cq, 8);
    let expected: Vec<Taken> = (0..8).map(|at| (numbers[1], u64::from(at), 100 + at)).collect();
    assert_eq!(received, expected);
    recv_cq.resize(64).expect("a larger queue");
    assert!(recv_cq.cqe() >= 64);
    near.modify(&to(QueuePairState::Reset)).expect("RESET is always possible");
    for qp in pair {
        qp.close().expect("a queue pair that nobody holds");
    }
}
