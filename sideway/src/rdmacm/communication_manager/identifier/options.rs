//! `rdma_set_option`: how an identifier behaves.

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_path_data, rdma_cm_id};

use super::Identifier;
use crate::error::VerbError;
use crate::ibverbs::device_context::LinkLayer;
use crate::rdmacm::communication_manager::PathRecord;

const VERB: &str = "rdma_set_option";
/// The bits that queue pairs have for the time of an acknowledgement.
const MAX_ACK_TIMEOUT: u8 = 31;

impl Identifier {
    /// `rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, …)` — whether the identifier may have an address and port
    /// that others have too which allow it, as `SO_REUSEADDR` does for sockets. Before it is
    /// [bound](Self::bind_addr); not with one that listens.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier listens or is connected; or it is bound, and `reuse` is false.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    pub fn set_reuse_address(&self, reuse: bool) -> Result<(), VerbError> {
        let option = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_REUSEADDR);
        self.set_option(option, c_int::from(reuse), "the identifier has an address already: choose before it is bound")
    }

    /// `rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, …)` — whether an identifier that listens on an address of IPv6
    /// leaves IPv4 alone, as `IPV6_V6ONLY` does for sockets. Without a choice, the system's is taken (`net.ipv6.bindv6only`).
    /// Before it is [bound](Self::bind_addr).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier listens or is connected.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    pub fn set_af_only(&self, af_only: bool) -> Result<(), VerbError> {
        let option = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_AFONLY);
        let state = "the identifier listens or has a connection: choose before it is bound";
        self.set_option(option, c_int::from(af_only), state)
    }

    /// `rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, …)` — the type of service of the connection's packets: the byte of
    /// IPv4's header (traffic class in IPv6's), with six bits of DSCP at the top. It counts where it is set before
    /// [`resolve_route`](Self::resolve_route); connections that come to who listens have what the listener has.
    ///
    /// # Errors
    ///
    /// The errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    pub fn set_type_of_service(&self, type_of_service: u8) -> Result<(), VerbError> {
        let option = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_TOS);
        self.set_option(option, type_of_service, "the identifier does not take it in this state")
    }

    /// `rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, …)` — how long the connection's queue pair waits for an
    /// acknowledgement before it sends again: 4.096 µs × 2^`timeout`, at most 31; 0 is without end. In place of what the connection
    /// manager finds by the length of the way. Before [`connect`](Self::connect) or [`accept`](Self::accept), on either side for
    /// itself.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: it is above 31; or the identifier is for datagrams, which nobody acknowledges.
    /// - `ENOSYS`: the kernel does not have the option: before Linux 5.1.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    pub fn set_ack_timeout(&self, timeout: u8) -> Result<(), VerbError> {
        if timeout > MAX_ACK_TIMEOUT {
            let hint = format!(
                "the timeout is {timeout}, and queue pairs have 5 bits for it: at most {MAX_ACK_TIMEOUT} (4.096 us times 2 to \
                 the power of it; 0 is without end)"
            );
            return Err(VerbError::invalid(VERB, hint));
        }
        let option = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_ACK_TIMEOUT);
        let state = "only queue pairs for reliable connections wait for acknowledgements, not those for datagrams";
        self.set_option(option, timeout, state)
    }

    /// `rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, …)` — the route to the resolved address, for both directions, in
    /// place of [`resolve_route`](Self::resolve_route): InfiniBand's subnet manager is not asked.
    /// [`RouteResolved`](super::super::EventKind::RouteResolved) comes.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier is on no port of InfiniBand; no address is resolved, or a route is already.
    /// - else the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "RDMA_OPTION_IB_PATH")]
    #[doc(alias = "ibv_path_data")]
    pub fn set_path(&self, path: &PathRecord) -> Result<(), VerbError> {
        let port = self.port_num();
        let link_layer = self.with_device(|context| context.query_port(port?).ok()).map(|port| port.link_layer());
        // The kernel takes it for other links too, and then has a route of a kind that they do not have.
        if link_layer == Some(LinkLayer::Ethernet) {
            return Err(VerbError::invalid(
                VERB,
                "the identifier is not on a port of InfiniBand: elsewhere the routing table has the route, see resolve_route",
            ));
        }
        let mut data = path.to_data();
        // SAFETY: the identifier is live, and the struct, which has integers alone, can be read for the whole call.
        let set = self.call_on_device(VERB, |id| unsafe {
            raw_option(id, (sys::RDMA_OPTION_IB, sys::RDMA_OPTION_IB_PATH), &mut data)
        });
        set.map_err(|error| explain(error, "no address is resolved, or there is a route already"))
    }

    /// An option of integers, as C has it; `state` is what `EINVAL` means.
    fn set_option<T: Copy>(&self, option: (u32, u32), mut value: T, state: &'static str) -> Result<(), VerbError> {
        // SAFETY: the identifier is live, and the value, an integer, can be read for the whole call.
        self.call(VERB, |id| unsafe { raw_option(id, option, &mut value) }).map_err(|error| explain(error, state))
    }
}

/// # Safety
///
/// The identifier is live, and all bytes of the value are written.
unsafe fn raw_option<T>(id: *mut rdma_cm_id, (level, name): (u32, u32), value: &mut T) -> c_int {
    let value: *mut T = value;
    // SAFETY: the caller's promise; so many bytes are there, and the library does not write them.
    unsafe { sys::rdma_set_option(id, level as c_int, name as c_int, value.cast(), size_of::<T>()) }
}

#[cold]
fn explain(error: VerbError, state: &'static str) -> VerbError {
    match error.errno().raw() {
        libc::EINVAL if error.hint().is_none() => error.with_hint(state),
        libc::ENOSYS => error.with_hint("the kernel does not have the option"),
        _ => error,
    }
}

// What the kernel looks for among those that it is given: the length is that of one.
const _: () = assert!(size_of::<ibv_path_data>() == 72);
