//! Shared receive queues: two queue pairs that receive from one queue, the queue's attributes, and the errors of a
//! device without XRC and tag matching.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::async_event::{AsyncEventChannel, AsyncEventElement, AsyncEventType};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::PostSendGuard;
use sideway::ibverbs::queue_pair::QueuePairBuilder;
use sideway::ibverbs::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueAttribute, SharedReceiveQueueRef};
use sideway::ibverbs::work_request::{PostErrorKind, WorkRequestFlags};
use sideway::ibverbs::xrc_domain::XrcDomainFlags;
use sideway_tests::loopback::{
    Completion, End, Give, INLINE, Kind, MEMORY, Memory, PSN, QueueKind, REQUESTS, init, ready_to_receive,
    ready_to_send,
};
use sideway_tests::requirements::may_not_run;
use sideway_tests::{device, on_all_kinds};

/// The buffer size of a receive.
const LENGTH: usize = 256;

/// The identifying number of the shared queue.
const NUMBER: usize = 77;

/// Two senders, and two receivers that share a queue.
#[derive(Debug)]
struct Shared<Q> {
    // Fields are dropped in this order, so no receive is outstanding when the memory is freed.
    senders: [End<Q>; 2],
    srq: Option<SharedReceiveQueue>,
    second: Q,
    /// The first receiver, whose completion queue and memory both receivers use.
    receiver: End<Q>,
}

impl<Q: Kind> Shared<Q> {
    /// All four connected, with a shared queue of at least N receives.
    fn new(queue: QueueKind, max_wr: u32) -> Self {
        let context = device::open();
        let pd = context.alloc_pd().unwrap_or_else(|error| panic!("{error}"));
        let mut builder = pd.create_srq_builder();
        builder.setup_max_wr(max_wr).setup_max_sge(2).setup_srq_context(NUMBER);
        let srq = builder.build().unwrap_or_else(|error| panic!("{error}"));
        let end = |wishes: &dyn Fn(&mut QueuePairBuilder)| {
            let cq = queue.build(context.create_cq_builder().setup_cqe(8 * REQUESTS));
            let qp = pair(&pd, |builder| {
                builder.setup_send_cq(&cq).setup_recv_cq(&cq);
                wishes(builder);
            });
            End { qp, cq, memory: Memory::new(&pd, MEMORY, AccessFlags::LocalWrite) }
        };
        let senders = [end(&|_| {}), end(&|_| {})];
        let receiver = end(&|builder| {
            builder.setup_srq(&srq);
        });
        let second = pair(&pd, |builder| {
            builder.setup_send_cq(&receiver.cq).setup_recv_cq(&receiver.cq).setup_srq(&srq);
        });
        connect(&context, &senders[0].qp, &receiver.qp);
        connect(&context, &senders[1].qp, &second);
        Self { senders, srq: Some(srq), second, receiver }
    }

    /// Posts receives in one batch, each with its own buffer.
    fn post(&mut self, numbers: impl Iterator<Item = u64>) -> Result<(), PostErrorKind> {
        let srq = self.srq.as_mut().unwrap_or_else(|| panic!("the queue is destroyed"));
        let mut batch = srq.start_post_recv();
        for wr_id in numbers {
            batch.construct_wr(wr_id).give(self.receiver.range(place(wr_id), LENGTH));
        }
        batch.post().map_err(|error| error.kind())
    }

    /// Sends a text from one of the senders, and polls the completions of both sides.
    fn send(&mut self, from: usize, text: &[u8]) -> Completion {
        let sender = &mut self.senders[from];
        let mut batch = sender.qp.start_post_send();
        batch.construct_wr(9, WorkRequestFlags::Signaled).setup_send_imm(from as u32).setup_inline_data(text);
        batch.post().unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
        assert_eq!(sender.success().wr_id, 9);
        let received = self.receiver.completion();
        let number = if from == 0 { self.receiver.qp.qp_number() } else { self.second.qp_number() };
        assert_eq!((received.qp_num, received.imm_data), (number, Some(from as u32)), "{received:?}");
        assert_eq!(received.byte_len, Some(text.len() as u32));
        assert_eq!(self.receiver.bytes(place(received.wr_id), text.len()), text);
        received
    }
}

