//! Datagrams between two queue pairs of one device, posted through every kind of queue pair and polled from every kind of
//! completion queue.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::io::IoSlice;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{WorkCompletionOperationType as Operation, WorkCompletionStatus};
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, Datagram, ModifyQueuePairError, PostSendGuard, QueuePair, QueuePairAttributeMask as Mask,
    QueuePairState, SendOperationFlags,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::datagrams::{Completion, Datagrams, GRH, QKEY, init, ready_to_send};
use sideway_tests::loopback::{Give, Kind, QueueKind, to};
use sideway_tests::{device, on_all_kinds};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// Bytes that identify their position.
fn text(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 ^ seed).collect()
}

fn sent(wr_id: u64) -> Completion {
    Completion { wr_id, status: WorkCompletionStatus::Success, opcode: Some(Operation::Send), received: None }
}

/// `len` bytes and the header space before them, from the queue pair `from`.
fn received(wr_id: u64, len: usize, from: u32, imm_data: Option<u32>) -> Completion {
    Completion {
        wr_id,
        status: WorkCompletionStatus::Success,
        opcode: Some(Operation::Receive),
        received: Some((GRH + len, from, imm_data, true)),
    }
}

#[test]
fn datagram_arrives_after_its_header_and_names_its_sender() {
    on_all_kinds!(send, Datagram);
}

fn send<Q: Kind<Datagram>>(queue: QueueKind) {
    let mut pair = Datagrams::<Q>::new(queue);
    let data = text(1000, 1);
    pair.near.memory.write(0, &data);
    pair.far.post_receive(10, 1000, 2000);
    pair.far.post_receive(11, 4000, 2000);
    let (near, far) = (pair.near.qp.qp_number(), pair.far.qp.qp_number());
    let range = pair.near.range(0, 1000);

    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(20, SIGNALED).setup_send().setup_ud_addr(&pair.way, far, QKEY).give(range);
    batch.construct_wr(21, SIGNALED).setup_send_imm(0xdead_beef).setup_ud_addr(&pair.way, far, QKEY).give(range);
    batch.post().unwrap();

    assert_eq!(pair.far.success(), received(10, 1000, near, None));
    assert_eq!(pair.far.success(), received(11, 1000, near, Some(0xdead_beef)));
    for offset in [1000, 4000] {
        assert_eq!(pair.far.bytes(offset + GRH, 1001), [&data[..], &[0]].concat(), "the datagram was longer than sent");
    }
    assert_eq!((pair.near.success(), pair.near.success()), (sent(20), sent(21)));
    if pair.context.query_port(device::PORT).unwrap().link_layer().to_string() == "Ethernet" {
        let header = pair.far.bytes(1000, GRH);
        // The IPv4 header starts at byte 20. The checked fields are the version and length, and the protocol, UDP.
        assert_eq!((header[20], header[20 + 9]), (0x45, 17), "{header:?}");
    }
}

#[test]
fn datagrams_of_unequal_lengths_arrive_whole() {
    on_all_kinds!(lengths, Datagram);
}

fn lengths<Q: Kind<Datagram>>(queue: QueueKind) {
    let mut pair = Datagrams::<Q>::new(queue);
    let data = text(1024, 2);
    pair.near.memory.write(0, &data);
    let near = pair.near.qp.qp_number();
    for (wr_id, len) in [0, 1, 3, 4, 61, 1000, 1023, 1024].into_iter().enumerate() {
        let wr_id = wr_id as u64;
        pair.far.post_receive(wr_id, 0, GRH + len);
        pair.send(100 + wr_id, 0, len, QKEY);
        assert_eq!(pair.far.success(), received(wr_id, len, near, None));
        assert_eq!(pair.far.bytes(GRH, len), data[..len]);
        assert_eq!(pair.near.success(), sent(100 + wr_id));
    }
    // Without data, and in equal pieces, which even soft-RoCE's extended queue pairs send correctly.
    let far = pair.far.qp.qp_number();
    let pieces = [pair.near.range(0, 100), pair.near.range(500, 100), pair.near.range(900, 100)];
    pair.far.post_receive(50, 0, GRH);
    pair.far.post_receive(51, 2000, GRH + 300);
    let mut batch = pair.near.qp.start_post_send();
    batch.construct_wr(150, SIGNALED).setup_send_imm(7).setup_ud_addr(&pair.way, far, QKEY).setup_no_data();
    batch.construct_wr(151, SIGNALED).setup_send().setup_ud_addr(&pair.way, far, QKEY).give_list(&pieces);
    batch.post().unwrap();
    assert_eq!(pair.far.success(), received(50, 0, near, Some(7)));
    assert_eq!(pair.far.success(), received(51, 300, near, None));
    assert_eq!(pair.far.bytes(2000 + GRH, 300), [&data[..100], &data[500..600], &data[900..1000]].concat());
}

