//! Completion queues and their events, polling by the queues' own types, and lifetimes.

use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionQueue, CreateCompletionQueueWorkCompletionFlags as Fields, ExtendedCompletionQueue,
    GenericCompletionQueue, PollCompletionQueueError, PollCompletions, WorkCompletion, WorkCompletionStatus as Status,
};
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, PostSendGuard, QueuePairAttributeMask as Mask, QueuePairState as State, QueuePairType,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::loopback::{ENTRIES, End, Give, INLINE, Kind, Loopback, PSN, QueueKind, REQUESTS, to};
use sideway_tests::{device, on_all_kinds};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;
const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(60);

/// Sends eight bytes with these flags.
#[track_caller]
fn send<Q: Kind>(end: &mut End<Q>, wr_id: u64, flags: WorkRequestFlags) {
    let range = end.range(0, 8);
    let mut batch = end.qp.start_post_send();
    batch.construct_wr(wr_id, flags).setup_send().give(range);
    batch.post().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn events_arrive_when_requested() {
    on_all_kinds!(events);
}

fn events<Q: Kind>(queue: QueueKind) {
    let context = device::open();
    let channel = context.create_comp_channel().expect("a channel");
    let mut pair = Loopback::<Q>::with(queue, Some((&context, &channel)), |_| {});
    for wr_id in 0..4 {
        pair.far.post_receive(wr_id, 0, 8);
    }
    let is_silent = || {
        let started = Instant::now();
        let error = channel.get_cq_event(Some(SHORT)).expect_err("there is no event");
        assert_eq!(error.errno().raw(), libc::ETIMEDOUT, "{error}");
        assert!(started.elapsed() >= SHORT, "{:?}", started.elapsed());
        assert!(channel.try_get_cq_event().expect("no event is no error").is_none());
    };

    // Not requested.
    send(&mut pair.near, 10, SIGNALED);
    assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (0, 10));
    is_silent();

    // An event is requested on one of the two queues that share the channel.
    pair.far.cq.req_notify(false).expect("the queue has a channel");
    is_silent();
    send(&mut pair.near, 11, SIGNALED);
    let event = channel.get_cq_event(Some(LONG)).expect("an event");
    assert!(event.is_of(&pair.far.cq) && !event.is_of(&pair.near.cq));
    assert_eq!((event.cq_context(), pair.far.cq.cq_context(), pair.near.cq.cq_context()), (2, 2, 1));
    drop(event);
    assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (1, 11));
    is_silent();

    // Only solicited ones.
    pair.far.cq.req_notify(true).expect("the queue has a channel");
    send(&mut pair.near, 12, SIGNALED);
    assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (2, 12));
    is_silent();
    send(&mut pair.near, 13, SIGNALED | WorkRequestFlags::Solicited);
    // The channel's descriptor is readable too.
    let mut poll = libc::pollfd { fd: channel.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: the call has one live pollfd.
    assert_eq!(unsafe { libc::poll(&mut poll, 1, LONG.as_millis() as i32) }, 1);
    let event = channel.try_get_cq_event().expect("an event").expect("an event");
    assert!(event.is_of(&pair.far.cq));
    assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (3, 13));

    // The event's own queue can be armed again, and an unread event does not delay the destruction of the queues.
    event.req_notify(false).expect("the queue has a channel");
    pair.near.cq.req_notify(false).expect("the queue has a channel");
    pair.far.post_receive(4, 0, 8);
    send(&mut pair.near, 14, SIGNALED);
    assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (4, 14));
    drop((event, pair));
    let rest = std::iter::from_fn(|| channel.try_get_cq_event().expect("a working channel")).count();
    assert_eq!(rest, 0, "events of destroyed queues are not returned");
}

#[test]
fn queue_without_a_channel_reports_how_to_set_one() {
    let pair = Loopback::<BasicQueuePair>::new(QueueKind::Basic);
    let error = pair.near.cq.req_notify(false).expect_err("it has no channel").to_string();
    assert!(error.contains("setup_comp_channel"), "{error}");
}

/// A completion of a queue of a concrete type: its number, its status and its length.
fn poll_basic(cq: &mut BasicCompletionQueue) -> Vec<(u64, Status, u32)> {
    let mut completions = Vec::new();
    match cq.start_poll() {
        Ok(mut poller) => {
            while let Some(completion) = poller.next().expect("a batch that is there") {
                completions.push((completion.wr_id(), completion.status(), completion.byte_len()));
            }
        }
        Err(error) => assert_eq!(error, PollCompletionQueueError::CompletionQueueEmpty),
    }
    completions
}

