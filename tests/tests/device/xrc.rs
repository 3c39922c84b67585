//! XRC: a connection whose messages each name their shared receive queue.
#![expect(clippy::print_stdout, reason = "a test, which reports where it did not run")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionRecord, GenericCompletionQueue, PollCompletions, WorkCompletionOperationType as Operation,
    WorkCompletionStatus as Status,
};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{
    GenericQueuePair, PostSendGuard, QueuePair, QueuePairAttribute, QueuePairState as State, Xrc,
};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::ibverbs::xrc_domain::{XrcDomain, XrcDomainFlags, XrcReceiveQueuePair};
use sideway_tests::device;
use sideway_tests::loopback::{Give, Memory, PSN, QueueKind, Range, init, ready_to_receive, ready_to_send, to};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;
const PEER: AccessFlags = AccessFlags::LocalWrite.union(AccessFlags::RemoteWrite).union(AccessFlags::RemoteRead);

/// A sender, and a receiver with two shared receive queues.
struct World {
    // Fields are dropped in this order, so nothing is posted or received when the memory is freed.
    sender: GenericQueuePair<Xrc>,
    receiver: XrcReceiveQueuePair,
    queues: [(SharedReceiveQueue, GenericCompletionQueue); 2],
    sent: GenericCompletionQueue,
    memory: Memory,
    xrcd: Arc<XrcDomain>,
    pd: Arc<ProtectionDomain>,
}

/// A new XRC domain, unless the device has none.
fn domain(context: &Arc<DeviceContext>) -> Option<Arc<XrcDomain>> {
    match context.open_xrcd(None, XrcDomainFlags::Create) {
        Ok(domain) => Some(domain),
        Err(error) => {
            assert!(!device::is_soft_nic(context), "{error}");
            assert!([libc::EOPNOTSUPP, libc::ENOSYS].contains(&error.errno().raw()), "{error}");
            println!("DID NOT RUN: {error}");
            None
        }
    }
}

impl World {
    fn new(queue: QueueKind) -> Option<Self> {
        let context = device::open();
        let xrcd = domain(&context)?;
        let pd = context.alloc_pd().expect("a domain");
        let sent = queue.build(&context.create_cq_builder());
        let queues = [1, 2].map(|number| {
            let cq = queue.build(context.create_cq_builder().setup_cq_context(number));
            let mut builder = pd.create_srq_builder();
            builder.setup_max_wr(8).setup_max_sge(2).setup_xrc(&xrcd, &cq);
            (builder.build_ex().expect("a shared receive queue"), cq)
        });
        let mut builder = pd.create_xrc_send_qp_builder();
        builder.setup_send_cq(&sent).setup_max_inline_data(64);
        let sender = builder.build_generic().expect("the sending end");
        let receiver = xrcd.create_recv_qp().expect("the receiving end");
        let memory = Memory::new(&pd, 8192, PEER);
        let world = Self { sender, receiver, queues, sent, memory, xrcd, pd };
        world.connect(&context);
        Some(world)
    }

    /// Each end has the attributes of its half of a connection.
    fn connect(&self, context: &DeviceContext) {
        let way = |number, psn| {
            let complete = ready_to_receive(context, number, psn);
            let mut way = to(State::ReadyToReceive);
            way.setup_address_vector(&complete.address_vector()).setup_path_mtu(complete.path_mtu());
            way.setup_dest_qp_num(number).setup_rq_psn(psn);
            way
        };
        let answering: &mut QueuePairAttribute = &mut way(self.sender.qp_number(), PSN[0]);
        answering.setup_max_dest_read_atomic(4).setup_min_rnr_timer(1);
        let mut answers = to(State::ReadyToSend);
        answers.setup_sq_psn(PSN[1]).setup_timeout(14);
        for attributes in [init(), *answering, answers] {
            self.receiver.modify(&attributes).unwrap_or_else(|error| panic!("receiver: {error}"));
        }
        for attributes in [init(), way(self.receiver.qp_number(), PSN[1]), ready_to_send(PSN[0], 7)] {
            self.sender.modify(&attributes).unwrap_or_else(|error| panic!("sender: {error}"));
        }
    }

    fn number(&self, queue: usize) -> u32 {
        self.queues[queue].0.srq_number().expect("XRC queues have numbers")
    }

    fn post_receive(&mut self, queue: usize, wr_id: u64, offset: usize) {
        let mut batch = self.queues[queue].0.start_post_recv();
        batch.construct_wr(wr_id).give(Range::of(&self.memory, offset, 100));
        batch.post().expect("there is room");
    }

    fn send(&mut self, number: u32, wr_id: u64, text: &[u8]) -> CompletionRecord {
        let mut batch = self.sender.start_post_send();
        let request = batch.construct_wr(wr_id, SIGNALED).setup_send();
        request.setup_xrc_srqn(number).setup_inline_data(text);
        batch.post().expect("a send");
        completion(&mut self.sent)
    }

    fn text(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read(offset, &mut bytes);
        bytes
    }
}

#[track_caller]
fn completion(cq: &mut GenericCompletionQueue) -> CompletionRecord {
    let started = Instant::now();
    let mut records = Vec::new();
    while records.is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "nothing completed");
        cq.poll_records(&mut records).expect("a working queue");
    }
    assert_eq!(records.len(), 1, "{records:?}");
    records.remove(0)
}

