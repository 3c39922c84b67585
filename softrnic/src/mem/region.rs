//! Memory regions.

use std::fmt::Debug;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use super::resident::Presence;
use super::slot::{Entry, Kind, Slot};
use super::{ATOMIC, Access, LOCAL_WRITE, MW_BIND, Memory, REGION_ACCESS, WRITE, ZERO_BASED, resident};
use crate::mem::domain::Domain;
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::wire::bytes::{Place, cuda};
use crate::wire::limits::{MAX_MR, MAX_MW};

/// What a region stands for.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    /// Memory of the process, from this address; or of a GPU, where its driver knows the address so.
    Host(usize),
    /// Memory that the NIC itself has: a device's, or a mapping of a dma-buf. It is there as long as `keep` is.
    Own {
        address: usize,
        #[expect(dead_code, reason = "it is there to be held")]
        keep: Arc<dyn Debug + Send + Sync>,
    },
    /// Writes vanish, and reads give zeros (`ibv_alloc_null_mr`).
    Null,
}

impl Backing {
    /// Where it is, if it can be used as `access` says.
    fn locate(&self, length: u64, access: Access) -> Result<Place, Errno> {
        let address = match self {
            Self::Null => return Ok(Place::Null),
            Self::Own { address, .. } => *address,
            Self::Host(address) => {
                let room = usize::try_from(length).map_err(|_| Errno::INVALID)?;
                // As the kernel pins it: for writing also where only a window could be written.
                let is_written = access & (LOCAL_WRITE | MW_BIND) != 0;
                let presence = resident::bring_in(*address, room, is_written)?;
                // Only then is it asked for CUDA: looking for a library is nothing to do while other threads fork.
                if presence != Presence::There
                    && let Some(place) = cuda::locate(*address as u64, length)?
                {
                    return Ok(place);
                }
                let is_there = match presence {
                    Presence::There => true,
                    Presence::NotThere => false,
                    Presence::Unclear => resident::is_there_by_map(*address, room, is_written),
                };
                if !is_there {
                    return Err(Errno::FAULT);
                }
                *address
            }
        };
        Ok(Place::Host(std::ptr::with_exposed_provenance_mut(address)))
    }
}

/// A memory region. It stays in the table until it is deregistered.
#[derive(Debug)]
pub(crate) struct Region {
    slot: &'static Slot,
    key: u32,
    /// Held while it is changed; no access takes it.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    is_live: bool,
    backing: Backing,
}

impl Region {
    /// The local key, and the remote one as well.
    pub(crate) fn key(&self) -> u32 {
        self.key
    }
}

/// What [`Memory::reregister`] changes.
#[derive(Debug, Default)]
pub(crate) struct Change<'c> {
    pub(crate) domain: Option<&'c Domain>,
    /// What it stands for, its length, and the address by which requests name its first byte.
    pub(crate) translation: Option<(Backing, u64, u64)>,
    pub(crate) access: Option<Access>,
}

/// The access flags that count, or `EINVAL` where they are not allowed together. Those of the optional range do not count.
fn checked(access: Access) -> Result<Access, Errno> {
    const OPTIONAL: Access = rdma_mummy_sys::ib_uverbs_access_flags::IB_UVERBS_ACCESS_OPTIONAL_RANGE.0;
    const ON_DEMAND: Access = rdma_mummy_sys::ibv_access_flags::IBV_ACCESS_ON_DEMAND.0;
    let access = access & !OPTIONAL;
    let is_known = access & !(REGION_ACCESS | ON_DEMAND) == 0;
    if !is_known || access & (WRITE | ATOMIC) != 0 && access & LOCAL_WRITE == 0 {
        return Err(Errno::INVALID);
    }
    if access & ON_DEMAND != 0 {
        return Err(Errno::NOT_SUPPORTED);
    }
    Ok(access)
}

/// Nothing of it lies beyond the end of addresses.
fn check_range(length: u64, iova: u64) -> Result<(), Errno> {
    // A region that ends with the last address is one byte too long for a sum.
    let last = length.checked_sub(1).ok_or(Errno::INVALID)?;
    iova.checked_add(last).map(drop).ok_or(Errno::INVALID)
}

impl Memory {
    /// Registers memory. `iova` is the address by which requests name its first byte; it is 0 where `access` has
    /// `IBV_ACCESS_ZERO_BASED`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no bytes, an end beyond that of addresses, or access flags that do not go together; `EFAULT` where the
    /// memory is not there; `EOPNOTSUPP` for paging on demand; `ENOMEM` where there are [`MAX_MR`] regions.
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
        check_range(length, iova)?;
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

    /// Ends a region: no access begins any more, and those that run have ended when this returns.
    ///
    /// # Errors
    ///
    /// `EBUSY` where a window is bound to it, `EINVAL` where it has ended before.
    pub(crate) fn deregister(&'static self, region: &Arc<Region>) -> Result<(), Errno> {
        let mut state = unpoisoned(region.state.lock());
        if !state.is_live {
            return Err(Errno::INVALID);
        }
        if region.slot.bound.load(Ordering::Acquire) != 0 {
            return Err(Errno::BUSY);
        }
        let closed = region.slot.close().ok_or(Errno::INVALID)?;
        // A window may have been bound before it was closed; now none can be.
        if region.slot.bound.load(Ordering::Acquire) != 0 {
            let entry = closed.entry();
            closed.open(entry);
            return Err(Errno::BUSY);
        }
        state.is_live = false;
        // What it kept is given back with the last user gone.
        state.backing = Backing::Null;
        self.table.give(closed);
        self.regions.count_down();
        Ok(())
    }

    /// Changes a region under its keys. While it is changed, accesses fail; those that run are waited for.
    ///
    /// # Errors
    ///
    /// As [`register`](Self::register) and [`deregister`](Self::deregister); the region is as before.
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
            // Its addresses are those of the program again.
            after.iova = match backing {
                Backing::Host(address) | Backing::Own { address, .. } => *address as u64,
                Backing::Null => 0,
            };
        }
        check_range(after.length, after.iova)?;
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