#[test]
fn inline_data_may_be_reused_at_once() {
    on_all_kinds!(inline, Datagram);
}

fn inline<Q: Kind<Datagram>>(queue: QueueKind) {
    let mut pair = Datagrams::<Q>::new(queue);
    let (near, far) = (pair.near.qp.qp_number(), pair.far.qp.qp_number());
    pair.far.post_receive(1, 0, 200);
    pair.far.post_receive(2, 200, 200);
    let mut batch = pair.near.qp.start_post_send();
    let mut words = *b"first";
    batch.construct_wr(3, SIGNALED).setup_send().setup_ud_addr(&pair.way, far, QKEY).setup_inline_data(&words);
    words.fill(0);
    let pieces = [IoSlice::new(b"sec"), IoSlice::new(b""), IoSlice::new(b"ond")];
    let request = batch.construct_wr(4, SIGNALED).setup_send_imm(5).setup_ud_addr(&pair.way, far, QKEY);
    request.setup_inline_data_list(&pieces);
    batch.post().unwrap();
    assert_eq!(pair.far.success(), received(1, 5, near, None));
    assert_eq!(pair.far.success(), received(2, 6, near, Some(5)));
    assert_eq!((pair.far.bytes(GRH, 5), pair.far.bytes(200 + GRH, 6)), (b"first".to_vec(), b"second".to_vec()));
    assert_eq!((pair.near.success(), pair.near.success()), (sent(3), sent(4)));
}

#[test]
fn datagram_with_a_wrong_key_is_dropped_and_the_next_arrives() {
    on_all_kinds!(keys, Datagram);
}

fn keys<Q: Kind<Datagram>>(queue: QueueKind) {
    let mut pair = Datagrams::<Q>::new(queue);
    let near = pair.near.qp.qp_number();
    pair.near.memory.write(0, b"wrong");
    pair.far.post_receive(1, 0, 100);
    pair.send(2, 0, 5, QKEY + 1);
    // The sender gets no error.
    assert_eq!(pair.near.success(), sent(2));
    pair.far.silence();
    pair.near.memory.write(0, b"right");
    pair.send(3, 0, 5, QKEY);
    assert_eq!(pair.far.success(), received(1, 5, near, None));
    assert_eq!(pair.far.bytes(GRH, 5), b"right");
    assert_eq!(pair.near.success(), sent(3));
    // With the highest bit set it selects the Q_Key of the sender's own queue pair, which is the same; soft-RoCE treats
    // it as an ordinary one.
    pair.far.post_receive(4, 0, 100);
    pair.send(5, 0, 5, 0x8000_0000);
    assert_eq!(pair.near.success(), sent(5));
    if device::is_soft_roce(&pair.context) {
        pair.far.silence();
    } else {
        assert_eq!(pair.far.success(), received(4, 5, near, None));
    }
}

#[test]
fn datagram_without_a_receive_is_dropped() {
    on_all_kinds!(no_receive, Datagram);
}

fn no_receive<Q: Kind<Datagram>>(queue: QueueKind) {
    let mut pair = Datagrams::<Q>::new(queue);
    let near = pair.near.qp.qp_number();
    pair.near.memory.write(0, b"lost.here.");
    pair.send(1, 0, 5, QKEY);
    assert_eq!(pair.near.success(), sent(1));
    pair.far.silence();
    pair.far.post_receive(2, 0, 100);
    pair.send(3, 5, 5, QKEY);
    assert_eq!(pair.far.success(), received(2, 5, near, None));
    assert_eq!(pair.far.bytes(GRH, 5), b"here.");
}

#[test]
fn datagram_longer_than_the_mtu_does_not_arrive() {
    on_all_kinds!(too_long, Datagram);
}

fn too_long<Q: Kind<Datagram>>(queue: QueueKind) {
    let mut pair = Datagrams::<Q>::new(queue);
    let mtu = pair.context.query_port(device::PORT).unwrap().active_mtu().bytes().unwrap() as usize;
    let near = pair.near.qp.qp_number();
    pair.far.post_receive(1, 0, 20_000);
    pair.send(2, 0, mtu + 1, QKEY);
    let completion = pair.near.completion();
    assert_eq!(completion.wr_id, 2);
    if device::is_soft_roce(&pair.context) {
        // The device sends nothing and reports success, as the specification allows (C10-93.1.1).
        assert_eq!(completion, sent(2));
        pair.far.silence();
        pair.send(3, 0, mtu, QKEY);
        assert_eq!(pair.far.success(), received(1, mtu, near, None));
    } else {
        assert_eq!(completion.status, WorkCompletionStatus::LocalLengthError);
        pair.far.silence();
    }
}

