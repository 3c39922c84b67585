//! Tests frames and rings with a simulated kernel. The tests need no privileges, and also run under Miri.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::thread;

use xsk::simulation::{self, Kernel};
use xsk::{MetadataError, Pool, Queue, TxMetadata, Umem};

fn open(frames: u32, ring: u32) -> (Umem, Pool, Queue, Kernel) {
    let (umem, pool) = Umem::builder(frames).frame_size(2048).build().unwrap();
    let (queue, kernel) = simulation::queue(&umem, ring).unwrap();
    (umem, pool, queue, kernel)
}

#[test]
fn packet_passes_through_all_rings() {
    let (_umem, mut pool, mut queue, mut kernel) = open(8, 4);
    for number in 0..20_u8 {
        queue.fill.refill(&mut pool);
        assert!(kernel.deliver(&[number; 60]));
        let packet = queue.rx.batch(64).next().unwrap();
        assert_eq!(packet.bytes(), [number; 60]);
        queue.tx.batch(1).send(packet).unwrap();
        let mut sent = Vec::new();
        assert_eq!(kernel.transmit(64, |bytes| sent.push(bytes.to_vec())), 1);
        assert_eq!(sent, [[number; 60]]);
        assert_eq!(queue.completion.collect(&mut pool), 1);
    }
    assert_eq!(pool.len() + queue.fill.pending(), 8);
}

#[test]
fn bulk_calls_keep_every_frame() {
    let (_umem, mut pool, mut queue, mut kernel) = open(16, 8);
    queue.fill.refill(&mut pool);
    for round in 0..30 {
        let count = 1 + round % 7;
        assert!((0..count).all(|_| kernel.deliver(&[1; 60])));
        if round % 2 == 0 {
            assert_eq!(queue.rx.batch(64).recycle(&mut queue.fill, |packet| packet.bytes_mut()[0] = 2), count);
        } else {
            assert_eq!(queue.rx.batch(64).forward(&mut queue.tx, |packet| packet.bytes_mut()[0] = 3), count);
            assert_eq!(kernel.transmit(64, |bytes| assert_eq!(bytes[0], 3)), count);
            assert_eq!(queue.completion.batch(64).refill(&mut queue.fill), count);
        }
        assert_eq!(queue.fill.pending(), 8);
    }
    assert_eq!(pool.len(), 8);
}

#[test]
fn completed_frames_are_sent_again() {
    let (_umem, mut pool, mut queue, mut kernel) = open(4, 4);
    queue.tx.batch(1).send(pool.take().unwrap().packet_from(&[7; 60]).unwrap()).unwrap();
    for _ in 0..10 {
        assert_eq!(kernel.transmit(4, |bytes| assert_eq!(bytes, [7; 60])), 1);
        assert_eq!(queue.completion.batch(4).send(&mut queue.tx, |_| (0, 60)), 1);
    }
    // An invalid packet drops its frame, which returns to the pool.
    kernel.transmit(4, |_| {});
    assert_eq!(queue.completion.batch(4).send(&mut queue.tx, |_| (2000, 60)), 1);
    pool.collect_dropped();
    assert_eq!(pool.len(), 4);
}

#[test]
fn frame_of_another_umem_is_refused() {
    let (_a, mut pool, mut queue, mut kernel) = open(4, 4);
    let (_b, mut foreign, ..) = open(4, 4);
    let frame = foreign.take().unwrap();
    let frame = queue.fill.batch(1).put(frame).unwrap_err();
    let frame = pool.put(frame).unwrap_err();
    let packet = queue.tx.batch(1).send(frame.packet(0, 60).unwrap()).unwrap_err();
    foreign.put(packet).unwrap();
    assert_eq!(queue.fill.refill(&mut foreign), 0);
    assert!(pool.append(foreign).is_err());
    // The closure replaces the packet by one of another UMEM.
    queue.fill.refill(&mut pool);
    kernel.deliver(&[1; 60]);
    let (_c, mut other, ..) = open(4, 4);
    let mut foreign = Some(other.take().unwrap().packet(0, 60).unwrap());
    let swap = |packet: &mut xsk::Packet| foreign = Some(std::mem::replace(packet, foreign.take().unwrap()));
    assert_eq!(queue.rx.batch(1).recycle(&mut queue.fill, swap), 1);
    assert_eq!(queue.fill.pending(), 3);
    pool.put(foreign.unwrap()).unwrap();
    other.collect_dropped();
    assert_eq!((pool.len(), other.len()), (1, 4));
}

