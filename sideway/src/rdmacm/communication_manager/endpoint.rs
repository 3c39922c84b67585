//! `rdma_create_ep`: identifiers from address information.

use std::ptr::{self, NonNull};
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::rdma_cm_id;

use super::address_info::check_families;
use super::identifier::{explain_address, explain_bind};
use super::{AddressInfo, EventChannel, Identifier, PortSpace, event_channel};
use crate::error::{Errno, VerbError};
use crate::ffi::{check_pointer, clear_errno, errno_of};
use crate::ibverbs::queue_pair::QueuePairType;

const VERB: &str = "rdma_create_ep";

/// How many bytes the library has room for, connect data and private data together: it copies without looking.
const CONNECT_DATA: usize = u8::MAX as usize;

impl EventChannel {
    /// `rdma_create_ep(&id, res, pd, qp_init_attr)` — makes an identifier as [`getaddrinfo`](super::getaddrinfo) found it, whose
    /// events come here. For listening it is bound; else address and route are resolved, which this call waits for, up to two
    /// seconds each.
    ///
    /// The library makes the identifier for calls that wait, on a channel of its own; it is moved to this one
    /// (`rdma_migrate_id`) before anybody sees it.
    ///
    /// What C offers besides, and why it is not here:
    ///
    /// - Attributes of a queue pair: it would be the library's, and destroyed behind whoever posts to it.
    ///   [`create_qp`](Identifier::create_qp) makes one that has an owner.
    /// - `rdma_destroy_ep` destroys such queue pairs, and reports no failure. Dropping the last owner is enough.
    /// - `rdma_get_request` waits without limit, and loses any event that is not a request.
    ///   [`ConnectRequest`](super::EventKind::ConnectRequest) comes on this channel.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the information has no address to use, no port space or no type of queue pair; what it has does not fit each
    ///   other; it has more connect data than a connect request has room for.
    /// - `EOPNOTSUPP`: identifiers are not for this type of queue pair.
    /// - `ETIMEDOUT`: nobody answers, within two seconds.
    /// - else as [`bind_addr`](Identifier::bind_addr), or [`resolve_addr`](Identifier::resolve_addr) and
    ///   [`resolve_route`](Identifier::resolve_route).
    ///
    /// # References
    ///
    /// [rdma_create_ep(3)](https://man7.org/linux/man-pages/man3/rdma_create_ep.3.html)
    #[doc(alias = "rdma_create_ep")]
    #[doc(alias = "rdma_destroy_ep")]
    #[doc(alias = "rdma_get_request")]
    pub fn create_ep(self: &Arc<Self>, info: &AddressInfo) -> Result<Arc<Identifier>, VerbError> {
        check(info)?;
        let mut id = ptr::null_mut();
        clear_errno();
        // SAFETY: the information can be read for the whole call, and its addresses are whole, of the family that it says, and not
        // longer than an address can be; no queue pair is asked for; `id` is there to be written.
        let ret = info.with_raw(|info| unsafe { sys::rdma_create_ep(&mut id, info, ptr::null_mut(), ptr::null_mut()) });
        if ret != 0 {
            return Err(explain(VerbError::new(VERB, errno_of(ret)), info));
        }
        let id = check_pointer(VERB, id)?;
        // Nobody takes an event of the identifier here before the channel knows it.
        let calls = self.lock_calls();
        // SAFETY: just made, and nobody else's.
        if let Err(error) = unsafe { self.take_over(id) } {
            drop(calls);
            // SAFETY: as above, and this is its end.
            if let Err(error) = unsafe { event_channel::destroy(id) } {
                log::warn!("{error}; the identifier is leaked");
            }
            return Err(error);
        }
        let before = if info.is_passive() { 0 } else { info.connect_data().len() };
        // SAFETY: it is on this channel now.
        Ok(unsafe { Identifier::adopt_endpoint(id, self, before) })
    }

    /// Moves an identifier here.
    ///
    /// # Safety
    ///
    /// It is live, nobody else uses it, and none of its events is unacknowledged but what it holds itself.
    unsafe fn take_over(&self, id: NonNull<rdma_cm_id>) -> Result<(), VerbError> {
        clear_errno();
        // SAFETY: the caller's promise; the channel is live.
        match unsafe { sys::rdma_migrate_id(id.as_ptr(), self.raw()) } {
            0 => Ok(()),
            ret => Err(VerbError::new("rdma_migrate_id", errno_of(ret))),
        }
    }
}

