//! Tests sending and receiving: the cases of the kernel's own tests that need no hardware.

use std::time::Duration;

use xsk::{AttachMode, ErrorKind, Socket, Umem, UmemBuilder, ZeroCopy};

use crate::link::{End, frame, frames, transfer};
use crate::net::Net;

fn umem(frame_size: u32) -> UmemBuilder {
    let mut builder = Umem::builder(4096);
    builder.frame_size(frame_size);
    builder
}

fn unaligned(frame_size: u32) -> UmemBuilder {
    let mut builder = umem(frame_size);
    builder.unaligned(true);
    builder
}

/// Sends the packets between two sockets with this memory, once in each mode of the program.
fn both_modes(umem: &UmemBuilder, is_multi_buffer: bool, mtu: u32, packets: &[Vec<u8>]) {
    for mode in [AttachMode::Generic, AttachMode::Native] {
        let Some(net) = Net::with("numrxqueues 1 numtxqueues 1", mtu) else { return };
        let open = |interface| End::with(interface, umem.clone(), |socket| socket.multi_buffer(is_multi_buffer));
        let (mut from, mut to) = (open(&net.a).unwrap(), open(&net.b).unwrap());
        let (_program, attached) = to.steer(&net.b, mode, is_multi_buffer);
        assert_eq!(attached.is_native(), mode == AttachMode::Native);
        transfer(&mut from, &mut to, packets);
    }
}

#[test]
fn packets_arrive_whole_and_in_order_4k() {
    both_modes(&umem(4096), false, 1500, &frames(4096, 64));
}

#[test]
fn packets_arrive_whole_and_in_order_2k() {
    both_modes(&umem(2048), false, 1500, &frames(1024, 1200));
}

#[test]
fn single_packet_arrives() {
    both_modes(&umem(4096), false, 1500, &frames(1, 60));
}

#[test]
fn packets_of_many_lengths_arrive() {
    let packets: Vec<Vec<u8>> = (0..1400).map(|number| frame(number, 14 + number as usize)).collect();
    both_modes(&umem(2048), false, 1500, &packets);
}

#[test]
fn unaligned_frames_carry_packets() {
    for size in [2048, 3000, 4008, 4096] {
        both_modes(&unaligned(size), false, 1500, &frames(512, 1400));
    }
}

#[test]
fn jumbo_packets_arrive_in_pieces() {
    let Some(net) = Net::with("numrxqueues 1 numtxqueues 1", 9000) else { return };
    for (memory, piece) in [(umem(4096), 3000), (unaligned(4008), 3500), (umem(2048), 2048)] {
        let open = |interface| End::multi_buffer(interface, memory.clone());
        let Some((mut from, mut to)) = open(&net.a).zip(open(&net.b)) else { return };
        let (_program, _attached) = to.steer(&net.b, AttachMode::Native, true);
        for number in 0..64 {
            let whole = frame(number, 9000);
            let mut pieces = whole.chunks(piece).map(|bytes| from.packet(bytes)).collect();
            assert!(from.queue.tx.batch(18).send_pieces(&mut pieces));
            from.flush();
            assert!(to.receive(1) == [whole]);
        }
    }
}

#[test]
fn piece_count_is_limited() {
    let Some(net) = Net::new() else { return };
    let Some(mut end) = End::multi_buffer(&net.a, umem(4096)) else { return };
    let mut pieces: Vec<_> = (0..19).map(|number| end.packet(&frame(number, 64))).collect();
    assert!(!end.queue.tx.batch(64).send_pieces(&mut pieces));
    assert_eq!(pieces.len(), 19);
    pieces.truncate(18);
    assert!(end.queue.tx.batch(64).send_pieces(&mut pieces));
    assert!(pieces.is_empty());
    end.flush();
    assert!(!end.queue.tx.batch(64).send_pieces(&mut pieces), "no packet without pieces");
}