/// The buffer of the receive with this number.
fn place(wr_id: u64) -> usize {
    wr_id as usize % (MEMORY / LENGTH) * LENGTH
}

fn pair<Q: Kind>(pd: &Arc<ProtectionDomain>, wishes: impl Fn(&mut QueuePairBuilder)) -> Q {
    let mut builder = pd.create_qp_builder();
    builder.setup_max_send_wr(REQUESTS).setup_max_inline_data(INLINE);
    wishes(&mut builder);
    Q::build(&builder).unwrap_or_else(|error| panic!("{}: {error}", Q::NAME))
}

fn connect<Q: Kind>(context: &DeviceContext, near: &Q, far: &Q) {
    for (here, there, sq_psn, rq_psn) in [(near, far, PSN[0], PSN[1]), (far, near, PSN[1], PSN[0])] {
        for attributes in [init(), ready_to_receive(context, there.qp_number(), rq_psn), ready_to_send(sq_psn, 7)] {
            here.modify(&attributes).unwrap_or_else(|error| panic!("{}: {error}", Q::NAME));
        }
    }
}

#[test]
fn two_queue_pairs_take_their_receives_from_one_queue() {
    on_all_kinds!(shared);
}

fn shared<Q: Kind>(queue: QueueKind) {
    let mut world = Shared::<Q>::new(queue, 8);
    let mut sent = 0;
    // More than the queue holds, so it wraps around.
    for round in 0..5 {
        let numbers = 8 * round..8 * round + 8;
        world.post(numbers.clone()).expect("the queue holds eight");
        for wr_id in numbers {
            let from = [0, 1, 1, 0, 0, 1, 0, 1][wr_id as usize % 8];
            let received = world.send(from, format!("message {wr_id} from {from}").as_bytes());
            assert_eq!(received.wr_id, wr_id, "the oldest receive, for either receiver");
            sent += 1;
        }
    }
    assert_eq!(sent, 40);
    world.receiver.silence();
}

#[test]
fn queue_lives_while_queue_pairs_use_it() {
    on_all_kinds!(without_owner);
}

fn without_owner<Q: Kind>(queue: QueueKind) {
    let mut world = Shared::<Q>::new(queue, 4);
    world.post(1..3).expect("there is room");
    let error = world.srq.take().expect("the queue").close().expect_err("it is held").to_string();
    assert!(error.contains("queue pairs or events reference the queue"), "{error}");
    assert_eq!(world.send(0, b"first").wr_id, 1);
    assert_eq!(world.send(1, b"second").wr_id, 2);
}

#[test]
fn limit_is_set_and_read_back() {
    let world = Shared::<sideway::ibverbs::queue_pair::BasicQueuePair>::new(QueueKind::Basic, 8);
    let srq = world.srq.as_ref().expect("the queue");
    let found = srq.query().expect("a queue can be queried");
    assert!(found.max_wr() >= 8 && found.max_sge() >= 2, "{found:?}");
    assert!(srq.max_wr() >= 8 && srq.max_sge() >= 2, "{srq:?}");
    assert_eq!(found.limit(), 0);
    srq.arm_limit(3).expect("a limit can be set");
    assert_eq!(srq.query().expect("a queue can be queried").limit(), 3);
    srq.arm_limit(0).expect("a limit can be taken back");
    assert_eq!(srq.query().expect("a queue can be queried").limit(), 0);
    let error = srq.arm_limit(100_000).expect_err("more than the queue holds");
    assert_eq!(error.errno().raw(), libc::EINVAL);
    assert!(error.to_string().contains("the limit 100000 exceeds the queue's"), "{error}");
}

