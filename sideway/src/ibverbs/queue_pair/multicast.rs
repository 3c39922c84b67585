//! Multicast groups of a queue pair: `ibv_attach_mcast`, `ibv_detach_mcast`.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_mummy_sys as sys;
use rdma_mummy_sys::ibv_gid;

use super::{QueuePairCore, QueuePairType};
use crate::error::VerbError;
use crate::ffi::check_errno;
use crate::ibverbs::address::Gid;
use crate::ibverbs::device_context::LinkLayer;

const ATTACH: &str = "ibv_attach_mcast";
const DETACH: &str = "ibv_detach_mcast";

/// The queue pair's groups. The lock is held during the verbs, so this set always equals the set in the driver.
#[derive(Default)]
pub(super) struct Groups(Mutex<BTreeSet<(Gid, u16)>>);

impl Groups {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<(Gid, u16)>> {
        // Nothing panics under the lock, so a poisoned set is still consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Groups {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().iter()).finish()
    }
}

impl QueuePairCore {
    pub(crate) fn attach_mcast(&self, gid: &Gid, lid: u16) -> Result<(), VerbError> {
        let mut groups = self.groups.lock();
        let raw = ibv_gid::from(*gid);
        // SAFETY: the queue pair is live as long as the core, and the GID can be read during the call.
        let ret = unsafe { sys::ibv_attach_mcast(self.raw(), &raw, lid) };
        check_errno(ATTACH, ret).map_err(|error| self.explain_attach(error, gid, lid))?;
        groups.insert((*gid, lid));
        Ok(())
    }

    pub(crate) fn detach_mcast(&self, gid: &Gid, lid: u16) -> Result<(), VerbError> {
        let mut groups = self.groups.lock();
        self.detach(gid, lid).map_err(|error| {
            if error.errno().raw() == libc::EINVAL && !groups.contains(&(*gid, lid)) {
                return error.with_hint(format!(
                    "the queue pair is not in the group {gid}, LID {lid:#x}; attach it \
                    first"
                ));
            }
            error
        })?;
        groups.remove(&(*gid, lid));
        Ok(())
    }

    /// Leaves all groups. This is called before the queue pair is destroyed, because C cannot destroy a queue pair that
    /// is in a group.
    pub(super) fn leave_groups(&self) {
        for (gid, lid) in std::mem::take(&mut *self.groups.lock()) {
            if let Err(error) = self.detach(&gid, lid) {
                rdma_mummy_sys::log!(warn, "{error}; the queue pair stays in the group {gid}");
            }
        }
    }

    fn detach(&self, gid: &Gid, lid: u16) -> Result<(), VerbError> {
        let raw = ibv_gid::from(*gid);
        // SAFETY: the queue pair is live as long as the core, and the GID can be read during the call.
        check_errno(DETACH, unsafe { sys::ibv_detach_mcast(self.raw(), &raw, lid) })
    }

    #[cold]
    fn explain_attach(&self, error: VerbError, gid: &Gid, lid: u16) -> VerbError {
        if error.errno().raw() != libc::EINVAL {
            return error;
        }
        if self.qp_type() != QueuePairType::UnreliableDatagram {
            return error.with_hint(format!(
                "the queue pair is of type {:?}; multicast groups need UnreliableDatagram",
                self.qp_type()
            ));
        }
        if !gid.is_multicast() {
            return error.with_hint(format!(
                "the GID {gid} is not that of a multicast group; use one that begins with ff, or ::ffff:224.0.0.0 \
                to ::ffff:239.255.255.255"
            ));
        }
        if !(0xc000..0xffff).contains(&lid) && self.has_lids() {
            return error.with_hint(format!("the LID {lid:#x} is not that of a multicast group; use 0xc000 to 0xfffe"));
        }
        error
    }

    /// Whether all ports of the device are InfiniBand ports. Ethernet has no LIDs, and Linux checks LIDs only if all
    /// ports are InfiniBand ports.
    fn has_lids(&self) -> bool {
        let context = self.context();
        context.query_device().is_ok_and(|device| {
            let mut ports = 1..=u8::try_from(device.phys_port_cnt()).unwrap_or(u8::MAX);
            ports.all(|port| context.query_port(port).is_ok_and(|port| port.link_layer() != LinkLayer::Ethernet))
        })
    }
}