#[test]
fn large_packet_without_multi_buffer_is_dropped_and_counted() {
    let Some(net) = Net::with("numrxqueues 1 numtxqueues 1", 3400) else { return };
    let mut from = End::new(&net.a);
    let mut to = End::with(&net.b, umem(2048), |socket| socket).unwrap();
    let (_program, _attached) = to.steer(&net.b, AttachMode::Generic, true);
    from.send([frame(0, 3000), frame(1, 100)]);
    assert!(to.receive(1) == [frame(1, 100)]);
    assert_eq!(to.queue.rx.socket().statistics().unwrap().rx_dropped, 1);
}

#[test]
fn headroom_lies_in_front_of_packets() {
    let Some(net) = Net::new() else { return };
    let mut from = End::new(&net.a);
    let mut memory = umem(4096);
    memory.headroom(512);
    let mut to = End::with(&net.b, memory, |socket| socket).unwrap();
    let (_program, _attached) = to.steer(&net.b, AttachMode::Native, false);
    from.send([frame(7, 100)]);
    to.queue.rx.wait(Duration::from_secs(60)).unwrap();
    let mut packet = to.queue.rx.batch(1).next().unwrap();
    assert!(packet.offset() >= 512 + 256, "{packet:?}");
    let (offset, len) = (packet.offset(), packet.len());
    assert!(packet.resize(offset - 512, len + 512));
    assert_eq!(packet.bytes()[512..], frame(7, 100));
    assert!(!packet.resize(0, 13) && !packet.resize(4090, 14) && !packet.resize(1, 4096));
    assert_eq!(packet.len(), len + 512);
}

#[test]
fn waiting_receiver_wakes_and_times_out() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    let (_program, _attached) = to.steer(&net.b, AttachMode::Native, false);
    assert!(!to.queue.rx.wait(Duration::from_millis(5)).unwrap());
    from.send([frame(0, 64)]);
    assert!(to.queue.rx.wait(Duration::from_secs(60)).unwrap());
    assert!(from.queue.tx.wait(Duration::from_secs(60)).unwrap());
}

#[test]
fn full_tx_ring_refuses_packets_and_recovers() {
    let Some(net) = Net::new() else { return };
    let mut end = End::with(&net.a, umem(2048), |socket| socket.ring_size(64)).unwrap();
    let packets: Vec<_> = (0..65).map(|number| end.packet(&frame(number, 64))).collect();
    let mut batch = end.queue.tx.batch(100);
    assert_eq!(batch.space(), 64);
    let refused: Vec<_> = packets.into_iter().filter_map(|packet| batch.send(packet).err()).collect();
    assert_eq!((refused.len(), batch.space()), (1, 0));
    assert_eq!(refused[0].bytes(), frame(64, 64));
    drop(batch);
    end.flush();
    assert_eq!(end.queue.completion.collect(&mut end.pool) + end.queue.tx.pending(), 0);
    assert_eq!(end.queue.tx.batch(100).space(), 64);
}

#[test]
fn full_rx_ring_is_counted() {
    let Some(net) = Net::new() else { return };
    let mut from = End::new(&net.a);
    // The fill ring has as many frames as the RX ring has entries, so that both are exhausted.
    let mut to = End::with(&net.b, umem(2048), |socket| socket.ring_size(32)).unwrap();
    let (_program, _attached) = to.steer(&net.b, AttachMode::Native, false);
    from.send(frames(32, 64));
    assert!(to.queue.rx.wait(Duration::from_secs(60)).unwrap());
    to.queue.fill.refill(&mut to.pool);
    from.send(frames(32, 64));
    let statistics = to.queue.rx.socket().statistics().unwrap();
    assert_eq!(statistics.rx_ring_full, 32, "{statistics:?}");
    assert!(to.receive(32) == frames(32, 64));
    assert_eq!(statistics.rx_invalid_descs + statistics.tx_invalid_descs, 0);
}