fn poll_extended(cq: &mut ExtendedCompletionQueue) -> Vec<(u64, Status, u32)> {
    let mut completions = Vec::new();
    match cq.start_poll() {
        Ok(mut poller) => {
            while let Some(completion) = poller.next().expect("a working queue") {
                let missing = completion.completion_timestamp().expect_err("the queue has no such field");
                assert_eq!(missing.field(), Fields::CompletionTimestamp, "the field was not requested");
                completions.push((completion.wr_id(), completion.status(), completion.byte_len()));
            }
        }
        Err(error) => assert_eq!(error, PollCompletionQueueError::CompletionQueueEmpty),
    }
    completions
}

/// Polls like a program that is generic over the kind of queue.
fn poll_any(cq: &mut impl PollCompletions, most: u32) -> Vec<(u64, Status, u32)> {
    let mut completions = Vec::new();
    let taken = cq.poll_each(most, |completion| {
        let missing = completion.completion_timestamp().expect_err("the queue has no such field");
        assert_eq!(missing.field(), Fields::CompletionTimestamp, "the field was not requested");
        completions.push((completion.wr_id(), completion.status(), completion.byte_len()));
        Ok::<_, PollCompletionQueueError>(())
    });
    assert_eq!(taken.expect("a working queue") as usize, completions.len());
    completions
}

#[test]
fn both_queue_types_give_each_completion_once() {
    let mut runs = 0;
    for queue in [QueueKind::Basic, QueueKind::Extended] {
        // More than a batch of the basic queue.
        for batch in [1, 3, 32] {
            let mut pair = Loopback::<BasicQueuePair>::new(queue);
            let mut seen = Vec::new();
            for round in 0..10 {
                for at in 0..u64::from(REQUESTS) {
                    pair.far.post_receive(round * 100 + at, 0, 8);
                }
                for at in 0..u64::from(REQUESTS) {
                    send(&mut pair.near, at, SIGNALED);
                }
                let started = Instant::now();
                let wanted = seen.len() + REQUESTS as usize;
                while seen.len() < wanted {
                    assert!(started.elapsed() < LONG, "{queue:?}: {seen:?}");
                    let found = match (&mut pair.far.cq, round % 3) {
                        (GenericCompletionQueue::Basic(cq), 0) => poll_basic(cq.setup_poll_batch(batch)),
                        (GenericCompletionQueue::Extended(cq), 0) => poll_extended(cq),
                        (GenericCompletionQueue::Basic(cq), 1) => poll_any(cq, batch),
                        (GenericCompletionQueue::Extended(cq), 1) => poll_any(cq, batch),
                        (cq, _) => poll_any(cq, batch),
                    };
                    assert!(found.len() <= batch as usize || queue == QueueKind::Extended && round % 3 == 0);
                    seen.extend(found);
                }
                for _ in 0..REQUESTS {
                    pair.near.success();
                }
            }
            let expected: Vec<_> = (0..10)
                .flat_map(|round| (0..REQUESTS.into()).map(move |at| (round * 100 + at, Status::Success, 8)))
                .collect();
            assert_eq!(seen, expected, "{queue:?}");
            runs += 1;
        }
    }
    assert_eq!(runs, 6);
}

#[test]
fn unsupported_fields_are_refused_by_name() {
    let context = device::open();
    let mut builder = context.create_cq_builder();
    builder.setup_cqe(10).setup_wc_flags(Fields::CompletionTimestamp);
    match builder.build_ex() {
        Ok(cq) => assert!(cq.wc_flags().contains(Fields::CompletionTimestamp | Fields::StandardFlags)),
        Err(error) => {
            assert!(error.to_string().contains("CompletionTimestamp"), "{error}");
            // The queue can be created without the field.
            let cq = builder.build_generic().expect("a queue without the field");
            assert!(matches!(cq, GenericCompletionQueue::Basic(_)) && cq.cqe() >= 10);
        }
    }
    let cq = context.create_cq_builder().setup_cqe(10).build_ex().expect("an extended queue");
    assert_eq!(cq.wc_flags(), Fields::StandardFlags);
    assert!(cq.cqe() >= 10);
}

