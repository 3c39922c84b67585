//! Asynchronous events from the kernel, and programs that are driven by completion events only.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sideway::ibverbs::async_event::{
    AsyncEvent, AsyncEventChannel, AsyncEventElement as Element, AsyncEventType as Type,
};
use sideway::ibverbs::completion::{
    CompletionChannel, CompletionQueue, PollCompletions, WorkCompletionOperationType as Operation,
};
use sideway::ibverbs::device_context::PortState;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, GenericQueuePair, PostSendGuard, QueuePair, QueuePairAttributeMask as Mask, QueuePairState as State,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::device;
use sideway_tests::interface::Interface;
use sideway_tests::loopback::{Completion, End, Give, Loopback, QueueKind, REQUESTS, to};

const LONG: Duration = Duration::from_secs(60);

/// Waits for an event of this type; others may come before.
#[track_caller]
fn event_of(events: &AsyncEventChannel, event_type: Type) -> AsyncEvent {
    let started = Instant::now();
    loop {
        let event = events.get_async_event(Some(LONG)).unwrap_or_else(|error| panic!("{event_type:?}: {error}"));
        if event.event_type() == event_type {
            return event;
        }
        assert!(started.elapsed() < LONG, "timed out waiting for {event_type:?}");
    }
}

/// All queued events.
fn rest(events: &AsyncEventChannel) -> Vec<AsyncEvent> {
    std::iter::from_fn(|| events.try_get_async_event().unwrap_or_else(|error| panic!("{error}"))).collect()
}