/// Refuses what the library would take without looking, and what the crate could not hold.
fn check(info: &AddressInfo) -> Result<(), VerbError> {
    check_families(VERB, info)?;
    let invalid = |hint: String| Err(VerbError::invalid(VERB, hint));
    let (Some(port_space), Some(qp_type)) = (info.port_space(), info.qp_type()) else {
        return invalid(
            "the information has no port space or no type of queue pair: getaddrinfo fills them in".to_owned(),
        );
    };
    match qp_type {
        QueuePairType::ReliableConnection
        | QueuePairType::UnreliableConnection
        | QueuePairType::UnreliableDatagram
        | QueuePairType::ReliableConnectionExtendedSend => {}
        _ => {
            return Err(VerbError::new(VERB, Errno::EOPNOTSUPP)
                .with_hint(format!("no queue pair of type {qp_type:?} is made through an identifier")));
        }
    }
    let is_datagram = qp_type == QueuePairType::UnreliableDatagram;
    if port_space != PortSpace::InfiniBand && port_space.is_datagram() != is_datagram {
        return invalid(format!("a queue pair of type {qp_type:?} has no ports of {port_space:?}"));
    }
    match info.is_passive() {
        true if info.source().is_none() => {
            return invalid("the information has no source, where an identifier could listen".to_owned());
        }
        false if info.destination().is_none() => return invalid("the information has no destination".to_owned()),
        _ => {}
    }
    let length = info.connect_data().len();
    if length > CONNECT_DATA {
        return invalid(format!("{length} bytes of connect data: at most {CONNECT_DATA}"));
    }
    Ok(())
}

#[cold]
fn explain(error: VerbError, info: &AddressInfo) -> VerbError {
    match (info.is_passive(), info.source(), info.destination()) {
        (true, Some(source), _) => explain_bind(error, source),
        (false, source, Some(destination)) => match error.errno().raw() {
            libc::ETIMEDOUT => error.with_hint(format!("nobody answers at {destination}")),
            _ => explain_address(error, source, destination),
        },
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::rdmacm::communication_manager::AddressInfoFlags;

    fn info() -> AddressInfo {
        let mut info = AddressInfo::new();
        info.setup_port_space(PortSpace::Tcp).setup_qp_type(QueuePairType::ReliableConnection);
        info.setup_destination("192.0.2.1:7471".parse::<SocketAddr>().unwrap());
        info
    }

    #[track_caller]
    fn refused(change: impl FnOnce(&mut AddressInfo), errno: i32, hint: &str) {
        let mut info = info();
        change(&mut info);
        let error = check(&info).unwrap_err();
        assert_eq!(error.errno().raw(), errno, "{error}");
        assert!(error.hint().unwrap().contains(hint), "{error}");
    }

    #[test]
    fn what_the_library_would_not_look_at_is_refused() {
        check(&info()).unwrap();
        refused(|info| *info = AddressInfo::new(), libc::EINVAL, "getaddrinfo fills them in");
        refused(|info| _ = info.setup_flags(AddressInfoFlags::Passive), libc::EINVAL, "no source");
        let without = |info: &mut AddressInfo| {
            *info = AddressInfo::new();
            info.setup_port_space(PortSpace::Tcp).setup_qp_type(QueuePairType::ReliableConnection);
        };
        refused(without, libc::EINVAL, "no destination");
        refused(|info| _ = info.setup_connect_data(&[7; 256]), libc::EINVAL, "256 bytes of connect data: at most 255");
        check(info().setup_connect_data(&[7; 255])).unwrap();
    }

    #[test]
    fn queue_pairs_that_identifiers_do_not_make_are_refused() {
        let qp_type = |qp_type| move |info: &mut AddressInfo| _ = info.setup_qp_type(qp_type);
        for refusal in
            [QueuePairType::ReliableConnectionExtendedRecv, QueuePairType::RawPacket, QueuePairType::from_raw(0x77)]
        {
            refused(qp_type(refusal), libc::EOPNOTSUPP, "no queue pair of type");
        }
        refused(qp_type(QueuePairType::UnreliableDatagram), libc::EINVAL, "has no ports of Tcp");
        check(info().setup_qp_type(QueuePairType::UnreliableDatagram).setup_port_space(PortSpace::InfiniBand)).unwrap();
        check(info().setup_qp_type(QueuePairType::UnreliableDatagram).setup_port_space(PortSpace::Udp)).unwrap();
    }
}
