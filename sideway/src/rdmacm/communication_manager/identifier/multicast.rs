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

/// `enum rdma_cm_mc_join_flags` — what a member of a multicast group is there for.
#[doc(alias = "rdma_cm_mc_join_flags")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MulticastJoinFlag {
    /// To send and to receive.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_FULLMEMBER")]
    #[default]
    FullMember,
    /// To send only: switches need not bring what others send.
    #[doc(alias = "RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER")]
    SendOnlyFullMember,
}

impl Identifier {
    /// `rdma_join_multicast(id, addr, context)` — joins a multicast group with an identifier for datagrams.
    /// [`MulticastJoin`](super::super::EventKind::MulticastJoin), which says how to send to it, or
    /// [`MulticastError`](super::super::EventKind::MulticastError) comes; both name the group. The port of `group` means nothing.
    ///
    /// Before that, the identifier is [bound](Self::bind_addr) to an address of a device, or [resolves](Self::resolve_addr) the
    /// group's address, which takes a route to it. A queue pair that was [made through it](Self::create_qp) by the time of the
    /// event receives what is sent to the group; the program's own is
    /// [attached](crate::ibverbs::queue_pair::QueuePair::attach_mcast) by the program.
    ///
    /// Groups are left by [`leave_multicast`](Self::leave_multicast), and when the queue pair that was made through the identifier
    /// or the identifier itself is destroyed. One that an error event has named may be joined again; it is left first.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the address is none of a group; the identifier is on no device, is not for datagrams, or is connected.
    /// - `EADDRINUSE`: the identifier is in the group, or joins it already.
    /// - 524 (`ENOTSUPP` of the kernel): the port has no such groups. RoCE v2 has those of IPv4.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_join_multicast(3)](https://man7.org/linux/man-pages/man3/rdma_join_multicast.3.html)
    #[doc(alias = "rdma_join_multicast")]
    pub fn join_multicast(&self, group: SocketAddr) -> Result<(), VerbError> {
        // SAFETY: by `join`, the identifier is live and on a device, and the address can be read for the whole call.
        self.join(JOIN, group, |id, address, context| unsafe {
            sys::rdma_join_multicast(id, address.as_mut_ptr(), context)
        })
    }

    /// `rdma_join_multicast_ex(id, mc_join_attr, context)` — the same as one or the other kind of member.
    ///
    /// # Errors
    ///
    /// As [`join_multicast`](Self::join_multicast); `EOPNOTSUPP`: librdmacm is older than rdma-core 16.
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
            // SAFETY: as above; what the mask names is there.
            unsafe { sys::rdma_join_multicast_ex(id, &mut attr, context) }
        })
        .map_err(|error| match error.errno().raw() {
            libc::EOPNOTSUPP if error.hint().is_none() => {
                error.with_hint("librdmacm is older than rdma-core 16: use join_multicast")
            }
            _ => error,
        })
    }

    /// `rdma_leave_multicast(id, addr)` — leaves a group. Nothing comes for it, nor of the group any more.
    ///
    /// Where the kernel refuses, the library has forgotten the group all the same, and could not be told of an event that the
    /// kernel has of it yet: the channel gives no events then until the identifier is gone
    /// ([`EBUSY`](EventChannel::get_cm_event)).
    ///
    /// # Errors
    ///
    /// - `EADDRNOTAVAIL`: the identifier is not in the group.
    /// - `ENXIO`: the device is gone.
    /// - else the errno of the library.
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
        // A group without an address is one that InfiniBand's subnet manager is to make.
        if !group.ip().is_multicast() && !group.ip().is_unspecified() {
            return Err(VerbError::invalid(verb, format!("{} is no address of a multicast group", group.ip())));
        }
        let joined = self.with_channel(|id, channel| {
            // SAFETY: nobody else uses the identifier.
            if unsafe { verbs(id) }.is_none() {
                return Err(not_on_a_device(verb));
            }
            match self.groups.find(group) {
                Some(joined) if joined.is_lost => self.leave(id, channel, joined)?,
                Some(_) => {
                    let hint = format!("the identifier is in the group {}, or joins it already", group.ip());
                    return Err(VerbError::new(verb, Errno::EADDRINUSE).with_hint(hint));
                }
                None => {}
            }
            let key = self.groups.next_key();
            let mut address = RawAddress::from(group);
            clear_errno();
            // The events of the group bring the key; it is not followed.
            match join(id, &mut address, ptr::without_provenance_mut(key)) {
                0 => {
                    // No event can have been taken meanwhile.
                    self.groups.insert(key, group);
                    Ok(())
                }
                ret => Err(VerbError::new(verb, errno_of(ret))),
            }
        });
        joined.map_err(|error| self.explain_join(error, group))
    }

    /// Leaves all groups, which somebody must not be in any more.
    pub(super) fn leave_all(&self, id: *mut rdma_cm_id, channel: &EventChannel) {
        for group in self.groups.all() {
            if let Err(error) = self.leave(id, channel, group) {
                log::warn!("{error}");
            }
        }
    }

    /// `id` is the identifier, and nobody else uses it.
    fn leave(&self, id: *mut rdma_cm_id, channel: &EventChannel, group: Group) -> Result<(), VerbError> {
        let mut address = RawAddress::from(group.address);
        self.groups.remove(group);
        clear_errno();
        // SAFETY: the identifier is live, and the address can be read for the whole call. The library then frees what it has of the
        // group, which nobody points to: events are taken and acknowledged under one lock of the channel, which this call shares, so
        // that none is half way. For the same reason the call, which waits for events that are taken and not acknowledged, returns.
        // The kernel drops the events that nobody has taken; where it refuses, none is taken any more, see `hold`.
        let ret = unsafe { sys::rdma_leave_multicast(id, address.as_mut_ptr()) };
        if ret == 0 {
            return Ok(());
        }
        let errno = errno_of(ret);
        if !self.holds.swap(true, Ordering::Relaxed) {
            channel.hold();
        }
        Err(VerbError::new(LEAVE, errno).with_hint(format!(
            "leaving {}: the kernel refuses and the library has forgotten the group; the channel gives no events until the \
             identifier is dropped",
            group.address.ip()
        )))
    }

    #[cold]
    fn explain_join(&self, error: VerbError, group: SocketAddr) -> VerbError {
        /// The kernel's own, that programs should not see.
        const ENOTSUPP: i32 = 524;
        let why = match error.errno().raw() {
            _ if error.hint().is_some() => return error,
            libc::EINVAL if !self.port_space().is_datagram() => {
                "identifiers of this port space are for connections: make the identifier in PortSpace::Udp"
            }
            libc::EINVAL => {
                "the identifier is neither bound nor is an address resolved, or a peer is looked up already"
            }
            ENOTSUPP | libc::EOPNOTSUPP if group.is_ipv6() => {
                "the port has no multicast groups of IPv6 (RoCE v2 has those of IPv4)"
            }
            ENOTSUPP => "the port has no such multicast groups",
            _ => return error,
        };
        error.with_hint(format!("joining {}: {why}", group.ip()))
    }
}
