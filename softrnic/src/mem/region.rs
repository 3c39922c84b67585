//! Memory regions.

use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::resident::Presence;
use super::slot::{Entry, Kind, Slot};
use super::{ATOMIC, Access, LOCAL_WRITE, MW_BIND, Memory, ON_DEMAND, REGION_ACCESS, WRITE, ZERO_BASED, resident};
use crate::mem::domain::Domain;
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::bytes::{Place, cuda};
use crate::wire::limits::{MAX_MR, MAX_MW};

/// The memory of a region.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    /// Memory of the process that starts at this address. It is GPU memory if the CUDA driver recognizes the address.
    Host(usize),
    /// Memory that the device owns: device memory, or a mapping of a dma-buf. The memory exists as long as the object
    /// `keep`.
    Own {
        address: usize,
        #[expect(dead_code, reason = "keeps the memory allocated")]
        keep: Arc<dyn Debug + Send + Sync>,
    },
    /// Writes are discarded, reads return zeros (`ibv_alloc_null_mr`).
    Null,
}

impl Backing {
    /// Determines whether the memory is host memory or GPU memory. Returns an error if the memory does not permit
    /// `access`.
    fn locate(&self, length: u64, access: Access) -> Result<Place, Errno> {
        let address = match self {
            Self::Null => return Ok(Place::Null),
            Self::Own { address, .. } => *address,
            Self::Host(address) => {
                let size = usize::try_from(length).map_err(|_| Errno::INVALID)?;
                // As when the kernel pins memory, the memory must be writable even if only a window can grant write
                // access to it.
                let is_written = access & (LOCAL_WRITE | MW_BIND) != 0;
                if access & ON_DEMAND != 0 {
                    return on_demand(*address, size, is_written);
                }
                let presence = resident::populate(*address, size, is_written)?;
                // CUDA is queried only if the memory is not mapped in the process, because searching for the CUDA
                // library is risky while other threads fork.
                if presence != Presence::Mapped
                    && let Some(place) = cuda::locate(*address as u64, length)?
                {
                    return Ok(place);
                }
                let is_mapped = match presence {
                    Presence::Mapped => true,
                    Presence::Unmapped => false,
                    Presence::Unknown => resident::is_mapped_by_list(*address, size, is_written),
                };
                if !is_mapped {
                    return Err(Errno::FAULT);
                }
                *address
            }
        };
        Ok(Place::Host(std::ptr::with_exposed_provenance_mut(address)))
    }
}

/// Locates memory with on-demand paging. Its pages are not populated now: the copies of the device populate them. The
/// memory must be mapped already, unlike with a NIC.
fn on_demand(address: usize, size: usize, is_written: bool) -> Result<Place, Errno> {
    if address == 0 {
        // This registers the whole address space ("implicit").
        return Err(Errno::NOT_SUPPORTED);
    }
    if !resident::is_mapped_by_list(address, size, is_written) {
        return Err(Errno::FAULT);
    }
    Ok(Place::Host(std::ptr::with_exposed_provenance_mut(address)))
}

/// A memory region, which stays in the table until it is deregistered.
#[derive(Debug)]
pub(crate) struct Region {
    slot: &'static Slot,
    key: u32,
    /// Changes of the region take this lock. Accesses to its memory do not.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_live: bool,
    backing: Backing,
}

impl Region {
    /// The key of the region, which is both the local key and the remote key.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }
}

/// The changes that [`Memory::reregister`] makes.
#[derive(Debug, Default)]
pub(crate) struct Change<'c> {
    pub(crate) domain: Option<&'c Domain>,
    /// The new memory, its length, and the I/O virtual address of its first byte.
    pub(crate) translation: Option<(Backing, u64, u64)>,
    pub(crate) access: Option<Access>,
}

/// Returns the access flags without the optional ones, or `EINVAL` if the flags are inconsistent.
fn checked(access: Access) -> Result<Access, Errno> {
    const OPTIONAL: Access = rdma_mummy_sys::ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0;
    let access = access & !OPTIONAL;
    let is_known = access & !REGION_ACCESS == 0;
    if !is_known || access & (WRITE | ATOMIC) != 0 && access & LOCAL_WRITE == 0 {
        return Err(Errno::INVALID);
    }
    Ok(access)
}

/// Checks that a range of I/O virtual addresses does not exceed the address space. As in the kernel, only device memory
/// can have a region without bytes.
fn check_range(backing: &Backing, length: u64, iova: u64) -> Result<(), Errno> {
    if length == 0 && !matches!(backing, Backing::Own { .. }) {
        return Err(Errno::INVALID);
    }
    // The sum is the address of the last byte, not of the byte after it, so that a region may end at the last address.
    iova.checked_add(length.saturating_sub(1)).map(drop).ok_or(Errno::INVALID)
}