#[test]
fn limit_raises_an_event_that_names_the_queue_each_time_it_is_armed() {
    on_all_kinds!(limit_event);
}

fn limit_event<Q: Kind>(queue: QueueKind) {
    let mut world = Shared::<Q>::new(queue, 8);
    let context = Arc::clone(world.srq.as_ref().expect("the queue").device_context());
    let other = context.alloc_pd().expect("a domain").create_srq_builder().build().expect("a queue");
    let events = context.async_events().expect("a descriptor");

    world.post(0..6).expect("there is room");
    world.srq.as_ref().expect("the queue").arm_limit(4).expect("a limit can be set");
    world.send(0, b"five are left");
    world.send(1, b"four are left, which is not below the limit");
    assert!(limit_events(&events).is_empty());
    world.send(1, b"three are left");
    let mut found = limit_events(&events);
    assert_eq!(found.len(), 1, "{found:?}");
    let named = found.remove(0);
    assert!(named.is_of(world.srq.as_ref().expect("the queue")) && !named.is_of(&other));
    assert_eq!(named.srq_context(), NUMBER);
    assert_eq!(named.query().expect("a queue can be queried").limit(), 0, "the event has disarmed it");
    world.send(0, b"two are left, and no limit is set");
    assert!(limit_events(&events).is_empty());

    // The limit is armed again through the event's queue.
    world.post(6..10).expect("there is room");
    named.arm_limit(6).expect("a limit can be set");
    world.send(0, b"five are left");
    let found = limit_events(&events);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].is_of(world.srq.as_ref().expect("the queue")));

    // The event's queue outlives its owner and the queue pairs.
    drop((found, world));
    assert_eq!(named.srq_context(), NUMBER);
    named.query().expect("a queue can be queried");
}

/// The shared queues that fell below their limit since the last call. The device raises the event before it completes
/// the receive, so there is no wait.
fn limit_events(events: &AsyncEventChannel) -> Vec<SharedReceiveQueueRef> {
    let mut found = Vec::new();
    while let Some(event) = events.try_get_async_event().expect("events") {
        if event.event_type() != AsyncEventType::SharedReceiveQueueLimitReached {
            continue;
        }
        assert_eq!(event.to_string(), format!("SRQ limit reached: SRQ with the context {NUMBER}"));
        match event.into_element() {
            AsyncEventElement::SharedReceiveQueue(queue) => found.push(queue),
            element => panic!("{element:?}"),
        }
    }
    found
}

#[test]
fn full_queue_is_an_error_and_a_resized_one_holds_more() {
    on_all_kinds!(resize);
}

fn resize<Q: Kind>(queue: QueueKind) {
    let mut world = Shared::<Q>::new(queue, 4);
    let before = u64::from(world.srq.as_ref().expect("the queue").max_wr());
    world.post(0..before).expect("as many as the device reported");
    assert_eq!(world.post(0..before + 1), Err(PostErrorKind::NotEnoughResources), "the batch exceeds the queue");
    // Some devices round up beyond the reported size.
    let mut held = before;
    while world.post(held..held + 1).is_ok() {
        held += 1;
        assert!(held < 1000, "the queue is never full");
    }
    assert_eq!(world.send(0, b"before").wr_id, 0);

    let after = 50;
    let srq = world.srq.as_mut().expect("the queue");
    if let Err(error) = srq.modify(SharedReceiveQueueAttribute::new().setup_max_wr(after).setup_limit(0)) {
        assert!(error.to_string().contains("the device cannot resize shared receive queues"), "{error}");
        return may_not_run("the device cannot resize shared receive queues");
    }
    assert!(srq.query().expect("a queue can be queried").max_wr() >= after);
    let more = u64::from(after) - (held - 1);
    world.post(held..held + more).expect("there is room now");
    // The earlier receives are still posted, and are used first.
    for wr_id in 1..held + more {
        let from = wr_id as usize % 2;
        assert_eq!(world.send(from, format!("message {wr_id}").as_bytes()).wr_id, wr_id);
    }
    world.receiver.silence();
}

