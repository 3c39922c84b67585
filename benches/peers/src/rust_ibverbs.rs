//! The loops of rust-ibverbs, which posts sends, one at a time.

use anyhow::{Context, Result, bail, ensure};
use ibverbs::{CompletionQueue, MemoryRegion, QueuePair, ibv_wc};

pub(crate) fn run(task: &str, rounds: u64) -> Result<u64> {
    let devices = ibverbs::devices()?;
    let context = devices.iter().next().context("no device found")?.open()?;
    let cq = context.create_cq(64, 0)?;
    let pd = context.alloc_pd()?;
    let mut builder = pd.create_qp(&cq, &cq, ibverbs::ibv_qp_type::IBV_QPT_RC);
    let prepared = builder.set_max_send_wr(32).set_gid_index(0).build()?;
    let endpoint = prepared.endpoint();
    let mut qp = prepared.handshake(endpoint)?;
    let mut memory = pd.allocate::<u8>(32)?;
    match task {
        "post1" => post(&mut qp, &cq, &mut memory, 1, rounds),
        "post32" => post(&mut qp, &cq, &mut memory, 32, rounds),
        "empty" => empty(&cq, rounds),
        _ => bail!("no loop {task}"),
    }
}

#[inline(never)]
fn post(
    qp: &mut QueuePair<'_>,
    cq: &CompletionQueue<'_>,
    memory: &mut MemoryRegion<u8>,
    batch: u64,
    rounds: u64,
) -> Result<u64> {
    let mut completions = [ibv_wc::default(); 32];
    let mut sum = 0_u64;
    for _ in 0..rounds {
        for number in 0..batch {
            // SAFETY: the device accesses no memory.
            unsafe { qp.post_send(memory, .., number)? };
        }
        let mut left = batch;
        while left > 0 {
            for completion in cq.poll(&mut completions)? {
                ensure!(completion.is_valid(), "a request failed");
                sum = sum.wrapping_add(completion.wr_id());
                left -= 1;
            }
        }
    }
    Ok(sum)
}

#[inline(never)]
fn empty(cq: &CompletionQueue<'_>, rounds: u64) -> Result<u64> {
    let mut completions = [ibv_wc::default(); 32];
    let mut sum = 0;
    for _ in 0..rounds {
        if cq.poll(&mut completions)?.is_empty() {
            sum += 1;
        }
    }
    Ok(sum)
}
