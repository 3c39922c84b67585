//! The open devices of the connection manager: those of the system, then those of each provider in this process.

use core::ffi::c_int;

use super::{RdmacmTable, library, loaded};
use crate::bindings::verbs::ibv_context;
use crate::load::failure;
use crate::load::provider::{self, Registered};
use crate::load::route::{Owner, Routed, stamp};
use crate::load::union::{Lists, Source};

static LISTS: Lists<ibv_context> = Lists::new();

/// `rdma_get_devices`: see `rdma_get_devices(3)`. The contexts of the system come first, then those of each provider
/// that has a connection manager. One that fails does not hide the others.
///
/// # Errors
///
/// Null when all failed, with the errno of the first failure: `EOPNOTSUPP` when the library is missing, which
/// [`library`] explains.
///
/// # Safety
///
/// `num_devices` is null or can be written to.
pub unsafe extern "C" fn rdma_get_devices(num_devices: *mut c_int) -> *mut *mut ibv_context {
    let system = library().ok().map(|library| library.table());
    let unavailable = system.and_then(|table| table.rdma_get_devices).is_none().then_some(libc::EOPNOTSUPP);
    let providers = provider::listed().filter_map(|registered| Some((registered.rdmacm()?, Some(registered))));
    let sources = system.map(|table| (table, None)).into_iter().chain(providers).filter_map(source);
    // SAFETY: `num_devices` is null or writable by contract, and the functions of a table are a pair of this kind.
    unsafe { LISTS.join(num_devices, unavailable, sources) }
}

type Element = (&'static RdmacmTable, Option<&'static Registered>);

fn source((table, registered): Element) -> Option<Source<ibv_context, impl Fn(*mut ibv_context) -> bool>> {
    let each = move |context: *mut ibv_context| match registered {
        Some(registered) if !context.is_null() => {
            // SAFETY: the context is of the list that this provider has made just now, and its device lives as long.
            unsafe {
                if !(*context).device.is_null() {
                    stamp((*context).device, registered);
                }
            }
            true
        }
        Some(_) => true,
        // If this object stands before libibverbs, the system's librdmacm finds the providers' devices there and opens
        // them as well. Identifiers are on the context that the provider lists.
        // SAFETY: the context is of the list that the library has made just now, and its device lives as long.
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
    // SAFETY: the caller gives the list up.
    if list.is_null() || unsafe { LISTS.free(list) } {
        return;
    }
    // What was not made here is the system library's, which is loaded if it has made a list.
    match loaded().and_then(|library| library.table().rdma_free_devices) {
        // SAFETY: the list is that of the library by contract.
        Some(free) => unsafe { free(list) },
        None => failure::nothing(libc::EOPNOTSUPP),
    }
}