#[test]
fn each_message_goes_to_the_queue_that_it_names() {
    for kind in QueueKind::ALL {
        let Some(mut world) = World::new(kind) else { return };
        let numbers = [world.number(0), world.number(1)];
        assert_ne!(numbers[0], numbers[1]);
        let mut place = 0;
        for (wr_id, to) in (0..).zip([0, 1, 1, 0, 1, 0, 0, 1]) {
            world.post_receive(to, wr_id, place);
            let text = format!("message {wr_id} to queue {to}");
            let sent = world.send(numbers[to], 100 + wr_id, text.as_bytes());
            assert_eq!((sent.wr_id, sent.status), (100 + wr_id, Status::Success));
            assert_eq!(sent.qp_num, world.sender.qp_number());
            let received = completion(&mut world.queues[to].1);
            assert_eq!(
                (received.wr_id, received.status, received.opcode),
                (wr_id, Status::Success, Operation::Receive)
            );
            assert_eq!(received.byte_len as usize, text.len());
            assert_eq!(world.text(place, text.len()), text.as_bytes());
            place += 100;
        }
    }
}

#[test]
fn memory_of_the_queues_domain_is_written_and_read() {
    let Some(mut world) = World::new(QueueKind::Generic) else { return };
    let number = world.number(1);
    let (rkey, addr) = (world.memory.rkey(), world.memory.addr());
    let mut batch = world.sender.start_post_send();
    let request = batch.construct_wr(1, SIGNALED).setup_write(rkey, addr + 1000);
    request.setup_xrc_srqn(number).setup_inline_data(b"written");
    batch.post().expect("a write");
    assert_eq!(completion(&mut world.sent).status, Status::Success);
    assert_eq!(world.text(999, 9), b"\0written\0");
    let range = Range::of(&world.memory, 2000, 7);
    let mut batch = world.sender.start_post_send();
    batch.construct_wr(2, SIGNALED).setup_read(rkey, addr + 1000).setup_xrc_srqn(number).give(range);
    batch.post().expect("a read");
    assert_eq!(completion(&mut world.sent).status, Status::Success);
    assert_eq!(world.text(2000, 7), b"written");
}

#[test]
fn missing_shared_queue_refuses_the_message() {
    let Some(mut world) = World::new(QueueKind::Generic) else { return };
    let gone = world.number(1);
    let [kept, (srq, cq)] = world.queues;
    // The completion queue keeps the shared queue alive, because a completion may name it.
    let held = srq.close().expect_err("it is destroyed with its completion queue");
    assert_eq!((held.verb(), held.errno().raw()), ("ibv_destroy_srq", libc::EBUSY));
    drop(cq);
    let cq = QueueKind::Generic.build(&world.pd.device_context().create_cq_builder());
    let mut builder = world.pd.create_srq_builder();
    world.queues = [kept, (builder.setup_xrc(&world.xrcd, &cq).build_ex().expect("another"), cq)];
    assert_ne!(world.number(1), gone, "numbers are reused late");
    world.post_receive(0, 1, 0);
    world.post_receive(1, 2, 0);
    assert_eq!(world.send(gone, 3, b"unused").status, Status::RemoteInvalidRequestError);
    assert_eq!(world.text(0, 6), [0; 6]);
}

#[test]
fn shared_queue_of_another_domain_refuses_the_message() {
    let Some(mut world) = World::new(QueueKind::Generic) else { return };
    let Some(mut other) = World::new(QueueKind::Generic) else { return };
    other.post_receive(0, 1, 0);
    assert_eq!(world.send(other.number(0), 2, b"outsider").status, Status::RemoteInvalidRequestError);
    assert_eq!(other.text(0, 8), [0; 8]);
}

#[test]
fn receiving_queue_pair_lives_while_it_is_open() {
    let Some(mut world) = World::new(QueueKind::Generic) else { return };
    let missing = world.xrcd.open_qp(world.sender.qp_number()).expect_err("it belongs to no domain");
    let opened = match world.xrcd.open_qp(world.receiver.qp_number()) {
        Ok(opened) => opened,
        Err(error) => {
            assert!(!device::is_soft_nic(world.pd.device_context()), "{error}");
            println!("DID NOT RUN: {error}");
            return;
        }
    };
    assert!(missing.to_string().contains("this domain may have no receiving XRC queue pair"), "{missing}");
    assert_eq!(opened.qp_number(), world.receiver.qp_number());
    assert_eq!(opened.state(), State::ReadyToSend);
    std::mem::replace(&mut world.receiver, opened).close().expect("the other has it");
    world.post_receive(0, 1, 0);
    let number = world.number(0);
    assert_eq!(world.send(number, 2, b"still there").status, Status::Success);
    assert_eq!(completion(&mut world.queues[0].1).wr_id, 1);
    assert_eq!(world.text(0, 11), b"still there");
}

#[test]
fn unused_domain_is_closed() {
    let Some(world) = World::new(QueueKind::Generic) else { return };
    let World { sender, receiver, queues, sent, memory, xrcd, pd } = world;
    drop((sender, queues, sent, memory, pd));
    drop(receiver);
    Arc::into_inner(xrcd).expect("the only owner").close().expect("it has no users");
}
