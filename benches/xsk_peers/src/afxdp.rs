//! The loops by afxdp. It loads libbpf's program, and does not sleep: its poll has a time-out of zero.

use afxdp::PENDING_LEN;
use afxdp::buf::Buf;
use afxdp::buf_mmap::BufMmap;
use afxdp::mmap_area::{MmapArea, MmapAreaOptions};
use afxdp::socket::{Socket, SocketOptions};
use afxdp::umem::Umem;
use anyhow::{Result, anyhow, bail};
use arraydeque::{ArrayDeque, Wrapping};

use crate::{BATCH, Clock, FRAMES, HEADER, Job, LEN, RING};

type Pending<'a> = Box<ArrayDeque<[BufMmap<'a, u8>; PENDING_LEN], Wrapping>>;

pub fn run(job: &Job) -> Result<(u64, u64)> {
    let failed = |what: &'static str| move || anyhow!("{what} failed");
    let (area, mut buffers) =
        MmapArea::new(FRAMES as usize, 4096, MmapAreaOptions { huge_tlb: false }).map_err(|_| failed("mmap")())?;
    let (umem, mut completion, mut fill) = Umem::new(area, RING, RING)?;
    let options = SocketOptions::default();
    let mut pending: Pending = Box::default();
    let mut packets = 0;
    let mut clock;
    match job.task.as_str() {
        "rxdrop" => {
            let (_socket, mut rx) = Socket::new_rx(umem, &job.interface, 0, RING, options)?;
            fill.fill(&mut buffers, RING as usize).map_err(|_| failed("fill")())?;
            clock = Clock::start(job);
            while clock.runs() {
                let count = rx.try_recv(&mut pending, BATCH, 0).map_err(|_| failed("try_recv")())?;
                packets += count;
                if count == 0 {
                    rx.wake();
                }
                buffers.extend(pending.drain(..));
                fill.fill(&mut buffers, BATCH).map_err(|_| failed("fill")())?;
            }
        }
        "txpush" => {
            let (_socket, mut tx) = Socket::new_tx(umem, &job.interface, 0, RING, options)?;
            for buffer in &mut buffers {
                buffer.get_data_mut()[..HEADER.len()].copy_from_slice(&HEADER);
            }
            clock = Clock::start(job);
            while clock.runs() {
                completion.service(&mut buffers, BATCH).map_err(|_| failed("service")())?;
                while pending.len() < BATCH {
                    let Some(mut buffer) = buffers.pop() else { break };
                    buffer.set_len(LEN as u16);
                    pending.push_back(buffer);
                }
                packets += tx.try_send(&mut pending, BATCH).map_err(|_| failed("try_send")())?;
            }
        }
        "l2fwd" => {
            let (_socket, mut rx, mut tx) = Socket::new(umem, &job.interface, 0, RING, RING, options)?;
            fill.fill(&mut buffers, RING as usize).map_err(|_| failed("fill")())?;
            clock = Clock::start(job);
            while clock.runs() {
                let count = rx.try_recv(&mut pending, BATCH, 0).map_err(|_| failed("try_recv")())?;
                if count == 0 {
                    rx.wake();
                }
                for buffer in pending.iter_mut().rev().take(count) {
                    let (to, from) = buffer.get_data_mut().split_at_mut(6);
                    to.swap_with_slice(&mut from[..6]);
                }
                packets += tx.try_send(&mut pending, BATCH).map_err(|_| failed("try_send")())?;
                completion.service(&mut buffers, BATCH).map_err(|_| failed("service")())?;
                fill.fill(&mut buffers, BATCH).map_err(|_| failed("fill")())?;
            }
        }
        other => bail!("no task {other}"),
    }
    Ok((packets as u64, clock.cpu()))
}