#[test]
fn queue_pair_with_a_shared_queue_takes_no_receives_of_its_own() {
    on_all_kinds!(own_receive);
}

fn own_receive<Q: Kind>(queue: QueueKind) {
    let mut world = Shared::<Q>::new(queue, 4);
    let range = world.receiver.range(0, 10);
    let mut batch = world.receiver.qp.start_post_recv();
    batch.construct_wr(5).give(range);
    assert_eq!(
        batch.post().expect_err("its receives are shared").to_string(),
        "ibv_post_recv: EINVAL (Invalid argument): the queue pair has a shared receive queue; post \
         receives there; request 0 (wr_id 5); nothing of the batch was posted"
    );
    world.post(0..2).expect("there is room");
    assert_eq!(world.send(0, b"works").wr_id, 0);
}

#[test]
fn excessive_request_names_the_limit() {
    let context = device::open();
    let limits = context.query_device().expect("the limits");
    let pd = context.alloc_pd().expect("a domain");
    let mut builder = pd.create_srq_builder();
    for (build, verb) in [(0, "ibv_create_srq"), (1, "ibv_create_srq_ex")] {
        let build = |builder: &sideway::ibverbs::shared_receive_queue::SharedReceiveQueueBuilder| match build {
            0 => builder.build().map(drop),
            _ => builder.build_ex().map(drop),
        };
        let error = build(builder.setup_max_wr(limits.max_srq_wr() + 1)).expect_err("one too many").to_string();
        assert!(error.starts_with(verb), "{error}");
        assert!(error.contains(&format!("device's limit of {}", limits.max_srq_wr())), "{error}");
        builder.setup_max_wr(1);
        let error = build(builder.setup_max_sge(limits.max_srq_sge() + 1)).expect_err("one too many").to_string();
        assert!(error.contains(&format!("device's limit of {}", limits.max_srq_sge())), "{error}");
        builder.setup_max_sge(1);
        build(&builder).expect("one is possible");
    }
    let mut srq = builder.build().expect("a queue");
    let error = srq.modify(SharedReceiveQueueAttribute::new().setup_max_wr(limits.max_srq_wr() + 1));
    let error = error.expect_err("one too many").to_string();
    assert!(error.contains(&format!("device's limit of {}", limits.max_srq_wr())), "{error}");
}

#[test]
fn unsupported_feature_is_a_typed_error() {
    let context = device::open();
    if !device::is_soft_roce(&context) && !device::is_soft_nic(&context) {
        println!("DID NOT RUN: another device may have it");
        return;
    }
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq_builder().build().expect("a queue");
    let is_missing = |errno: i32| [libc::EOPNOTSUPP, libc::ENOSYS].contains(&errno);

    if device::is_soft_nic(&context) {
        let domain = context.open_xrcd(None, XrcDomainFlags::Create).expect("it has XRC");
        Arc::into_inner(domain).expect("the only owner").close().expect("it has no users");
    } else {
        let error = context.open_xrcd(None, XrcDomainFlags::Create).expect_err("no XRC");
        assert_eq!((error.verb(), is_missing(error.errno().raw())), ("ibv_open_xrcd", true), "{error}");
        assert!(error.to_string().contains("does not support XRC"), "{error}");
    }
    let error = pd.create_srq_builder().setup_tag_matching(&cq, 1, 1).build_ex().expect_err("no tag matching");
    assert_eq!((error.verb(), is_missing(error.errno().raw())), ("ibv_create_srq_ex", true), "{error}");
    assert!(error.to_string().contains("does not support tag matching"), "{error}");
    let srq = pd.create_srq_builder().build().expect("a queue");
    let error = srq.srq_number().expect_err("no numbers");
    assert_eq!((error.verb(), is_missing(error.errno().raw())), ("ibv_get_srq_num", true), "{error}");
}
