//! Multicast groups of an identifier.

use std::net::SocketAddr;
use std::ptr;
use std::sync::atomic::Ordering;

use libc::{c_int, c_void};
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{rdma_cm_id, rdma_cm_join_mc_attr_ex, rdma_cm_join_mc_attr_mask, rdma_cm_mc_join_flags};

use super::groups::Group;
use super::{Identifier, not_on_a_device, verbs};
use crate::error::{Errno, VerbError};
use crate::ffi::{clear_errno, errno_of};
use crate::rdmacm::communication_manager::EventChannel;
use crate::rdmacm::communication_manager::socket_address::RawAddress;

const JOIN: &str = "rdma_join_multicast";
const JOIN_EX: &str = "rdma_join_multicast_ex";
const LEAVE: &str = "rdma_leave_multicast";

/// `enum rdma_cm_mc_join_flags` — the kind of membership in a group.
#[doc(alias = "rdma_cm_mc_join_flags")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MulticastJoinFlag {
    /// The member sends and receives.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_FULLMEMBER")]
    #[default]
    FullMember,
    /// The member only sends. Switches need not forward the group's messages to it.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER")]
    SendOnlyFullMember,
}

impl Identifier {
    /// `rdma_join_multicast(id, addr, context)` — joins a multicast group with an identifier for datagrams. The event
    /// [`MulticastJoin`](super::super::EventKind::MulticastJoin) or
    /// [`MulticastError`](super::super::EventKind::MulticastError) follows. Both contain the group, and `MulticastJoin`
    /// contains the destination for sends. The port of `group` is ignored.
    ///
    /// Before joining, [bind](Self::bind_addr) the identifier to an address of a device, or
    /// [resolve](Self::resolve_addr) the group's address, which requires a route to that address. A queue pair that was
    /// [created through it](Self::create_qp) before the event receives the group's messages; any other queue pair must
    /// be [attached](crate::ibverbs::queue_pair::QueuePair::attach_mcast) by the program.
    ///
    /// [`leave_multicast`](Self::leave_multicast) leaves a group. The identifier leaves all its groups when it is
    /// destroyed, or when the queue pair that was created through it is destroyed. To join a group again after an error
    /// event, leave the group first.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the address is not a multicast address. Or the identifier has no device, is not for datagrams, or is
    ///   connected.
    /// - `EADDRINUSE`: the identifier is already in the group, or is joining it.
    /// - 524 (`ENOTSUPP` of the kernel): the port does not support such groups. RoCE v2 supports IPv4 groups.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_join_multicast(3)](https://man7.org/linux/man-pages/man3/rdma_join_multicast.3.html)
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(&self, group: SocketAddr) -> Result<(), VerbError> {
        // SAFETY: by `join`, the identifier is live and on a device, and the address is readable during the call.
        self.join(JOIN, group, |id, address, context| unsafe {
            sys::rdma_join_multicast(id, address.as_mut_ptr(), context)
        })
    }

    /// `rdma_join_multicast_ex(id, mc_join_attr, context)` — joins a multicast group as this kind of member.
    ///
    /// # Errors
    ///
    /// The errors are those of [`join_multicast`](Self::join_multicast). In addition, returns `EOPNOTSUPP` if librdmacm
    /// is older than rdma-core 16.
    ///
    /// # References
    ///
    /// [rdma_join_multicast_ex(3)](https://man7.org/linux/man-pages/man3/rdma_join_multicast_ex.3.html)
    #[doc(alias = "rdma_join_multicast_ex")]
    #[doc(alias = "rdma_cm_join_mc_attr_ex")]
    pub fn join_multicast_with(&self, group: SocketAddr, flag: MulticastJoinFlag) -> Result<(), VerbError> {
        let join_flags = match flag {
            MulticastJoinFlag::FullMember => rdma_cm_mc_join_flags::RDMA_MC_JOIN_FLAG_FULLMEMBER,
            MulticastJoinFlag::SendOnlyFullMember => rdma_cm_mc_join_flags::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER,
        };
        let mask = rdma_cm_join_mc_attr_mask::RDMA_CM_JOIN_MC_ATTR_ADDRESS.0
            | rdma_cm_join_mc_attr_mask::RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS.0;
        self.join(JOIN_EX, group, |id, address, context| {
            let mut attr =
                rdma_cm_join_mc_attr_ex { comp_mask: mask, join_flags: join_flags.0, addr: address.as_mut_ptr() };
            // SAFETY: as above; the fields that the mask names are set.
            unsafe { sys::rdma_join_multicast_ex(id, &mut attr, context) }
        })
        .map_err(|error| match error.errno().raw() {
            libc::EOPNOTSUPP if error.hint().is_none() => {
                error.with_hint("librdmacm is older than rdma-core 16; use join_multicast")
            }
            _ => error,
        })
    }