#[test]
fn poller_may_be_dropped_between_completions() {
    on_all_kinds!(poll_one_by_one);
}

fn poll_one_by_one<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::new(queue);
    for wr_id in 0..u64::from(REQUESTS) {
        pair.far.post_receive(wr_id, 0, 8);
        send(&mut pair.near, wr_id, SIGNALED);
    }
    // `success` takes one completion off a poll and drops the poller.
    for wr_id in 0..u64::from(REQUESTS) {
        assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (wr_id, wr_id));
    }
    pair.near.silence();
    pair.far.silence();
    pair.far.post_receive(50, 0, 8);
    send(&mut pair.near, 51, SIGNALED);
    assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (50, 51));
}

#[test]
fn queue_pair_returns_its_objects() {
    on_all_kinds!(query);
}

fn query<Q: Kind>(queue: QueueKind) {
    let pair = Loopback::<Q>::new(queue);
    assert_eq!(pair.near.qp.qp_type(), QueuePairType::ReliableConnection);
    assert_ne!(pair.near.qp.qp_number(), pair.far.qp.qp_number());
    let mask = Mask::State
        | Mask::DestinationQueuePairNumber
        | Mask::PathMtu
        | Mask::AddressVector
        | Mask::ReceiveQueuePacketSequenceNumber
        | Mask::SendQueuePacketSequenceNumber
        | Mask::Timeout
        | Mask::RetryCount
        | Mask::Port
        | Mask::Capabilities;
    let (attribute, made) = pair.near.qp.query(mask).expect("a queue pair can be queried");
    assert_eq!(attribute.state(), State::ReadyToSend);
    assert_eq!(attribute.dest_qp_num(), pair.far.qp.qp_number());
    assert_eq!(attribute.path_mtu().to_string(), "1024");
    assert_eq!((attribute.sq_psn(), attribute.rq_psn()), (PSN[0], PSN[1]));
    assert_eq!((attribute.timeout(), attribute.retry_cnt(), attribute.port()), (14, 7, device::PORT));
    if let Some(entry) = device::gid(&pair.context) {
        let way = attribute.address_vector();
        assert!(way.is_global());
        assert_eq!((way.grh_dest_gid(), u32::from(way.grh_src_gid_index())), (entry.gid(), entry.gid_index()));
    }
    assert!(made.max_send_wr() >= REQUESTS && made.max_recv_wr() >= REQUESTS, "{made:?}");
    assert!(made.max_send_sge() >= ENTRIES && made.max_recv_sge() >= ENTRIES, "{made:?}");
    assert!(made.max_inline_data() >= INLINE, "{made:?}");
    assert!(!made.sq_sig_all());

    pair.near.qp.modify(&to(State::Error)).expect("any state to ERROR");
    let (attribute, _) = pair.near.qp.query(Mask::State).expect("a queue pair can be queried");
    assert_eq!((attribute.state(), pair.near.qp.state()), (State::Error, State::Error));
}

#[test]
fn signal_all_makes_every_send_complete() {
    on_all_kinds!(all_signaled);
}

fn all_signaled<Q: Kind>(queue: QueueKind) {
    let mut pair = Loopback::<Q>::with(queue, None, |builder| {
        builder.setup_sq_sig_all(true);
    });
    for wr_id in 0..3 {
        pair.far.post_receive(wr_id, 0, 8);
        send(&mut pair.near, wr_id, WorkRequestFlags::empty());
        assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (wr_id, wr_id));
    }
}

#[test]
fn objects_hold_their_parents() {
    on_all_kinds!(drop_in_any_order);
}

fn drop_in_any_order<Q: Kind>(queue: QueueKind) {
    let Loopback { near, far, pd, context } = Loopback::<Q>::new(queue);
    let weak = std::sync::Arc::downgrade(&context);
    // Parents are dropped first; each lives until its last user is dropped.
    drop(context);
    drop(pd);
    let End { qp, cq, memory } = near;
    drop(cq);
    drop(memory);
    assert!(weak.upgrade().is_some());
    let (attribute, _) = qp.query(Mask::State).expect("the queue pair lives on");
    assert_eq!(attribute.state(), State::ReadyToSend);
    drop(far);
    drop(qp);
    assert!(weak.upgrade().is_none(), "nothing keeps the device open any more");
}
