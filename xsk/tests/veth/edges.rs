//! Tests limits: packets at the edges of frames, budgets of a call, and sockets that are opened repeatedly.

use std::time::{Duration, Instant};

use xsk::{AttachMode, Error, Packet, Umem, UmemBuilder};

use crate::link::{End, frame, frames, transfer};
use crate::net::Net;

fn umem(frame_size: u32, is_unaligned: bool) -> UmemBuilder {
    let mut builder = Umem::builder(256);
    builder.frame_size(frame_size).unaligned(is_unaligned);
    builder
}

/// A packet with this content at a position of a frame.
fn at(end: &mut End, offset: usize, bytes: &[u8]) -> Packet {
    let mut packet = end.pool.take().unwrap().packet(offset, bytes.len()).unwrap();
    packet.bytes_mut().copy_from_slice(bytes);
    packet
}

/// Sends packets and pieces that begin and end at the edges of frames. The kernel must accept all of them, in every
/// frame. The crate rejects packets that end outside their frame.
fn edges_are_sent(size: usize, is_unaligned: bool) {
    let Some(net) = Net::with("numrxqueues 1 numtxqueues 1", 9000) else { return };
    let open = |interface| End::multi_buffer(interface, umem(size as u32, is_unaligned));
    let Some((mut from, mut to)) = open(&net.a).zip(open(&net.b)) else { return };
    let (_program, _attached) = to.steer(&net.b, AttachMode::Native, true);
    let mut whole = Vec::new();
    for (number, (offset, len)) in [(0, 60), (0, size), (size - 60, 60), (1, size - 1)].into_iter().enumerate() {
        let bytes = frame(number as u32, len);
        let packet = at(&mut from, offset, &bytes);
        from.queue.tx.batch(1).send(packet).unwrap();
        from.flush();
        assert!(to.receive(1) == [bytes.clone()], "{size} bytes, {len} at {offset}");
        whole.push(bytes);
    }
    // Sends such bytes as the pieces of one packet.
    let mut pieces: Vec<_> = [(0, &whole[1]), (size - 60, &whole[2])]
        .into_iter()
        .map(|(offset, bytes)| at(&mut from, offset, bytes))
        .collect();
    assert!(from.queue.tx.batch(18).send_pieces(&mut pieces));
    from.flush();
    assert!(to.receive(1) == [[&whole[1][..], &whole[2][..]].concat()]);
    for (offset, len) in [(size, 60), (size - 59, 60), (1, size), (0, size + 1), (0, 13), (0, 0)] {
        let frame = from.pool.take().unwrap().packet(offset, len).unwrap_err();
        from.pool.put(frame).unwrap();
    }
    let statistics = from.queue.tx.socket().statistics().unwrap();
    assert_eq!((statistics.tx_invalid_descs, statistics.rx_invalid_descs), (0, 0));
    from.collect();
    assert_eq!(from.pool.len() + from.queue.fill.pending(), 256);
}

#[test]
fn packets_at_the_edges_of_aligned_frames_are_sent() {
    edges_are_sent(4096, false);
    edges_are_sent(2048, false);
}

#[test]
fn packets_at_the_edges_of_unaligned_frames_are_sent() {
    edges_are_sent(4096, true);
    // The kernel's own test uses 4001. A frame starts at a multiple of 8, and 4008 is the nearest one above.
    edges_are_sent(4008, true);
}

#[test]
fn packets_arrive_after_each_reopening() {
    let Some(net) = Net::new() else { return };
    for _ in 0..10 {
        let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
        let (_program, _attached) = to.steer_again(&net.b);
        transfer(&mut from, &mut to, &frames(32, 64));
    }
}

#[test]
fn one_call_sends_its_budget() {
    let Some(net) = Net::new() else { return };
    let mut end = End::new(&net.a);
    let packets: Vec<_> = (0..100).map(|number| end.packet(&frame(number, 60))).collect();
    let mut batch = end.queue.tx.batch(100);
    packets.into_iter().for_each(|packet| batch.send(packet).unwrap());
    drop(batch);
    let budget = end.queue.tx.socket().granted().tx_budget as usize;
    if budget == 32 {
        // Before Linux 6.17, the kernel publishes the entries that it has taken only with the next call.
        return end.flush();
    }
    let mut left: usize = 100;
    while left != 0 {
        left = left.saturating_sub(budget);
        assert_eq!(end.queue.tx.wake().unwrap(), left == 0);
        assert_eq!(end.queue.tx.pending(), left);
    }
}

/// Locked memory of this process in KiB.
fn locked() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmPin")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Descriptors of AF_XDP sockets and of BPF objects.
fn descriptors() -> usize {
    let names = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    names
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter(|name| name.to_string_lossy().contains("bpf"))
        .count()
}

/// Opens 1,000 sockets on one queue, one after the other, with their program. Ignored by default, because it takes long
/// and counts resources of the process: run it alone.
#[test]
#[ignore = "a minute, and alone"]
fn thousand_sockets_leave_nothing() {
    let Some(net) = Net::new() else { return };
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = (fds(), descriptors(), locked());
    for round in 0..1000 {
        let mut to = End::new(&net.b);
        let _steered = to.steer_again(&net.b);
        if round % 100 == 0 {
            let mut from = End::new(&net.a);
            transfer(&mut from, &mut to, &frames(8, 64));
        }
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    while (fds(), descriptors(), locked()) != before {
        assert!(Instant::now() < deadline, "left: {:?}, before: {before:?}", (fds(), descriptors(), locked()));
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Sends 10⁸ packets from one socket to another. At each step, free + fill + received + sent + completed frames = all
/// frames.
#[test]
#[ignore = "minutes"]
fn frame_balance_is_exact_after_a_hundred_million_packets() {
    let count: u64 = std::env::var("XSK_TEST_PACKETS").map_or(100_000_000, |text| text.parse().unwrap());
    let Some(net) = Net::new() else { return };
    let (mut from, mut to) = (End::new(&net.a), End::new(&net.b));
    let _steered = to.steer(&net.b, AttachMode::Native, false);
    let mut packets: Vec<Packet> = (0..64).map(|number| from.packet(&frame(number, 60))).collect();
    let mut batch = from.queue.tx.batch(64);
    packets.drain(..).for_each(|packet| batch.send(packet).unwrap());
    drop(batch);
    let (mut sent, mut received) = (64_u64, 0);
    let step = |from: &mut End, to: &mut End, sent: &mut u64, received: &mut u64| -> Result<(), Error> {
        from.queue.tx.wake()?;
        *received += to.queue.rx.batch(64).recycle(&mut to.queue.fill, |packet| assert_eq!(packet.len(), 60)) as u64;
        let max = (count - *sent).min(64) as usize;
        *sent += from.queue.completion.batch(max).send(&mut from.queue.tx, |_| (0, 60)) as u64;
        Ok(())
    };
    while sent < count {
        step(&mut from, &mut to, &mut sent, &mut received).unwrap();
    }
    from.flush();
    while to.queue.rx.wait(Duration::from_millis(100)).unwrap() {
        step(&mut from, &mut to, &mut sent, &mut received).unwrap();
    }
    let statistics = to.queue.rx.socket().statistics().unwrap();
    assert_eq!(received + statistics.rx_dropped + statistics.rx_ring_full, count, "{statistics:?}");
    for end in [&mut from, &mut to] {
        end.collect();
        assert_eq!(end.pool.len() + end.queue.fill.pending(), end.umem.frames() as usize);
    }
}