impl Memory {
    /// Registers memory. `iova` is the I/O virtual address of its first byte, or 0 if `access` contains
    /// `IBV_ACCESS_ZERO_BASED`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the length of host memory is zero, if the range exceeds the address space, or if the access flags are inconsistent.
    /// `EFAULT` if the memory is not mapped. `EOPNOTSUPP` if `access` requests on-demand paging of the whole address
    /// space. `ENOMEM` if [`MAX_MR`] regions already exist.
    pub(crate) fn register(
        &'static self,
        domain: &Arc<Domain>,
        backing: Backing,
        length: u64,
        iova: u64,
        access: Access,
    ) -> Result<Arc<Region>, Errno> {
        let access = checked(access)?;
        let iova = if access & ZERO_BASED != 0 { 0 } else { iova };
        check_range(&backing, length, iova)?;
        let place = backing.locate(length, access)?;
        self.regions.count()?;
        let Some(closed) = self.table.take() else {
            self.regions.count_down();
            return Err(Errno::NO_MEMORY);
        };
        let (slot, key) = (closed.slot(), closed.entry().key);
        closed.open(Entry { key, domain: domain.number(), kind: Kind::Region, access, place, iova, length });
        Ok(Arc::new(Region { slot, key, state: Mutex::new(State { is_live: true, backing }) }))
    }

    /// Deregisters a region: refuses new accesses, and waits until the current ones have ended.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a window is bound to the region; `EINVAL` if the region was deregistered before.
    pub(crate) fn deregister(&'static self, region: &Arc<Region>) -> Result<(), Errno> {
        let mut state = unpoisoned(region.state.lock());
        if !state.is_live {
            return Err(Errno::INVALID);
        }
        if region.slot.bound.load(Ordering::Acquire) != 0 {
            return Err(Errno::BUSY);
        }
        let closed = region.slot.close().ok_or(Errno::INVALID)?;
        // A window may have been bound before the entry was closed. While the entry is closed, no window can be bound
        // to it.
        if region.slot.bound.load(Ordering::Acquire) != 0 {
            let entry = closed.entry();
            closed.open(entry);
            return Err(Errno::BUSY);
        }
        state.is_live = false;
        // The memory that the backing owns is freed when its last user drops it.
        state.backing = Backing::Null;
        self.table.give(closed);
        self.regions.count_down();
        Ok(())
    }

    /// Changes a region without changing its keys. This function waits until the current accesses have ended, and new
    /// accesses fail during the change.
    ///
    /// # Errors
    ///
    /// The errors of [`register`](Self::register) and [`deregister`](Self::deregister). If this function fails, the
    /// region is unchanged.
    pub(crate) fn reregister(&'static self, region: &Arc<Region>, change: Change<'_>) -> Result<(), Errno> {
        let Change { domain, translation, access } = change;
        let access = access.map(checked).transpose()?;
        let mut state = unpoisoned(region.state.lock());
        if !state.is_live {
            return Err(Errno::INVALID);
        }
        let before = *region.slot.enter().ok_or(Errno::INVALID)?;
        let mut after = before;
        if let Some(domain) = domain {
            after.domain = domain.number();
        }
        if let Some(access) = access {
            after.access = access;
        }
        let backing = translation.as_ref().map_or(&state.backing, |(backing, _, _)| backing);
        if let Some((_, length, iova)) = &translation {
            (after.length, after.iova) = (*length, *iova);
        }
        if after.access & ZERO_BASED != 0 {
            after.iova = 0;
        } else if translation.is_none() && before.access & ZERO_BASED != 0 {
            // If `IBV_ACCESS_ZERO_BASED` is no longer set, requests use the addresses of the program again.
            after.iova = match backing {
                Backing::Host(address) | Backing::Own { address, .. } => *address as u64,
                Backing::Null => 0,
            };
        }
        check_range(backing, after.length, after.iova)?;
        let place = backing.locate(after.length, after.access)?;
        if translation.is_some() {
            after.place = place;
        }
        if region.slot.bound.load(Ordering::Acquire) != 0 {
            return Err(Errno::BUSY);
        }
        let closed = region.slot.close().ok_or(Errno::INVALID)?;
        if region.slot.bound.load(Ordering::Acquire) != 0 {
            closed.open(before);
            return Err(Errno::BUSY);
        }
        if let Some((backing, _, _)) = translation {
            state.backing = backing;
        }
        closed.open(after);
        Ok(())
    }
}

const _: () = assert!(MAX_MR as u64 + (MAX_MW as u64) < 1 << 24, "an index has 24 bits");
