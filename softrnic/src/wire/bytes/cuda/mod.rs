//! GPU memory, which softrnic accesses through the CUDA driver that the program has loaded.
//!
//! Only a program that has loaded libcuda can have device pointers, so softrnic itself neither loads nor initializes
//! libcuda. When memory is registered, the driver reports whether the address is GPU memory and to which context it
//! belongs. softrnic copies on its own stream in that context, so its copies do not wait for the program's kernels. A
//! request completes after its copies have ended. The thread that executes the request makes the copies, and this may
//! be any thread that posts requests. After the copies, the previous context is current on this thread again. CUDA does
//! not allow copies in its own callbacks, nor on a thread that captures a graph.
//!
//! Memory may come from `cuMemAlloc`, a pool, or virtual memory mappings. A region must lie within one allocation;
//! otherwise its registration fails with `EFAULT`. Managed memory and pinned host memory are handled as host memory.
//!
//! An atomic consists of several copies. It is atomic with respect to other atomics of the devices, but not with
//! respect to kernels. If memory is freed while it is registered, or if the driver fails, the request fails. Its status
//! is `IBV_WC_LOC_PROT_ERR` if the memory is the requester's, and `IBV_WC_REM_OP_ERR` if it is the responder's. A later
//! allocation at the same address is not accessed.
//!
//! A DMA buffer of GPU memory (`cuMemGetHandleForAddressRange`) cannot be mapped, so `ibv_reg_dmabuf_mr` fails.
//! Programs register the address instead.
//!
//! `rdma_cuda` declares the functions of libcuda, `card` contains the contexts and streams, and `moves` makes the copies.

mod card;
mod moves;

use rdma_cuda::Driver;

pub(crate) use self::moves::End;
pub(super) use self::moves::{atomic, move_bytes};

use self::card::Card;
use crate::sys::errno::Errno;
use crate::wire::bytes::Place;

/// A location in GPU memory: an address, the ID of its allocation, and its [`Card`]. A location is small, because each
/// segment contains one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Device {
    address: u64,
    buffer: u32,
    card: u16,
}

/// Returns the location of an address in GPU memory, or `None` if it is host memory.
///
/// # Errors
///
/// `EFAULT` if the range exceeds its allocation or the driver cannot copy it; `ENOMEM` if there is not enough memory.
pub(crate) fn locate(address: u64, length: u64) -> Result<Option<Place>, Errno> {
    let Some(driver) = Driver::of_process() else { return Ok(None) };
    let Some(pointer) = driver.query(address).ok().filter(|pointer| pointer.is_on_device()) else { return Ok(None) };
    let remaining = address.checked_sub(pointer.start).and_then(|before| pointer.size.checked_sub(before));
    if remaining.is_none_or(|remaining| remaining < length) {
        rdma_mummy_sys::log!(
            debug,
            "cannot register {length} bytes at {address:#x}: they exceed one allocation of a GPU's memory"
        );
        return Err(Errno::FAULT);
    }
    let card = Card::of(driver, &pointer)?;
    Ok(Some(Place::Device { address, buffer: pointer.buffer(), card }))
}