#[test]
fn empty_fill_ring_is_counted() {
    let Some(net) = Net::new() else { return };
    let mut from = End::new(&net.a);
    let (umem, _pool) = umem(2048).build().unwrap();
    let queue = Socket::builder(&net.b, 0).open(&umem).unwrap();
    let program = xsk::Program::load(xsk::Filter::All).unwrap();
    program.map().insert(queue.rx.socket()).unwrap();
    let _attached = program.attach(&net.b, AttachMode::Native).unwrap();
    from.send(frames(10, 64));
    let statistics = queue.rx.socket().statistics().unwrap();
    assert!(statistics.rx_fill_ring_empty_descs >= 10, "{statistics:?}");
    assert_eq!(queue.rx.available(), 0);
}

#[test]
fn batch_larger_than_the_budget_is_sent_in_full() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    let (_program, _attached) = to.steer(&net.b, AttachMode::Native, false);
    let packets = frames(1000, 64);
    from.send_batch(&packets);
    assert!(to.receive(1000) == packets);
    let granted = from.queue.tx.socket().granted();
    assert!(granted.tx_budget == 32 || granted.tx_budget == 2048, "{granted:?}");
}

#[test]
fn packets_travel_both_ways() {
    let Some(net) = Net::new() else { return };
    let (mut a, mut b) = (End::new(&net.a), End::new(&net.b));
    let (_one, _two) = (a.steer(&net.a, AttachMode::Native, false), b.steer(&net.b, AttachMode::Native, false));
    for _ in 0..20 {
        transfer(&mut a, &mut b, &frames(32, 200));
        transfer(&mut b, &mut a, &frames(32, 300));
    }
}

#[test]
fn packet_is_forwarded_without_a_copy() {
    let Some(net) = Net::new() else { return };
    let (mut from, mut forwarder) = (End::new(&net.a), End::new(&net.b));
    let _steered = (forwarder.steer(&net.b, AttachMode::Native, false), from.steer(&net.a, AttachMode::Native, false));
    from.send(frames(32, 90));
    forwarder.queue.rx.wait(Duration::from_secs(60)).unwrap();
    let mut count = 0;
    while count < 32 {
        let mut tx = forwarder.queue.tx.batch(64);
        for packet in forwarder.queue.rx.batch(64) {
            tx.send(packet).unwrap();
            count += 1;
        }
    }
    forwarder.flush();
    assert!(from.receive(32) == frames(32, 90));
}

#[test]
fn statistics_and_grants_are_those_of_copy_mode() {
    let Some(net) = Net::new() else { return };
    let end = End::new(&net.a);
    let socket = end.queue.rx.socket();
    assert!(!socket.granted().zero_copy && socket.granted().need_wakeup);
    assert_eq!(socket.statistics().unwrap(), xsk::Statistics::default());
    assert!(!end.queue.fill.needs_wakeup(), "copy mode never requests it");
}

#[test]
fn required_zero_copy_fails_on_veth() {
    let Some(net) = Net::new() else { return };
    let error = End::with(&net.a, umem(4096), |socket| socket.zero_copy(ZeroCopy::Required)).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NoZeroCopy, "{error}");
    assert!(End::with(&net.a, umem(4096), |socket| socket.zero_copy(ZeroCopy::Refused)).is_ok());
}

#[test]
fn huge_pages_work_or_report_their_limit() {
    let Some(net) = Net::new() else { return };
    let mut memory = umem(4096);
    memory.huge_pages(true);
    match memory.build() {
        Ok((umem, _pool)) => drop(Socket::builder(&net.a, 0).open(&umem).unwrap()),
        Err(error) => assert!(error.to_string().contains("nr_hugepages"), "{error}"),
    }
}

#[test]
fn busy_polling_delivers_packets() {
    let Some(net) = Net::new() else { return };
    let mut from = End::new(&net.a);
    let mut to = End::with(&net.b, umem(4096), |socket| socket.busy_poll(xsk::BusyPoll::default())).unwrap();
    let (_program, _attached) = to.steer(&net.b, AttachMode::Native, false);
    from.send([frame(0, 64)]);
    to.queue.rx.busy_poll().unwrap();
    assert!(to.receive(1) == [frame(0, 64)]);
}