#[test]
fn operations_that_soft_roce_lacks_for_datagrams_are_refused_by_name() {
    if !device::has_extended_queue_pairs() {
        return;
    }
    let context = device::open();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq_builder().build().unwrap();
    let mut builder = pd.create_ud_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_send_ops_flags(SendOperationFlags::Write);
    let error = builder.build_ex().unwrap_err();
    assert!(error.to_string().contains("does not support"), "{error}");
    assert!(error.to_string().contains("Write"), "{error}");
}

#[test]
fn transition_error_lists_missing_and_extra_attributes() {
    on_all_kinds!(transitions, Datagram);
}

fn transitions<Q: Kind<Datagram>>(queue: QueueKind) {
    let context = device::open();
    let pd = context.alloc_pd().unwrap();
    let cq = queue.build(&context.create_cq_builder());
    let mut builder = pd.create_ud_qp_builder();
    builder.setup_send_cq(&cq).setup_recv_cq(&cq);
    let qp = Q::build(&builder).unwrap();
    let says = |attributes: &_, sentence: &str| {
        let error = qp.modify(attributes).unwrap_err();
        assert_eq!(error.to_string(), sentence, "{}", Q::NAME);
        error
    };
    let error = says(
        to(QueuePairState::Init).setup_pkey_index(0).setup_port(device::PORT),
        "ibv_modify_qp(Reset -> Init): EINVAL: needs QueueKey",
    );
    assert!(
        matches!(error, ModifyQueuePairError::InvalidAttributeMask { needed: Mask::QueueKey, invalid, .. } if invalid.is_empty()),
        "{error:?}"
    );
    says(
        init().setup_access_flags(AccessFlags::RemoteWrite),
        "ibv_modify_qp(Reset -> Init): EINVAL: must not set AccessFlags",
    );
    says(
        &to(QueuePairState::ReadyToSend),
        "ibv_modify_qp(Reset -> ReadyToSend): EINVAL: no such transition; from Reset, move to one of Reset, Init",
    );
    qp.modify(&init()).unwrap();
    says(
        to(QueuePairState::ReadyToReceive).setup_path_mtu(Mtu::Mtu1024).setup_dest_qp_num(1),
        "ibv_modify_qp(Init -> ReadyToReceive): EINVAL: must not set PathMtu, DestinationQueuePairNumber",
    );
    qp.modify(&to(QueuePairState::ReadyToReceive)).unwrap();
    says(
        to(QueuePairState::ReadyToSend).setup_timeout(14),
        "ibv_modify_qp(ReadyToReceive -> ReadyToSend): EINVAL: needs SendQueuePacketSequenceNumber; must not set Timeout",
    );
    qp.modify(&ready_to_send()).unwrap();
    assert_eq!(qp.state(), QueuePairState::ReadyToSend);
    let (attribute, _) = qp.query(Mask::QueueKey | Mask::State).unwrap();
    assert_eq!((attribute.qkey(), attribute.state()), (QKEY, QueuePairState::ReadyToSend));
    // The Q_Key may change while the queue pair runs, and RESET clears everything.
    qp.modify(to(QueuePairState::ReadyToSend).setup_qkey(QKEY + 1)).unwrap();
    assert_eq!(qp.query(Mask::QueueKey).unwrap().0.qkey(), QKEY + 1);
    qp.modify(&to(QueuePairState::Reset)).unwrap();
    qp.modify(&init()).unwrap();
}

#[test]
fn address_handle_may_be_dropped_after_a_send() {
    let mut pair = Datagrams::<BasicQueuePair<Datagram>>::new(QueueKind::Basic);
    let near = pair.near.qp.qp_number();
    let range = pair.near.range(0, 4);
    pair.near.memory.write(0, b"self");
    for wr_id in 0..20 {
        pair.near.post_receive(wr_id, 100, 100);
        let way = pair.pd.create_ah(&sideway_tests::datagrams::to_itself(&pair.context)).unwrap();
        let mut batch = pair.near.qp.start_post_send();
        batch.construct_wr(100 + wr_id, SIGNALED).setup_send().setup_ud_addr(&way, near, QKEY).give(range);
        batch.post().unwrap();
        let mut seen = [pair.near.success(), pair.near.success()];
        seen.sort_by_key(|completion| completion.wr_id);
        assert_eq!(seen, [received(wr_id, 4, near, None), sent(100 + wr_id)]);
        drop(way);
        assert_eq!(pair.near.bytes(100 + GRH, 4), b"self");
    }
}
