//! Single-threaded queues: messages between queue pairs, with completions from a queue without a lock.

use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::{AddressHandleAttribute, GlobalRoutingHeader};
use sideway::ibverbs::completion::{
    CreateCompletionQueueWorkCompletionFlags as Fields, PollCompletionQueueError, PollCompletions, WorkCompletion,
    WorkCompletionStatus,
};
use sideway::ibverbs::queue_pair::teardown::Drained;
use sideway::ibverbs::queue_pair::{Connected, PostSendGuard, QueuePair, QueuePairState};
use sideway::ibverbs::single_threaded::{SingleThreadedCompletionQueue, SingleThreadedDomain, SingleThreadedQueuePair};
use sideway::ibverbs::work_request::{ScatterGatherEntry, WorkRequestFlags};
use sideway_tests::device;
use sideway_tests::loopback::Memory;
use sideway_tests::loopback::{PSN, init, ready_to_receive, ready_to_send, to};

/// A completion: the queue pair, the number of the request, and the immediate data.
type Taken = (u32, u64, u32);

/// Polls like a program that is generic over the kind of queue.
fn take(cq: &mut impl PollCompletions, count: usize) -> Vec<Taken> {
    let started = Instant::now();
    let mut taken = Vec::new();
    while taken.len() < count {
        assert!(started.elapsed() < Duration::from_secs(60), "{taken:?}");
        let polled = cq.poll_each(32, |wc| {
            assert_eq!(wc.status(), WorkCompletionStatus::Success);
            assert_eq!(wc.cvlan().expect_err("the field was not requested").field(), Fields::CustomerVlan);
            taken.push((wc.qp_num(), wc.wr_id(), wc.imm_data()));
            Ok::<_, PollCompletionQueueError>(())
        });
        polled.expect("a working queue");
    }
    taken
}

#[test]
fn single_threaded_queue_pairs_exchange_messages() {
    let context = device::open();
    let pd = context.alloc_pd().expect("a domain");
    let domain = SingleThreadedDomain::new(&pd);
    let mut send_cq = domain.create_cq_builder().setup_cqe(32).build().expect("a queue");
    let mut recv_cq = domain.create_cq_builder().setup_cqe(32).build().expect("a queue");
    let mut builder = domain.create_qp_builder();
    builder.setup_send_cq(&send_cq).setup_recv_cq(&recv_cq).setup_max_inline_data(16);
    let basic = [builder.build().expect("a queue pair"), builder.build().expect("a queue pair")];
    exchange(basic, &mut send_cq, &mut recv_cq);
    if device::has_extended_queue_pairs() {
        let extended = [builder.build_ex().expect("a queue pair"), builder.build_ex().expect("a queue pair")];
        exchange(extended, &mut send_cq, &mut recv_cq);
    }
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
        qp.close().expect("a queue pair with one owner");
    }
}

#[test]
fn single_threaded_queue_pair_is_drained() {
    let context = device::open();
    let pd = context.alloc_pd().expect("a domain");
    let domain = SingleThreadedDomain::new(&pd);
    let mut cq = domain.create_cq_builder().setup_cqe(32).build().expect("a queue");
    let mut builder = domain.create_qp_builder();
    let mut qp = builder.setup_send_cq(&cq).setup_recv_cq(&cq).build_generic().expect("a queue pair");
    qp.modify(&init()).expect("RESET to INIT");
    let mut guard = qp.start_post_recv();
    for wr_id in 0..3 {
        guard.construct_wr(wr_id).setup_no_data();
    }
    guard.post().expect("receives");
    let mut flushed = Vec::new();
    let drained = qp.drain(&mut [&mut cq], Duration::from_secs(10), |record| {
        flushed.push((record.wr_id, record.status));
    });
    assert_eq!(drained.expect("all queues were given"), Drained::Flushed);
    assert_eq!(flushed, [0, 1, 2].map(|wr_id| (wr_id, WorkCompletionStatus::WorkRequestFlushedError)));
    drop(builder);
    qp.close().expect("a queue pair with one owner");
    cq.close().expect("a queue with one owner");
}

#[test]
fn single_threaded_queue_pairs_exchange_datagrams() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    const QKEY: u32 = 0x2222_3333;
    let context = device::open();
    let pd = context.alloc_pd().expect("a domain");
    let domain = SingleThreadedDomain::new(&pd);
    let mut cq = domain.create_cq_builder().setup_cqe(32).build().expect("a queue");
    let mut builder = domain.create_ud_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(16);
    let (mut near, mut far) = (builder.build().expect("a queue pair"), builder.build_ex().expect("a queue pair"));
    let mut first = to(QueuePairState::Init);
    first.setup_pkey_index(0).setup_port(device::PORT).setup_qkey(QKEY);
    let mut last = to(QueuePairState::ReadyToSend);
    last.setup_sq_psn(0);
    for attribute in [first, to(QueuePairState::ReadyToReceive), last] {
        near.modify(&attribute).expect("a transition");
        far.modify(&attribute).expect("a transition");
    }
    let gid = device::gid(&context).expect("an Ethernet device");
    let mut way = AddressHandleAttribute::new();
    way.setup_port(device::PORT).setup_grh(&gid.gid(), 0, gid.gid_index() as u8, 64, 0);
    // The handle is in the plain domain, and works with queue pairs of the parent domain.
    let ah = pd.create_ah(&way).expect("a handle");
    let memory = Memory::new(&pd, 64, AccessFlags::LocalWrite);
    for (wr_id, sender_is_near) in [(1, true), (2, false)] {
        let entry = ScatterGatherEntry::new(memory.lkey(), memory.addr(), 64);
        let mut guard = if sender_is_near { far.start_post_recv() } else { near.start_post_recv() };
        // SAFETY: the memory is registered, has no reference to it, and the receive has completed before it is freed.
        unsafe { guard.construct_wr(wr_id).setup_sge_list(&[entry]) };
        guard.post().expect("a receive");
        let from = if sender_is_near { near.qp_number() } else { far.qp_number() };
        if sender_is_near {
            let mut guard = near.start_post_send();
            let request = guard.construct_wr(9, WorkRequestFlags::empty()).setup_send();
            request.setup_ud_addr(&ah, far.qp_number(), QKEY).setup_inline_data(b"there");
            guard.post().expect("a send");
        } else {
            let to = near.qp_number();
            let mut guard = far.start_post_send();
            let request = guard.construct_wr(9, WorkRequestFlags::empty()).setup_send();
            request.setup_ud_addr(&ah, to, QKEY).setup_inline_data(b"back!");
            guard.post().expect("a send");
        }
        let started = Instant::now();
        loop {
            assert!(started.elapsed() < Duration::from_secs(60), "nothing arrived");
            let Ok(mut poller) = cq.start_poll() else { continue };
            let wc = poller.next().expect("a working queue").expect("a completion");
            assert_eq!((wc.wr_id(), wc.source().src_qp, wc.byte_len()), (wr_id, from, 45));
            break;
        }
        let mut text = [0; 5];
        memory.read(GlobalRoutingHeader::LENGTH, &mut text);
        assert_eq!(&text, if sender_is_near { b"there" } else { b"back!" });
    }
    near.close().expect("a queue pair with one owner");
    far.close().expect("a queue pair with one owner");
}
