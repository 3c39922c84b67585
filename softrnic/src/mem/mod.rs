//! Registered memory: its regions and windows, their keys, and all functions that access this memory.
//!
//! All devices of a process share one table of keys, so a key is valid on each of these devices. A [`Segment`] is a
//! range of memory that has passed all checks. While a segment exists, its region is in use: deregistration waits until
//! the segment is dropped.
//!
//! Registration checks that host memory is mapped, but does not pin it. If a program unmaps registered memory, the next
//! request that accesses this memory ends the program with `SIGSEGV`. A NIC would instead access the pinned pages,
//! although they are no longer mapped in the process. The CUDA driver copies GPU memory (`wire::bytes::cuda`). If a
//! request accesses GPU memory that was freed, the request fails.
//!
//! As with a NIC, the device reads and writes registered memory while the program runs. If the program accesses the
//! same bytes at the same time, this is a data race.

pub(crate) mod domain;
mod mapping;
mod region;
mod resident;
mod slot;
mod table;
#[cfg(test)]
mod tests;
mod window;

use std::ptr;

use rdma_mummy_sys::ibv_access_flags;

use self::slot::{Hold, Kind};
use self::table::Table;
use crate::mem::domain::Domain;
use crate::sys::fork::PerProcess;
use crate::sys::usage::Quota;
use crate::wire::bytes::{Fault, Segment, Segments};
use crate::wire::limits::{MAX_MR, MAX_MW};

pub(crate) use self::mapping::{Buffer, Mapping};
pub(crate) use self::region::{Backing, Change, Region};
pub(crate) use self::resident::page_size;
pub(crate) use self::window::{Bind, Window};

/// Access flags, as in `enum ibv_access_flags`.
pub(crate) type Access = u32;

const LOCAL_WRITE: Access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
const WRITE: Access = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
const READ: Access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
const ATOMIC: Access = ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0;
const MW_BIND: Access = ibv_access_flags::IBV_ACCESS_MW_BIND.0;
const ZERO_BASED: Access = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
const HUGETLB: Access = ibv_access_flags::IBV_ACCESS_HUGETLB.0;
const FLUSH_GLOBAL: Access = ibv_access_flags::IBV_ACCESS_FLUSH_GLOBAL.0;
/// Registration leaves the pages of the memory unpopulated.
const ON_DEMAND: Access = ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
/// The access rights that a region can grant, and other flags. `IBV_ACCESS_FLUSH_PERSISTENT` is not among them, because writes do not
/// survive a power failure.
const REGION_ACCESS: Access =
    LOCAL_WRITE | WRITE | READ | ATOMIC | MW_BIND | ZERO_BASED | HUGETLB | FLUSH_GLOBAL | ON_DEMAND;
/// The access rights that a window can grant.
const WINDOW_ACCESS: Access = WRITE | READ | ATOMIC | ZERO_BASED | FLUSH_GLOBAL;

/// A piece of local memory, as in `struct ibv_sge`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) address: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// The regions and windows of the process.
#[derive(Debug)]
pub(crate) struct Memory {
    table: Table,
    regions: Quota,
    windows: Quota,
}

