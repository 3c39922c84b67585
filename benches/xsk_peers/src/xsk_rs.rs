//! The loops by xsk-rs.

use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};

use anyhow::{Context, Result, bail};
use xsk_rs::config::{BindFlags, LibxdpFlags, QueueSize, SocketConfig, UmemConfig};
use xsk_rs::{Socket, Umem};

use crate::{BATCH, Clock, FRAMES, HEADER, IDLE, Job, LEN, RING};

pub fn run(job: &Job) -> Result<(u64, u64)> {
    let size = QueueSize::new(RING)?;
    let config = UmemConfig::builder().fill_queue_size(size).comp_queue_size(size).build()?;
    let (umem, mut unused) = Umem::new(config, NonZeroU32::new(FRAMES).context("no frames")?, false)?;
    let config = SocketConfig::builder()
        .rx_queue_size(size)
        .tx_queue_size(size)
        .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
        .bind_flags(BindFlags::XDP_USE_NEED_WAKEUP)
        .build();
    // SAFETY: the UMEM is new, and no other socket uses its frames.
    let (mut tx, mut rx, rings) = unsafe { Socket::new(config, &umem, &job.interface.parse()?, 0) }?;
    let (mut fill, mut completion) = rings.context("no rings")?;
    if job.task != "txpush" {
        let frames = unused.split_off(FRAMES as usize - RING as usize);
        // SAFETY: each frame is in one ring at a time, or in none.
        unsafe { fill.produce(&frames) };
        // SAFETY: the socket is open.
        crate::ours::insert(job, &unsafe { BorrowedFd::borrow_raw(rx.fd().as_raw_fd()) })?;
    }
    let mut batch = vec![unused[0]; BATCH];
    let mut packets = 0;
    let mut clock = Clock::start(job);
    match job.task.as_str() {
        "rxdrop" => {
            while clock.runs() {
                // SAFETY: each frame is in one ring at a time, or in none.
                let count = unsafe { rx.consume(&mut batch) };
                unsafe { fill.produce(&batch[..count]) };
                packets += count;
                if count == 0 {
                    rx.poll(IDLE.as_millis() as i32)?;
                }
            }
        }
        "txpush" => {
            for descriptor in &mut unused {
                // SAFETY: no ring has the frame.
                unsafe { umem.data_mut(descriptor) }.cursor().zero_out();
                std::io::Write::write_all(&mut unsafe { umem.data_mut(descriptor) }.cursor(), &packet())?;
            }
            while clock.runs() {
                // SAFETY: each frame is in one ring at a time, or in none.
                let mut count = unsafe { completion.consume(&mut batch) };
                for descriptor in &mut batch[..count] {
                    // A completed descriptor has no length.
                    // SAFETY: no ring has the frame.
                    unsafe { umem.data_mut(descriptor) }.cursor().set_pos(LEN);
                }
                while count < BATCH {
                    let Some(descriptor) = unused.pop() else { break };
                    batch[count] = descriptor;
                    count += 1;
                }
                // SAFETY: each frame is in one ring at a time, or in none.
                let sent = unsafe { tx.produce(&batch[..count]) };
                unused.extend_from_slice(&batch[sent..count]);
                packets += sent;
                if tx.needs_wakeup() {
                    tx.wakeup()?;
                }
            }
        }
        "l2fwd" => {
            let mut sent = batch.clone();
            while clock.runs() {
                // SAFETY: each frame is in one ring at a time, or in none.
                let count = unsafe { rx.consume(&mut batch) };
                for descriptor in &mut batch[..count] {
                    // SAFETY: no ring has the frame.
                    let mut data = unsafe { umem.data_mut(descriptor) };
                    let (to, from) = data.contents_mut().split_at_mut(6);
                    to.swap_with_slice(&mut from[..6]);
                }
                // The ring has space for all frames that are in use.
                // SAFETY: each frame is in one ring at a time, or in none.
                unsafe { tx.produce(&batch[..count]) };
                packets += count;
                if tx.nb_free_exact() != RING && tx.needs_wakeup() {
                    tx.wakeup()?;
                }
                // SAFETY: each frame is in one ring at a time, or in none.
                let done = unsafe { completion.consume(&mut sent) };
                unsafe { fill.produce(&sent[..done]) };
                if count == 0 {
                    rx.poll(IDLE.as_millis() as i32)?;
                }
            }
        }
        other => bail!("no task {other}"),
    }
    Ok((packets as u64, clock.cpu()))
}

fn packet() -> [u8; LEN] {
    let mut packet = [0; LEN];
    packet[..HEADER.len()].copy_from_slice(&HEADER);
    packet
}