#[test]
fn frames_outlive_everything_else() {
    let (umem, mut pool, mut queue, mut kernel) = open(8, 4);
    queue.fill.refill(&mut pool);
    kernel.deliver(&[9; 60]);
    let packet = queue.rx.batch(1).next().unwrap();
    let mut frame = pool.take().unwrap();
    drop((umem, pool, queue, kernel));
    frame.bytes_mut()[0] = 1;
    assert_eq!(packet.bytes(), [9; 60]);
    let other = thread::spawn(move || drop(frame));
    drop(packet);
    other.join().unwrap();
}

#[test]
fn dropped_frames_return_from_any_thread() {
    let (_umem, mut pool, ..) = open(32, 4);
    let halves = [pool.split(16), pool.split(16)];
    let drop_all = |mut pool: Pool| {
        while let Some(frame) = pool.take() {
            drop(frame);
            if pool.is_empty() {
                break;
            }
        }
    };
    let threads = halves.map(|half| thread::spawn(move || drop_all(half)));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    pool.collect_dropped();
    let starts: BTreeSet<u64> = std::iter::from_fn(|| pool.starts_next()).collect();
    assert_eq!(starts.len(), 32);
}

/// Takes a frame, and never returns it.
trait Next {
    fn starts_next(&mut self) -> Option<u64>;
}

impl Next for Pool {
    fn starts_next(&mut self) -> Option<u64> {
        if self.is_empty() {
            return None;
        }
        let frame = self.take()?;
        let start = frame.offset();
        std::mem::forget(frame);
        Some(start)
    }
}

#[test]
fn forgotten_batches_lose_frames_and_duplicate_none() {
    let (_umem, mut pool, mut queue, mut kernel) = open(8, 8);
    queue.fill.refill(&mut pool);
    assert!((0..4).all(|number| kernel.deliver(&[number; 60])));
    let mut batch = queue.rx.batch(4);
    let first = batch.next().unwrap();
    std::mem::forget(batch);
    assert_eq!(queue.rx.batch(4).count(), 0, "the forgotten packets are not read again");
    let mut batch = queue.tx.batch(1);
    batch.send(first).unwrap();
    std::mem::forget(batch);
    assert_eq!(kernel.transmit(4, |_| {}), 0, "the forgotten packet is not published");
}

#[test]
fn invalid_packets_are_refused() {
    let (_umem, mut pool, ..) = open(4, 4);
    let mut frame = pool.take().unwrap();
    for (offset, len) in [(0, 13), (0, 2049), (2040, 14), (usize::MAX, 60), (60, usize::MAX), (0, 0)] {
        frame = frame.packet(offset, len).unwrap_err();
    }
    assert_eq!(frame.packet(2034, 14).unwrap().len(), 14);
}

#[test]
fn metadata_is_checked() {
    let (_umem, mut pool, ..) = open(4, 4);
    let mut packet = pool.take().unwrap().packet(64, 60).unwrap();
    assert_eq!(packet.set_tx_metadata(&TxMetadata::new()), Err(MetadataError::Disabled));
    let (_umem, mut pool) = Umem::builder(4).tx_metadata(true).build().unwrap();
    let mut packet = pool.take().unwrap().packet(16, 60).unwrap();
    assert_eq!(packet.set_tx_metadata(&TxMetadata::new()), Err(MetadataError::NoSpace { offset: 16 }));
    assert!(packet.resize(25, 60));
    assert_eq!(packet.set_tx_metadata(&TxMetadata::new()), Err(MetadataError::NoSpace { offset: 25 }));
    assert!(packet.resize(24, 60));
    let outside = TxMetadata::new().checksum(34, 25);
    assert_eq!(packet.set_tx_metadata(&outside), Err(MetadataError::ChecksumOutside { end: 61, len: 60 }));
    assert_eq!(packet.set_tx_metadata(&TxMetadata::new().checksum(34, 24).timestamp()), Ok(()));
}

#[test]
fn invalid_geometry_is_refused_with_a_remedy() {
    let refused = |frames: u32, size: u32, headroom: u32, unaligned: bool| {
        let mut builder = Umem::builder(frames);
        builder.frame_size(size).headroom(headroom).unaligned(unaligned).build().unwrap_err().to_string()
    };
    assert!(refused(4, 1024, 0, false).contains("choose 2048 to"));
    assert!(refused(4, 3000, 0, false).contains("unaligned(true)"));
    assert!(refused(4, 3001, 0, true).contains("multiple of 8"));
    assert!(refused(4, 2048, 1793, false).contains("smaller"));
    assert!(refused(0, 2048, 0, false).contains("at least 1"));
    assert!(refused(u32::MAX, 4096, 0, false).contains("4 GiB"));
    let (umem, _pool) = Umem::builder(4).build().unwrap();
    assert!(simulation::queue(&umem, 3).unwrap_err().to_string().contains("power of two"));
}
