//! The connection manager's open devices: the system's, then those of each provider in this process.

use core::ffi::c_int;

use super::{RdmacmTable, library, loaded};
use crate::bindings::verbs::ibv_context;
use crate::load::failure;
use crate::load::front::front;
use crate::load::provider::{self, Registered};
use crate::load::route::{Owner, Routed, stamp};
use crate::load::union::{Lists, Source};

static LISTS: Lists<ibv_context> = Lists::new();

/// `rdma_get_devices`: see `rdma_get_devices(3)`. Returns the system's contexts first, then those of each provider with
/// a connection manager. If one of them fails, the contexts of the others are still listed.
///
/// # Errors
///
/// If all fail, returns null with the errno of the first failure: `EOPNOTSUPP` if the library is missing ([`library`]
/// returns the reason).
///
/// # Safety
///
/// `num_devices` is null or can be written.
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    front!(RdmacmTable, rdma_get_devices(num_devices));
    let system = library().ok().map(|library| library.table());
    let unavailable = system.and_then(|table| table.rdma_get_devices).is_none().then_some(libc::EOPNOTSUPP);
    let providers = provider::listed().filter_map(|registered| Some((registered.rdmacm()?, Some(registered))));
    let sources = system.map(|table| (table, None)).into_iter().chain(providers).filter_map(source);
    // SAFETY: `num_devices` is null or writable by contract, and each table has matching functions.
    unsafe { LISTS.join(num_devices, unavailable, sources) }
}

type Element = (&'static RdmacmTable, Option<&'static Registered>);

fn source((table, registered): Element) -> Option<Source<ibv_context, impl Fn(*mut ibv_context) -> bool>> {
    let each = move |context: *mut ibv_context| match registered {
        Some(registered) if !context.is_null() => {
            // SAFETY: this provider has just put the context into its list, and its device lives as long.
            unsafe {
                if !(*context).device.is_null() {
                    stamp((*context).device, registered);
                }
            }
            true
        }
        Some(_) => true,
        // If this object replaces libibverbs, the system's librdmacm also finds the providers' devices there and opens
        // them. Identifiers use the context that the provider lists.
        // SAFETY: the library has just put the context into its list, and its device lives as long.
        None => !matches!(unsafe { context.owner() }, Owner::Provider(_)),
    };
    Some(Source { get: table.rdma_get_devices?, free: table.rdma_free_devices, each })
}

/// `rdma_free_devices`: see `rdma_get_devices(3)`. Null is ignored.
///
/// # Safety
///
/// `list` is null, or came from `rdma_get_devices` and was not freed.
pub unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    front!(RdmacmTable, rdma_free_devices(list));
    // SAFETY: the caller does not use the list again.
    if list.is_null() || unsafe { LISTS.free(list) } {
        return;
    }
    // Lists not created here come from the system's library, which is therefore loaded.
    match loaded().and_then(|library| library.table().rdma_free_devices) {
        // SAFETY: by contract the list comes from the library.
        Some(free) => unsafe { free(list) },
        None => failure::nothing(libc::EOPNOTSUPP),
    }
}
