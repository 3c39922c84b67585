//! Creating identifiers from address information with `rdma_create_ep`.

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

/// The size of the library's buffer for the connect data and the private data together. The library copies the data
/// without checking its length.
const CONNECT_DATA: usize = u8::MAX as usize;

impl EventChannel {
    /// `rdma_create_ep(&id, res, pd, qp_init_attr)` — creates an identifier on this channel from a result of
    /// [`getaddrinfo`](super::getaddrinfo). A passive identifier is bound. For an active identifier, the call waits
    /// until address and route are resolved, up to two seconds each.
    ///
    /// The library creates the identifier in synchronous mode, on a separate channel. Before this method returns, it
    /// moves the identifier to this channel (`rdma_migrate_id`).
    ///
    /// This crate omits the following parts of the C interface:
    ///
    /// - The attributes of a queue pair. The library would own the queue pair, and could destroy it while threads post
    ///   to it. Use [`create_qp`](Identifier::create_qp) instead.
    /// - `rdma_destroy_ep`, which destroys such queue pairs and reports no errors. Drop the last owner of the
    ///   identifier instead.
    /// - `rdma_get_request`, which waits without a time limit and loses all other events. Wait for
    ///   [`ConnectRequest`](super::EventKind::ConnectRequest) on this channel instead.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the information has no usable address, port space or queue pair type, or its parts contradict each
    ///   other. Or it has more connect data than a connect request can hold.
    /// - `EOPNOTSUPP`: identifiers do not support this queue pair type.
    /// - `ETIMEDOUT`: there was no reply within two seconds.
    /// - Otherwise the errors of [`bind_addr`](Identifier::bind_addr), or [`resolve_addr`](Identifier::resolve_addr)
    ///   and [`resolve_route`](Identifier::resolve_route).
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
        // SAFETY: the information is readable during the call. Its addresses are complete, have the stated family, and
        // are not longer than an address can be. No queue pair is requested. The call may write to `id`.
        let ret = info.with_raw(|info| unsafe { sys::rdma_create_ep(&mut id, info, ptr::null_mut(), ptr::null_mut()) });
        if ret != 0 {
            return Err(explain(VerbError::new(VERB, errno_of(ret)), info));
        }
        let id = check_pointer(VERB, id)?;
        // Prevents other threads from taking an event of the identifier before the channel has registered it.
        let calls = self.lock_calls();
        // SAFETY: the identifier was just created, and is not shared.
        if let Err(error) = unsafe { self.take_over(id) } {
            drop(calls);
            // SAFETY: as above; the identifier is not used afterwards.
            if let Err(error) = unsafe { event_channel::destroy(id) } {
                rdma_mummy_sys::log!(warn, "{error}; the identifier is leaked");
            }
            return Err(error);
        }
        let before = if info.is_passive() { 0 } else { info.connect_data().len() };
        // SAFETY: the identifier is on this channel now.
        Ok(unsafe { Identifier::adopt_endpoint(id, self, before) })
    }

    /// Moves an identifier to this channel.
    ///
    /// # Safety
    ///
    /// The identifier is live, and no other code uses it. All events of the identifier are acknowledged, except the
    /// event that the identifier itself stores.
    unsafe fn take_over(&self, id: NonNull<rdma_cm_id>) -> Result<(), VerbError> {
        clear_errno();
        // SAFETY: by the contract of this function. The channel is live.
        match unsafe { sys::rdma_migrate_id(id.as_ptr(), self.raw()) } {
            0 => Ok(()),
            ret => Err(VerbError::new("rdma_migrate_id", errno_of(ret))),
        }
    }
}

/// Refuses invalid information that the library does not check, and information that this crate cannot represent.
fn check(info: &AddressInfo) -> Result<(), VerbError> {
    check_families(VERB, info)?;
    let invalid = |hint: String| Err(VerbError::invalid(VERB, hint));
    let (Some(port_space), Some(qp_type)) = (info.port_space(), info.qp_type()) else {
        return invalid(
            "the information has no port space or no queue pair type; take it from getaddrinfo, which sets both"
                .to_owned(),
        );
    };
    match qp_type {
        QueuePairType::ReliableConnection
        | QueuePairType::UnreliableConnection
        | QueuePairType::UnreliableDatagram
        | QueuePairType::ReliableConnectionExtendedSend => {}
        _ => {
            return Err(VerbError::new(VERB, Errno::EOPNOTSUPP)
                .with_hint(format!("identifiers do not support queue pairs of type {qp_type:?}")));
        }
    }
    let is_datagram = qp_type == QueuePairType::UnreliableDatagram;
    if port_space != PortSpace::InfiniBand && port_space.is_datagram() != is_datagram {
        return invalid(format!(
            "queue pairs of type {qp_type:?} cannot use port space {port_space:?}; use one that \
            fits"
        ));
    }
    match info.is_passive() {
        true if info.source().is_none() => {
            return invalid(
                "the information has no source address to listen on; set one with AddressInfo::setup_source".to_owned(),
            );
        }
        false if info.destination().is_none() => {
            return invalid(
                "the information has no destination; set one with \
            AddressInfo::setup_destination"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let length = info.connect_data().len();
    if length > CONNECT_DATA {
        return invalid(format!("{length} bytes of connect data are too many; use at most {CONNECT_DATA}"));
    }
    Ok(())
}

#[cold]
fn explain(error: VerbError, info: &AddressInfo) -> VerbError {
    match (info.is_passive(), info.source(), info.destination()) {
        (true, Some(source), _) => explain_bind(error, source),
        (false, source, Some(destination)) => match error.errno().raw() {
            libc::ETIMEDOUT => error.with_hint(format!(
                "no reply from {destination}; check the address, and that \
                the machine is up"
            )),
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
    fn unchecked_library_input_is_refused() {
        check(&info()).unwrap();
        refused(|info| *info = AddressInfo::new(), libc::EINVAL, "take it from getaddrinfo");
        refused(|info| _ = info.setup_flags(AddressInfoFlags::Passive), libc::EINVAL, "no source address");
        let without = |info: &mut AddressInfo| {
            *info = AddressInfo::new();
            info.setup_port_space(PortSpace::Tcp).setup_qp_type(QueuePairType::ReliableConnection);
        };
        refused(without, libc::EINVAL, "no destination");
        refused(
            |info| _ = info.setup_connect_data(&[7; 256]),
            libc::EINVAL,
            "256 bytes of connect data are too \
            many; use at most 255",
        );
        check(info().setup_connect_data(&[7; 255])).unwrap();
    }

    #[test]
    fn unsupported_queue_pair_types_are_refused() {
        let qp_type = |qp_type| move |info: &mut AddressInfo| _ = info.setup_qp_type(qp_type);
        for refusal in
            [QueuePairType::ReliableConnectionExtendedRecv, QueuePairType::RawPacket, QueuePairType::from_raw(0x77)]
        {
            refused(qp_type(refusal), libc::EOPNOTSUPP, "do not support queue pairs of type");
        }
        refused(qp_type(QueuePairType::UnreliableDatagram), libc::EINVAL, "cannot use port space Tcp");
        check(info().setup_qp_type(QueuePairType::UnreliableDatagram).setup_port_space(PortSpace::InfiniBand)).unwrap();
        check(info().setup_qp_type(QueuePairType::UnreliableDatagram).setup_port_space(PortSpace::Udp)).unwrap();
    }
}