/// Posts as many writes as the queue pair holds.
#[track_caller]
fn write_all(pair: &mut Loopback<BasicQueuePair>) {
    let range = pair.near.range(0, 8);
    let (rkey, addr) = pair.far.remote(0);
    let mut batch = pair.near.qp.start_post_send();
    for wr_id in 0..REQUESTS.into() {
        batch.construct_wr(wr_id, WorkRequestFlags::Signaled).setup_write(rkey, addr).give(range);
    }
    batch.post().unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn overrun_queue_is_named() {
    let context = device::open();
    if !device::is_soft_roce(&context) && !device::is_soft_nic(&context) {
        println!("DID NOT RUN: the device may hold more completions than it was asked for");
        return;
    }
    let events = context.async_events().expect("a descriptor");
    let channel = context.create_comp_channel().expect("a channel");
    let mut small = context.create_cq_builder().setup_cqe(1).setup_cq_context(77).build().expect("a queue");
    let other = context.create_cq_builder().setup_cqe(1).build().expect("a queue");
    let mut pair = Loopback::<BasicQueuePair>::with(QueueKind::Basic, Some((&context, &channel)), |builder| {
        builder.setup_send_cq(&small);
    });
    write_all(&mut pair);
    let event = event_of(&events, Type::CompletionQueueError);
    let Element::CompletionQueue(queue) = event.element() else { panic!("{event:?}") };
    assert!(queue.is_of(&small) && !queue.is_of(&other));
    assert_eq!(event.to_string(), "CQ error: CQ with the context 77");
    if device::is_soft_nic(&context) {
        // The specification and NICs stop the queue pair; soft-RoCE continues to send.
        let fatal = event_of(&events, Type::QueuePairFatal);
        let Element::QueuePair(qp) = fatal.element() else { panic!("{fatal:?}") };
        assert!(qp.is_of(&pair.near.qp));
        assert_eq!(qp.query(Mask::State).expect("a queue pair can be queried").0.state(), State::Error);
        // Earlier completions are still there; from then on the loss is an error.
        let mut records = Vec::new();
        small.poll_records(&mut records).expect("the queue had room for one");
        assert_eq!(records.iter().map(|record| record.wr_id).collect::<Vec<_>>(), [0]);
        for _ in 0..2 {
            let error = small.poll_records(&mut records).expect_err("a completion was lost");
            assert!(error.to_string().contains("overran"), "{error}");
        }
        assert_eq!(records.len(), 1);
    }

    // The event holds the queue; queued events hold nothing else.
    let (queue, weak) = (queue.clone(), Arc::downgrade(&context));
    drop((event, pair, small));
    assert_eq!(queue.cq_context(), 77);
    drop((queue, other, channel));
    assert!(rest(&events).iter().all(|event| event.event_type() != Type::CompletionQueueError));
    drop((events, context));
    assert!(weak.upgrade().is_none(), "the device is closed");
}

#[test]
fn objects_are_dropped_with_unread_events() {
    let context = device::open();
    let events = context.async_events().expect("a descriptor");
    let channel = context.create_comp_channel().expect("a channel");
    for _ in 0..10 {
        let small = context.create_cq_builder().setup_cqe(1).build().expect("a queue");
        let mut pair = Loopback::<BasicQueuePair>::with(QueueKind::Basic, Some((&context, &channel)), |builder| {
            builder.setup_send_cq(&small);
        });
        write_all(&mut pair);
        if device::is_soft_roce(&context) || device::is_soft_nic(&context) {
            // At least the first event is there.
            event_of(&events, Type::CompletionQueueError);
        }
        drop((pair, small));
    }
    assert!(rest(&events).iter().all(|event| event.event_type() != Type::CompletionQueueError));
}

#[test]
fn drained_send_queue_raises_an_event() {
    let context = device::open();
    let events = context.async_events().expect("a descriptor");
    let channel = context.create_comp_channel().expect("a channel");
    let mut pair = Loopback::<GenericQueuePair>::with(QueueKind::Basic, Some((&context, &channel)), |_| {});
    pair.far.post_receive(1, 0, 8);
    pair.near.post_send(2, 0, 8);
    assert_eq!((pair.far.success().wr_id, pair.near.success().wr_id), (1, 2));
    assert!(rest(&events).iter().all(|event| event.event_type() != Type::SendQueueDrained), "not requested");
    pair.near.qp.modify(to(State::SendQueueDrain).setup_sqd_async_notify(true)).expect("RTS to SQD");
    let event = event_of(&events, Type::SendQueueDrained);
    let Element::QueuePair(qp) = event.into_element() else { panic!("not of a queue pair") };
    assert!(qp.is_of(&pair.near.qp) && !qp.is_of(&pair.far.qp));
    assert_eq!(qp.query(Mask::State).expect("a queue pair can be queried").0.state(), State::SendQueueDrain);

    // The event's own reference makes it work again.
    qp.modify(&to(State::ReadyToSend)).expect("SQD to RTS");
    pair.works();

    // The queue pair outlives its owner, can be modified, and is destroyed with the last reference.
    let weak = Arc::downgrade(&context);
    drop((pair, channel, events, context));
    qp.modify(&to(State::Error)).expect("any state to ERROR");
    assert_eq!(qp.query(Mask::State).expect("a queue pair can be queried").0.state(), State::Error);
    assert!(weak.upgrade().is_some());
    std::thread::spawn(move || drop(qp)).join().expect("a queue pair goes on any thread");
    assert!(weak.upgrade().is_none(), "the device is closed");
}

#[test]
#[ignore = "changes an interface of the machine: cargo xtask softroce"]
fn port_changes_reach_every_context() {
    let contexts = [device::open(), device::open()];
    if !device::is_soft_roce(&contexts[0]) {
        println!("DID NOT RUN: the network interface of a real device is not taken down");
        return;
    }
    let channels = contexts.each_ref().map(|context| context.async_events().expect("a descriptor"));
    let interface = Interface::of(&contexts[0]);
    for (command, event_type, state) in [
        ("link set {} down", Type::PortError, PortState::Down),
        ("link set {} up", Type::PortActive, PortState::Active),
    ] {
        interface.ip(command);
        for events in &channels {
            let event = event_of(events, event_type);
            assert!(matches!(event.element(), Element::Port(port) if *port == u32::from(device::PORT)), "{event:?}");
            assert_eq!(event.to_string(), format!("{event_type}: port {}", device::PORT));
        }
        let port = contexts[0].query_port(device::PORT).expect("the port is there");
        assert_eq!(port.port_state(), state);
    }
    assert!(interface.comes_up());

    // An address that is added and one that is removed.
    for command in ["address add 10.71.9.9/32 dev {}", "address del 10.71.9.9/32 dev {}"] {
        channels.iter().for_each(|events| drop(rest(events)));
        interface.ip(command);
        for events in &channels {
            let event = event_of(events, Type::GidChange);
            assert!(matches!(event.element(), Element::Port(port) if *port == u32::from(device::PORT)), "{event:?}");
        }
    }
    drop(interface);
    Loopback::<GenericQueuePair>::new(QueueKind::Generic).works();
}

/// Queue pairs in pairs, each with a completion queue of its own.
const PAIRS: usize = 32;
/// Messages that each pair exchanges.
const MESSAGES: u64 = 150;
/// Requests in flight on each side.
const WINDOW: u64 = 8;

/// One of the 64 ends; those with even numbers send to the next.
struct Worker {
    end: End<GenericQueuePair>,
    sends: bool,
    posted: u64,
    completed: u64,
    events: u64,
}

impl Worker {
    fn fill(&mut self) {
        while self.posted < MESSAGES && self.posted < self.completed + WINDOW {
            if self.sends {
                self.end.post_send(self.posted, 0, 8);
            } else {
                self.end.post_receive(self.posted, 0, 8);
            }
            self.posted += 1;
        }
    }

    /// Handles an event: arms the queue again, then polls everything. Returns the number of completions.
    fn handle(&mut self) -> usize {
        self.events += 1;
        self.end.cq.req_notify(false).unwrap_or_else(|error| panic!("{error}"));
        let before = self.completed;
        while let Some(Completion { wr_id, opcode, .. }) = self.end.poll() {
            let operation = if self.sends { Operation::Send } else { Operation::Receive };
            assert_eq!((wr_id, opcode), (self.completed, Some(operation)), "completions come in order, each once");
            self.completed += 1;
        }
        self.fill();
        (self.completed - before) as usize
    }
}

/// 64 queues on one channel, with messages in flight on all of them.
struct Crowd {
    workers: Vec<Mutex<Worker>>,
    /// The worker of a completion queue.
    numbers: HashMap<usize, usize>,
    left: AtomicUsize,
    channel: Arc<CompletionChannel>,
}

impl Crowd {
    #[track_caller]
    fn new(queue: QueueKind) -> Self {
        let context = device::open();
        let channel = context.create_comp_channel().expect("a channel");
        let mut workers = Vec::new();
        for _ in 0..PAIRS {
            let Loopback { near, far, .. } = Loopback::with(queue, Some((&context, &channel)), |_| {});
            for (end, sends) in [(near, true), (far, false)] {
                workers.push(Mutex::new(Worker { end, sends, posted: 0, completed: 0, events: 0 }));
            }
        }
        let address = |worker: &Mutex<Worker>| {
            let worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
            worker.end.cq.req_notify(false).expect("the queue has a channel");
            // SAFETY: the pointer becomes a number.
            unsafe { worker.end.cq.cq() }.as_ptr().addr()
        };
        let numbers = workers.iter().map(address).zip(0..).collect();
        let crowd = Self { workers, numbers, left: AtomicUsize::new(2 * PAIRS * MESSAGES as usize), channel };
        // Posts receives first, because a message without a receive is retransmitted later.
        for sends in [false, true] {
            for worker in &crowd.workers {
                let mut worker = worker.lock().unwrap_or_else(PoisonError::into_inner);
                if worker.sends == sends {
                    worker.fill();
                }
            }
        }
        crowd
    }

    /// Serves events until everything is completed. Only queues with an event are polled, so a lost event would hang
    /// this.
    fn run(&self) {
        let mut last = Instant::now();
        while self.left.load(Ordering::Acquire) > 0 {
            // The time-out is short, so that a thread notices when others have handled the last completion.
            let event = match self.channel.get_cq_event(Some(Duration::from_millis(100))) {
                Ok(event) => event,
                Err(error) if error.errno().raw() == libc::ETIMEDOUT => {
                    let left = self.left.load(Ordering::Acquire);
                    assert!(last.elapsed() < LONG, "{left} completions have raised no event");
                    continue;
                }
                Err(error) => panic!("{error}"),
            };
            // SAFETY: the pointer becomes a number.
            let number = self.numbers[&unsafe { event.cq() }.as_ptr().addr()];
            let mut worker = self.workers[number].lock().unwrap_or_else(PoisonError::into_inner);
            assert!(event.is_of(&worker.end.cq));
            self.left.fetch_sub(worker.handle(), Ordering::AcqRel);
            last = Instant::now();
        }
    }

    fn end(self) {
        for worker in self.workers {
            let mut worker = worker.into_inner().unwrap_or_else(PoisonError::into_inner);
            assert_eq!((worker.posted, worker.completed), (MESSAGES, MESSAGES));
            assert_eq!(worker.end.poll(), None);
            assert!((1..=2 * MESSAGES).contains(&worker.events), "{} events of one queue", worker.events);
        }
        assert!(self.channel.try_get_cq_event().expect("a working channel").is_none());
    }
}

#[test]
fn no_event_of_64_queues_on_one_channel_is_lost() {
    let mut runs = 0;
    for queue in [QueueKind::Basic, QueueKind::Extended] {
        let crowd = Crowd::new(queue);
        assert_eq!(crowd.numbers.len(), 64);
        crowd.run();
        crowd.end();
        runs += 1;
    }
    assert_eq!(runs, 2);
}

#[test]
fn threads_share_the_events_of_one_channel() {
    let crowd = Crowd::new(QueueKind::Basic);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| crowd.run());
        }
    });
    crowd.end();
}
