//! The loops by xdp.

use std::ffi::CString;
use std::os::fd::BorrowedFd;

use anyhow::{Context, Result, bail};
use xdp::nic::NicIndex;
use xdp::packet::net_types::EthHdr;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{PollTimeout, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{RingConfigBuilder, Umem};

use crate::{BATCH, Clock, FRAMES, HEADER, IDLE, Job, LEN, RING};

pub fn run(job: &Job) -> Result<(u64, u64)> {
    let config = UmemCfgBuilder { frame_size: FrameSize::FourK, frame_count: FRAMES, ..Default::default() };
    let mut umem = Umem::map(config.build()?)?;
    let sizes = RingConfigBuilder {
        rx_count: if job.task == "txpush" { 0 } else { RING },
        tx_count: if job.task == "rxdrop" { 0 } else { RING },
        fill_count: RING,
        completion_count: RING,
    };
    let mut builder = XdpSocketBuilder::new()?;
    let (mut rings, flags) = builder.build_wakable_rings(&umem, sizes.build()?)?;
    let nic = NicIndex::lookup_by_name(&CString::new(job.interface.clone())?)?.context("no interface")?;
    let socket = builder.bind(nic, 0, flags)?;
    if job.task != "txpush" {
        // SAFETY: the UMEM outlives the socket.
        unsafe { rings.fill_ring.enqueue(&mut umem, RING as usize, false) }?;
        // SAFETY: the socket is open.
        crate::ours::insert(job, &unsafe { BorrowedFd::borrow_raw(socket.raw_fd()) })?;
    }
    let mut slab = HeapSlab::with_capacity(BATCH);
    let [now, idle] = [std::time::Duration::ZERO, IDLE].map(|time| PollTimeout::new(Some(time)));
    let mut packets = 0;
    let mut clock = Clock::start(job);
    match job.task.as_str() {
        "rxdrop" => {
            let mut rx = rings.rx_ring.take().context("no RX ring")?;
            while clock.runs() {
                // SAFETY: the UMEM outlives the socket, and has all its packets.
                let count = unsafe { rx.recv(&umem, &mut slab) };
                packets += count;
                if count == 0 {
                    socket.poll_read(idle)?;
                }
                while let Some(packet) = slab.pop_back() {
                    umem.free_packet(packet);
                }
                // SAFETY: the UMEM outlives the socket, and has all its packets.
                unsafe { rings.fill_ring.enqueue(&mut umem, BATCH, false) }?;
            }
        }
        "txpush" => {
            let mut tx = rings.tx_ring.take().context("no TX ring")?;
            let mut all = HeapSlab::with_capacity(FRAMES as usize);
            // SAFETY: the UMEM outlives the socket, and has all its packets.
            while let Some(mut packet) = unsafe { umem.alloc() } {
                packet.insert(0, &HEADER)?;
                all.push_front(packet);
            }
            while let Some(packet) = all.pop_back() {
                umem.free_packet(packet);
            }
            while clock.runs() {
                rings.completion_ring.dequeue(&mut umem, BATCH);
                while slab.available() != 0 {
                    // SAFETY: the UMEM outlives the socket, and has all its packets.
                    let Some(mut packet) = (unsafe { umem.alloc() }) else { break };
                    packet.adjust_tail(LEN as i32)?;
                    slab.push_front(packet);
                }
                // SAFETY: the UMEM outlives the socket, and has all its packets.
                let sent = send(unsafe { tx.send(&mut slab, true) })?;
                if sent == 0 {
                    // The crate wakes the kernel only for new packets, and the kernel handles 32 packets per call.
                    socket.poll_write(now)?;
                }
                packets += sent;
            }
        }
        "l2fwd" => {
            let (mut rx, mut tx) = rings.rx_ring.take().zip(rings.tx_ring.take()).context("no ring")?;
            let mut swapped = HeapSlab::with_capacity(BATCH);
            while clock.runs() {
                // SAFETY: the UMEM outlives the socket, and has all its packets.
                if unsafe { rx.recv(&umem, &mut slab) } == 0 {
                    socket.poll_read(idle)?;
                }
                while let Some(mut packet) = slab.pop_back() {
                    let mut header = packet.read::<EthHdr>(0)?;
                    std::mem::swap(&mut header.source, &mut header.destination);
                    packet.write(0, header)?;
                    swapped.push_front(packet);
                }
                // SAFETY: the UMEM outlives the socket, and has all its packets.
                let sent = send(unsafe { tx.send(&mut swapped, true) })?;
                if sent == 0 {
                    socket.poll_write(now)?;
                }
                packets += sent;
                rings.completion_ring.dequeue(&mut umem, BATCH);
                // SAFETY: the UMEM outlives the socket, and has all its packets.
                unsafe { rings.fill_ring.enqueue(&mut umem, BATCH, false) }?;
            }
        }
        other => bail!("no task {other}"),
    }
    Ok((packets as u64, clock.cpu()))
}

/// The crate returns an error although it has enqueued the packets.
fn send(sent: std::io::Result<usize>) -> Result<usize> {
    match sent {
        Err(error) if [libc::EAGAIN, libc::EBUSY, libc::ENOBUFS].map(Some).contains(&error.raw_os_error()) => Ok(BATCH),
        sent => Ok(sent?),
    }
}
