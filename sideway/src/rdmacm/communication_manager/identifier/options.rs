//! `rdma_set_option`: options of an identifier.

use libc::c_int;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_path_data, rdma_cm_id};

use super::Identifier;
use crate::error::VerbError;
use crate::ibverbs::device_context::LinkLayer;
use crate::rdmacm::communication_manager::PathRecord;

const VERB: &str = "rdma_set_option";
/// The largest acknowledgement time-out, for which queue pairs have 5 bits.
const MAX_ACK_TIMEOUT: u8 = 31;

impl Identifier {
    /// `rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, …)` — sets whether the identifier may share its
    /// address and port with other identifiers that also permit it, as `SO_REUSEADDR` does for sockets. Call it before
    /// [`bind_addr`](Self::bind_addr). It has no effect on listeners.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier listens or is connected, or it is bound and `reuse` is false.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "rdma_set_option")]
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    pub fn set_reuse_address(&self, reuse: bool) -> Result<(), VerbError> {
        let option = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_REUSEADDR);
        self.set_option(
            option,
            c_int::from(reuse),
            "the identifier already has an address; set the option before \
            bind_addr",
        )
    }

    /// `rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, …)` — sets whether a listener on an IPv6 address
    /// excludes IPv4, as `IPV6_V6ONLY` does for sockets. The default is the system's setting (`net.ipv6.bindv6only`).
    /// Call it before [`bind_addr`](Self::bind_addr).
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier listens or is connected.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    pub fn set_af_only(&self, af_only: bool) -> Result<(), VerbError> {
        let option = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_AFONLY);
        let state = "the identifier listens or is connected; set the option before bind_addr";
        self.set_option(option, c_int::from(af_only), state)
    }

    /// `rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, …)` — sets the type of service of the connection's
    /// packets. It is a byte of the IPv4 header, or the traffic class of the IPv6 header. Its upper six bits are the
    /// DSCP. Call it before [`resolve_route`](Self::resolve_route). Accepted connections inherit the listener's value.
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
        self.set_option(
            option,
            type_of_service,
            "the identifier does not accept it in this state; set it before \
            resolve_route",
        )
    }

    /// `rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, …)` — sets how long the connection's queue pair
    /// waits for an acknowledgement before it retransmits. The time is 4.096 µs × 2^`timeout`, where `timeout` is at
    /// most 31. The value 0 means that there is no limit. This value replaces the estimate of the connection manager.
    /// Call it before [`connect`](Self::connect) or [`accept`](Self::accept); each side sets its own value.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the value exceeds 31, or the identifier is for datagrams, which are not acknowledged.
    /// - `ENOSYS`: the kernel is older than Linux 5.1, which added the option.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "RDMA_OPTION_ID_ACK_TIMEOUT")]
    pub fn set_ack_timeout(&self, timeout: u8) -> Result<(), VerbError> {
        if timeout > MAX_ACK_TIMEOUT {
            let hint = format!(
                "the timeout {timeout} is too large; use at most {MAX_ACK_TIMEOUT} (4.096 us times 2 to the power \
                of it; 0 is infinite)"
            );
            return Err(VerbError::invalid(VERB, hint));
        }
        let option = (sys::RDMA_OPTION_ID, sys::RDMA_OPTION_ID_ACK_TIMEOUT);
        let state = "datagrams are not acknowledged; set the option for reliable connections only";
        self.set_option(option, timeout, state)
    }

    /// `rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, …)` — sets the route to the resolved address, for both
    /// directions. This replaces [`resolve_route`](Self::resolve_route), so InfiniBand's subnet manager is not queried.
    /// [`RouteResolved`](super::super::EventKind::RouteResolved) follows.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the identifier is not on an InfiniBand port, the address is not resolved, or the route is already
    ///   resolved.
    /// - Otherwise the errno of the library.
    ///
    /// # References
    ///
    /// [rdma_set_option(3)](https://man7.org/linux/man-pages/man3/rdma_set_option.3.html)
    #[doc(alias = "RDMA_OPTION_IB_PATH")]
    #[doc(alias = "ibv_path_data")]
    pub fn set_path(&self, path: &PathRecord) -> Result<(), VerbError> {
        let port = self.port_num();
        let link_layer = self.with_device(|context| context.query_port(port?).ok()).map(|port| port.link_layer());
        // The kernel also accepts a path for other link layers, and then uses a route of the wrong kind.
        if link_layer == Some(LinkLayer::Ethernet) {
            return Err(VerbError::invalid(
                VERB,
                "the identifier is not on an InfiniBand port; call resolve_route, which uses the routing table",
            ));
        }
        let mut data = path.to_data();
        // SAFETY: the identifier is live, and the struct, which has only integers, is readable during the call.
        let set = self.call_on_device(VERB, |id| unsafe {
            raw_option(id, (sys::RDMA_OPTION_IB, sys::RDMA_OPTION_IB_PATH), &mut data)
        });
        set.map_err(|error| {
            explain(
                error,
                "the address is not resolved, or the route already is; call this between \
            the two",
            )
        })
    }

    /// Sets an option, whose value is an integer in C form. `state` explains `EINVAL`.
    fn set_option<T: Copy>(&self, option: (u32, u32), mut value: T, state: &'static str) -> Result<(), VerbError> {
        // SAFETY: the identifier is live, and the value, an integer, is readable during the call.
        self.call(VERB, |id| unsafe { raw_option(id, option, &mut value) }).map_err(|error| explain(error, state))
    }
}

/// # Safety
///
/// The identifier is live, and all bytes of the value are initialised.
unsafe fn raw_option<T>(id: *mut rdma_cm_id, (level, name): (u32, u32), value: &mut T) -> c_int {
    let value: *mut T = value;
    // SAFETY: this follows from the contract of this function. The size matches, and the library does not write to the
    // value.
    unsafe { sys::rdma_set_option(id, level as c_int, name as c_int, value.cast(), size_of::<T>()) }
}

#[cold]
fn explain(error: VerbError, state: &'static str) -> VerbError {
    match error.errno().raw() {
        libc::EINVAL if error.hint().is_none() => error.with_hint(state),
        libc::ENOSYS => error.with_hint("the kernel does not support the option; upgrade it"),
        _ => error,
    }
}

// The kernel checks that the length is that of one struct.
const _: () = assert!(size_of::<ibv_path_data>() == 72);
