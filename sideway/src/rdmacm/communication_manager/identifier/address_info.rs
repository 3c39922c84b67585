//! Asynchronous address lookups, which require RDMACM_1.4.

use std::ptr;

use rdma_mummy_sys::since_v44;

use super::Identifier;
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::rdmacm::communication_manager::address_info::{List, Lookup};
use crate::rdmacm::communication_manager::{AddressInfo, GetAddressInfoError};

impl Identifier {
    /// `rdma_resolve_addrinfo(id, node, service, hints)` — starts an address lookup like that of
    /// [`getaddrinfo`](super::super::getaddrinfo). The lookup ends with the event
    /// [`AddressInfoResolved`](super::super::EventKind::AddressInfoResolved) or
    /// [`AddressInfoError`](super::super::EventKind::AddressInfoError). Requires RDMACM_1.4 (after rdma-core 56).
    ///
    /// With [`SubnetAdministrator`](super::super::AddressInfoFlags::SubnetAdministrator) the call queries the subnet
    /// administrator. This requires Linux 6.18, and an identifier that is bound to an InfiniBand port. `node` must be
    /// `None`, and `service` is the name or the number of a service. The first result becomes the identifier's
    /// destination, so [`resolve_route`](Self::resolve_route) may follow.
    ///
    /// Without this flag, the library queries the name service and waits inside this call. During the call, no thread
    /// can take events of the channel. For a node that is not numeric, call [`getaddrinfo`](super::super::getaddrinfo)
    /// on another thread instead.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: librdmacm is too old for this function.
    /// - Otherwise the errors of [`getaddrinfo`](super::super::getaddrinfo).
    ///
    /// # References
    ///
    /// [rdma_resolve_addrinfo(3)](https://github.com/linux-rdma/rdma-core/blob/master/librdmacm/man/rdma_resolve_addrinfo.3.in.rst)
    #[doc(alias = "rdma_resolve_addrinfo")]
    pub fn resolve_addrinfo(
        &self,
        node: Option<&str>,
        service: Option<&str>,
        hints: &AddressInfo,
    ) -> Result<(), GetAddressInfoError> {
        let lookup = Lookup::new("rdma_resolve_addrinfo", node, service, hints)?;
        self.with(|id| {
            // SAFETY: the identifier is live and locked. The names and the hints are readable during the call.
            lookup.run(|node, service, hints| unsafe { since_v44::rdma_resolve_addrinfo(id, node, service, hints) })
        })
    }

    /// `rdma_query_addrinfo(id, &info)` — returns the result of [`resolve_addrinfo`](Self::resolve_addrinfo), after
    /// [`AddressInfoResolved`](super::super::EventKind::AddressInfoResolved). The C results are copied and freed.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: librdmacm is too old for this function.
    /// - Otherwise the errno of the library, if there is no result.
    ///
    /// # References
    ///
    /// [rdma_query_addrinfo(3)](https://github.com/linux-rdma/rdma-core/blob/master/librdmacm/man/rdma_query_addrinfo.3.in.rst)
    #[doc(alias = "rdma_query_addrinfo")]
    pub fn query_addrinfo(&self) -> Result<Vec<AddressInfo>, VerbError> {
        const VERB: &str = "rdma_query_addrinfo";
        let mut list = ptr::null_mut();
        // SAFETY: the identifier is live, and `list` is writable.
        self.call(VERB, |id| unsafe { since_v44::rdma_query_addrinfo(id, &mut list) }).map_err(|error| match error
            .errno()
            .raw()
        {
            libc::EOPNOTSUPP => error.with_hint("librdmacm is older than RDMACM_1.4; upgrade rdma-core"),
            _ => error.with_hint("there is no result; call resolve_addrinfo first and wait for AddressInfoResolved"),
        })?;
        let list = check_pointer(VERB, list)?;
        // SAFETY: the library has just returned this list.
        Ok(unsafe { List::new(list) }.copy())
    }
}
