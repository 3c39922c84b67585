//! The loops by xsk.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use anyhow::{Result, bail};
use xsk::{Interface, Packet, Pool, Queue, Socket, SocketMap, Umem};

use crate::{BATCH, Clock, FRAMES, HEADER, IDLE, Job, LEN, RING};

pub fn run(job: &Job) -> Result<(u64, u64)> {
    let interface = Interface::by_name(&job.interface)?;
    let (umem, mut pool) = Umem::builder(FRAMES).build()?;
    let mut builder = Socket::builder(&interface, 0);
    builder.ring_size(RING);
    let mut packets = 0;
    let mut clock;
    match job.task.as_str() {
        "rxdrop" => {
            let mut queue = builder.open_rx(&umem)?;
            queue.fill.refill(&mut pool);
            map(job).insert(queue.rx.socket())?;
            clock = Clock::start(job);
            let mut bytes = 0;
            while clock.runs() {
                let count = queue.rx.batch(BATCH).recycle(&mut queue.fill, |packet| bytes += packet.len());
                packets += count;
                if count == 0 {
                    queue.rx.wait(IDLE)?;
                }
            }
            std::hint::black_box(bytes);
        }
        "txpush" => {
            prepare(&mut pool);
            let mut queue = builder.open_tx(&umem)?;
            clock = Clock::start(job);
            while clock.runs() {
                let moved = queue.completion.batch(BATCH).send(&mut queue.tx, |_| (0, LEN));
                let mut tx = queue.tx.batch(BATCH - moved);
                packets += moved;
                while tx.space() != 0 {
                    let Some(Ok(packet)) = pool.take().map(|frame| frame.packet(0, LEN)) else { break };
                    tx.send(packet).ok();
                    packets += 1;
                }
                drop(tx);
                queue.tx.wake()?;
            }
        }
        "l2fwd" => {
            let Queue { mut rx, mut tx, mut fill, mut completion } = builder.open(&umem)?;
            fill.refill(&mut pool);
            map(job).insert(rx.socket())?;
            clock = Clock::start(job);
            while clock.runs() {
                let count = rx.batch(BATCH).forward(&mut tx, swap);
                packets += count;
                if tx.pending() != 0 {
                    tx.wake()?;
                }
                completion.batch(BATCH).refill(&mut fill);
                if count == 0 {
                    rx.wait(IDLE)?;
                }
            }
        }
        other => bail!("no task {other}"),
    }
    Ok((packets as u64, clock.cpu()))
}

fn map(job: &Job) -> SocketMap {
    // SAFETY: the descriptor is inherited for this process.
    unsafe { OwnedFd::from_raw_fd(job.map) }.into()
}

/// Adds any socket to the map.
pub fn insert(job: &Job, socket: &impl AsFd) -> Result<()> {
    Ok(map(job).insert_at(0, socket.as_fd())?)
}

fn prepare(pool: &mut Pool) {
    let frames: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    for mut frame in frames {
        frame.bytes_mut()[..HEADER.len()].copy_from_slice(&HEADER);
        pool.put(frame).ok();
    }
}

fn swap(packet: &mut Packet) {
    let (destination, rest) = packet.bytes_mut().split_at_mut(6);
    destination.swap_with_slice(&mut rest[..6]);
}