    /// `rdma_leave_multicast(id, addr)` — leaves a group. No event follows, and no more events of the group arrive.
    ///
    /// If the kernel refuses, the library has removed the group nevertheless. It would crash if it received an event of
    /// the group, which the kernel still has. So in this case the channel delivers no events until the identifier is
    /// destroyed ([`EBUSY`](EventChannel::get_cm_event)).
    ///
    /// # Errors
    ///
    /// - `EADDRNOTAVAIL`: the identifier is not in the group.
    /// - `ENXIO`: the device was removed.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_leave_multicast(3)](https://man7.org/linux/man-pages/man3/rdma_leave_multicast.3.html)
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave_multicast(&self, group: SocketAddr) -> Result<(), VerbError> {
        self.with_channel(|id, channel| {
            let Some(joined) = self.groups.find(group) else {
                let hint = format!("the identifier is not in the group {}", group.ip());
                return Err(VerbError::new(LEAVE, Errno::EADDRNOTAVAIL).with_hint(hint));
            };
            self.leave(id, channel, joined)
        })
    }

    fn join(
        &self,
        verb: &'static str,
        group: SocketAddr,
        join: impl FnOnce(*mut rdma_cm_id, &mut RawAddress, *mut c_void) -> c_int,
    ) -> Result<(), VerbError> {
        // With the unspecified address, InfiniBand's subnet manager creates a group.
        if !group.ip().is_multicast() && !group.ip().is_unspecified() {
            return Err(VerbError::invalid(verb, format!("{} is no multicast address", group.ip())));
        }
        let joined = self.with_channel(|id, channel| {
            // SAFETY: the identifier is locked.
            if unsafe { verbs(id) }.is_none() {
                return Err(not_on_a_device(verb));
            }
            match self.groups.find(group) {
                Some(joined) if joined.is_lost => self.leave(id, channel, joined)?,
                Some(_) => {
                    let hint = format!(
                        "the identifier is in the group {} or is joining it; leave the group first",
                        group.ip()
                    );
                    return Err(VerbError::new(verb, Errno::EADDRINUSE).with_hint(hint));
                }
                None => {}
            }
            let key = self.groups.next_key();
            let mut address = RawAddress::from(group);
            clear_errno();
            // The events of the group contain the key as their context. It is not dereferenced.
            match join(id, &mut address, ptr::without_provenance_mut(key)) {
                0 => {
                    // No event of the group can have been taken before this, because the caller holds the lock.
                    self.groups.insert(key, group);
                    Ok(())
                }
                ret => Err(VerbError::new(verb, errno_of(ret))),
            }
        });
        joined.map_err(|error| self.explain_join(error, group))
    }

    /// Leaves all groups.
    pub(super) fn leave_all(&self, id: *mut rdma_cm_id, channel: &EventChannel) {
        for group in self.groups.all() {
            if let Err(error) = self.leave(id, channel, group) {
                rdma_mummy_sys::log!(warn, "{error}");
            }
        }
    }

    /// `id` is this identifier, which is locked.
    fn leave(&self, id: *mut rdma_cm_id, channel: &EventChannel, group: Group) -> Result<(), VerbError> {
        let mut address = RawAddress::from(group.address);
        self.groups.remove(group);
        clear_errno();
        // SAFETY: the identifier is live, and the address is readable during the call. The library then frees its state
        // of the group. No other pointer to that state exists: events are taken and acknowledged under one lock of the
        // channel, which this call shares, so no event is taken but unacknowledged now. For the same reason, the call
        // returns, although it waits until all taken events are acknowledged. The kernel drops the events of the group
        // that were not taken. If the kernel refuses to leave the group, no event is taken any more; see `hold`.
        let ret = unsafe { sys::rdma_leave_multicast(id, address.as_mut_ptr()) };
        if ret == 0 {
            return Ok(());
        }
        let errno = errno_of(ret);
        if !self.holds.swap(true, Ordering::Relaxed) {
            channel.hold();
        }
        Err(VerbError::new(LEAVE, errno).with_hint(format!(
            "leaving {}: the kernel refused, and the library no longer tracks the group; drop the identifier, until \
            which the channel delivers no events",
            group.address.ip()
        )))
    }

    #[cold]
    fn explain_join(&self, error: VerbError, group: SocketAddr) -> VerbError {
        /// An errno that the kernel should only use internally.
        const ENOTSUPP: i32 = 524;
        let why = match error.errno().raw() {
            _ if error.hint().is_some() => return error,
            libc::EINVAL if !self.port_space().is_datagram() => {
                "this port space is for connections; create the identifier in PortSpace::Udp"
            }
            libc::EINVAL => {
                "the identifier is neither bound nor has it a resolved address, or it already looks up a peer; call \
                bind_addr or resolve_addr first"
            }
            ENOTSUPP | libc::EOPNOTSUPP if group.is_ipv6() => {
                "the port does not support IPv6 multicast groups; with RoCE v2 use an IPv4 group"
            }
            ENOTSUPP => "the port does not support such multicast groups",
            _ => return error,
        };
        error.with_hint(format!("joining {}: {why}", group.ip()))
    }
}
