//! The loops by xsk.

use anyhow::{Context, Result};
use xsk::simulation::{self, Kernel};
use xsk::{Pool, Queue, Umem};

use crate::{BATCH, Task};

const BATCH_SIZE: usize = BATCH as usize;
const FRAMES: u32 = 512;
const RING: u32 = 256;
const LEN: usize = 64;

/// Runs a loop, and returns a sum that depends on all processed data.
pub(crate) fn run(task: Task, rounds: u64) -> Result<u64> {
    let (umem, mut pool) = Umem::builder(FRAMES).build()?;
    let (mut queue, mut kernel) = simulation::queue(&umem, RING)?;
    queue.fill.refill(&mut pool);
    let mut sum = 0;
    match task {
        Task::Rxdrop => {
            for _ in 0..rounds {
                receive(&mut kernel)?;
                sum += rxdrop(&mut queue);
            }
        }
        Task::Txpush => {
            prime(&mut queue, &mut pool)?;
            for _ in 0..rounds {
                kernel.transmit(BATCH_SIZE, |_| {});
                sum += txpush(&mut queue);
            }
        }
        Task::L2fwd => {
            for _ in 0..rounds {
                receive(&mut kernel)?;
                sum += l2fwd(&mut queue);
                kernel.transmit(BATCH_SIZE, |_| {});
            }
        }
    }
    Ok(sum)
}

fn receive(kernel: &mut Kernel) -> Result<()> {
    (0..BATCH).all(|_| kernel.deliver(&[0; LEN])).then_some(()).context("the kernel has no frame")
}

/// A first batch, whose frames then circulate.
fn prime(queue: &mut Queue, pool: &mut Pool) -> Result<()> {
    let mut batch = queue.tx.batch(BATCH_SIZE);
    for _ in 0..BATCH {
        let packet = pool.take().context("the pool is empty")?.packet_from(&[0; LEN]).ok().context("no packet")?;
        batch.send(packet).ok().context("the ring is full")?;
    }
    Ok(())
}

#[inline(never)]
fn rxdrop(queue: &mut Queue) -> u64 {
    let mut bytes = 0;
    queue.rx.batch(BATCH_SIZE).recycle(&mut queue.fill, |packet| bytes += packet.len() as u64);
    bytes
}

#[inline(never)]
fn txpush(queue: &mut Queue) -> u64 {
    queue.completion.batch(BATCH_SIZE).send(&mut queue.tx, |_| (0, LEN)) as u64
}

#[inline(never)]
fn l2fwd(queue: &mut Queue) -> u64 {
    let mut bytes = 0;
    queue.rx.batch(BATCH_SIZE).forward(&mut queue.tx, |packet| bytes += packet.len() as u64);
    queue.completion.batch(BATCH_SIZE).refill(&mut queue.fill);
    bytes
}
