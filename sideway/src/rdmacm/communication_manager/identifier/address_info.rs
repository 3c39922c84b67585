//! Looking for addresses by events: RDMACM_1.4.

use std::ptr;

use rdma_mummy_sys::since_v44;

use super::Identifier;
use crate::error::VerbError;
use crate::ffi::check_pointer;
use crate::rdmacm::communication_manager::address_info::{List, Lookup};
use crate::rdmacm::communication_manager::{AddressInfo, GetAddressInfoError};

impl Identifier {
    /// `rdma_resolve_addrinfo(id, node, service, hints)` — looks for addresses, as [`getaddrinfo`](super::super::getaddrinfo) does,
    /// and tells by an event: [`AddressInfoResolved`](super::super::EventKind::AddressInfoResolved) or
    /// [`AddressInfoError`](super::super::EventKind::AddressInfoError). RDMACM_1.4 (after rdma-core 56).
    ///
    /// With [`SubnetAdministrator`](super::super::AddressInfoFlags::SubnetAdministrator) the subnet administrator is asked, about an
    /// identifier that is bound to a port of InfiniBand: `node` is left out, `service` is the name or the number of a service, and
    /// the kernel is 6.18 or later. The first that is found becomes the identifier's destination, so that
    /// [`resolve_route`](Self::resolve_route) may follow.
    ///
    /// Without it the name service is asked, and the library waits for that in this call, which keeps others from taking events
    /// of the channel: where the node is not in numbers, a thread of the program's that calls
    /// [`getaddrinfo`](super::super::getaddrinfo) disturbs nobody.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: librdmacm is older.
    /// - else as [`getaddrinfo`](super::super::getaddrinfo).
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
            // SAFETY: the identifier is live and nobody else uses it; names and hints can be read for the whole call.
            lookup.run(|node, service, hints| unsafe { since_v44::rdma_resolve_addrinfo(id, node, service, hints) })
        })
    }

    /// `rdma_query_addrinfo(id, &info)` — what [`resolve_addrinfo`](Self::resolve_addrinfo) has found, after
    /// [`AddressInfoResolved`](super::super::EventKind::AddressInfoResolved). What C gives is copied, and freed.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: librdmacm is older.
    /// - else the errno of the library: nothing was found.
    ///
    /// # References
    ///
    /// [rdma_query_addrinfo(3)](https://github.com/linux-rdma/rdma-core/blob/master/librdmacm/man/rdma_query_addrinfo.3.in.rst)
    #[doc(alias = "rdma_query_addrinfo")]
    pub fn query_addrinfo(&self) -> Result<Vec<AddressInfo>, VerbError> {
        const VERB: &str = "rdma_query_addrinfo";
        let mut list = ptr::null_mut();
        // SAFETY: the identifier is live, and `list` is there to be written.
        self.call(VERB, |id| unsafe { since_v44::rdma_query_addrinfo(id, &mut list) }).map_err(|error| match error
            .errno()
            .raw()
        {
            libc::EOPNOTSUPP => error.with_hint("librdmacm is older than RDMACM_1.4"),
            _ => error.with_hint("perhaps nothing has been looked for, or AddressInfoResolved has not come yet"),
        })?;
        let list = check_pointer(VERB, list)?;
        // SAFETY: given just now.
        Ok(unsafe { List::new(list) }.copy())
    }
}