impl Memory {
    pub(crate) fn of_process() -> &'static Self {
        static MEMORY: PerProcess<Memory> = PerProcess::new(Memory::new(), Memory::boxed);
        MEMORY.get()
    }

    /// Creates an instance directly on the heap, because it may be too large for the stack.
    fn boxed() -> Box<Self> {
        static NEW: Memory = Memory::new();
        let mut instance = Box::new_uninit();
        // SAFETY: `NEW` is only used as the bytes of a new instance. The constant owns nothing, so the bytes can be
        // copied any number of times.
        unsafe {
            ptr::copy_nonoverlapping(&raw const NEW, instance.as_mut_ptr(), 1);
            instance.assume_init()
        }
    }

    const fn new() -> Self {
        Self { table: Table::new(), regions: Quota::new(MAX_MR), windows: Quota::new(MAX_MW) }
    }

    /// Checks one piece of the local memory of a request, and returns a segment that keeps this memory in use. `domain`
    /// is the domain of the QP. If `is_written` is set, the region must allow writes. If `length` is zero, the key is
    /// not checked.
    #[inline]
    pub(crate) fn local(
        &'static self,
        domain: &Domain,
        lkey: u32,
        address: u64,
        length: u64,
        is_written: bool,
    ) -> Result<Segment, Fault> {
        if length == 0 {
            return Ok(Segment::EMPTY);
        }
        let hold = self.enter(lkey)?;
        if hold.kind != Kind::Region {
            return Err(Fault::Key);
        }
        if hold.domain != domain.number() {
            return Err(Fault::Domain);
        }
        if is_written && hold.access & LOCAL_WRITE == 0 {
            return Err(Fault::Rights);
        }
        hold.segment(address, length)
    }

    /// Checks a part of the local memory of a request: the `length` bytes that follow the first `skipped` bytes. Adds
    /// segments that keep this memory in use.
    pub(crate) fn map(
        &'static self,
        domain: &Domain,
        pieces: &[Piece],
        mut skipped: u64,
        mut length: u64,
        is_written: bool,
        segments: &mut Segments,
    ) -> Result<(), Fault> {
        for piece in pieces {
            if length == 0 {
                break;
            }
            let offset = skipped.min(u64::from(piece.length));
            skipped -= offset;
            let part = length.min(u64::from(piece.length) - offset);
            if part > 0 {
                // If the sum overflows, the address is outside of all regions.
                let address = piece.address.checked_add(offset).ok_or(Fault::Bounds)?;
                let segment = self.local(domain, piece.lkey, address, part, is_written)?;
                segments.try_push(segment).map_err(|_| Fault::Bounds)?;
                length -= part;
            }
        }
        Ok(())
    }

    /// Checks the memory that a remote key refers to, and returns a segment that keeps this memory in use. `number` is
    /// the number of the responder's QP, and the memory must belong to `domain`. If `length` is zero, the key is not
    /// checked. An atomic has eight bytes. The address in its request and the address of the memory must both be
    /// multiples of eight.
    #[inline]
    pub(crate) fn remote(
        &'static self,
        domain: &Domain,
        number: u32,
        rkey: u32,
        address: u64,
        length: u64,
        access: Access,
    ) -> Result<Segment, Fault> {
        if length == 0 {
            return Ok(Segment::EMPTY);
        }
        let hold = self.enter_remote(domain, number, rkey, access)?;
        let segment = hold.segment(address, length)?;
        if access & ATOMIC != 0 && !(address.is_multiple_of(8) && segment.is_aligned()) {
            return Err(Fault::Alignment);
        }
        Ok(segment)
    }

    /// Checks all memory that a remote key refers to. A flush of a whole region uses this function.
    pub(crate) fn whole(
        &'static self,
        domain: &Domain,
        number: u32,
        rkey: u32,
        access: Access,
    ) -> Result<Segment, Fault> {
        let hold = self.enter_remote(domain, number, rkey, access)?;
        let (address, length) = (hold.iova, hold.length);
        hold.segment(address, length)
    }

    /// Begins a use of the table entry that a remote key refers to.
    #[inline]
    fn enter_remote(&'static self, domain: &Domain, number: u32, rkey: u32, access: Access) -> Result<Hold, Fault> {
        let hold = self.enter(rkey)?;
        let is_others = matches!(hold.kind, Kind::Window2(owner) if owner != number);
        if is_others || hold.domain != domain.number() {
            return Err(Fault::Domain);
        }
        if hold.access & access != access {
            return Err(Fault::Rights);
        }
        Ok(hold)
    }

    /// Begins a use of the table entry that a key refers to.
    #[inline]
    fn enter(&'static self, key: u32) -> Result<Hold, Fault> {
        let hold = self.table.find(key >> 8).and_then(|slot| slot.enter()).ok_or(Fault::Key)?;
        if hold.key == key { Ok(hold) } else { Err(Fault::Key) }
    }
}
