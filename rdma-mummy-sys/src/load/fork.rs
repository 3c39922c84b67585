//! Preparing for `fork(2)`, in every provider.

use core::ffi::c_int;

use super::failure;
use super::front::front;
use super::ibverbs::{IbverbsTable, library};
use super::provider;
use crate::bindings::verbs::ibv_fork_status;

/// The tables of the system's library, loaded now if necessary, and of each provider.
fn tables() -> impl Iterator<Item = &'static IbverbsTable> {
    let system = library().ok().map(|library| library.table());
    system.into_iter().chain(provider::all().map(|registered| registered.ibverbs()))
}

/// `ibv_fork_init`: see `ibv_fork_init(3)`. Prepares the system's library and each provider that has such a function.
/// Providers registered later are not prepared.
///
/// # Errors
///
/// After calling all of them, returns the first errno value that one returned; `EOPNOTSUPP` if there was none to call.
///
/// # Safety
///
/// No memory is registered yet.
pub unsafe extern "C" fn ibv_fork_init() -> c_int {
    front!(IbverbsTable, ibv_fork_init());
    tables()
        .filter_map(|table| table.ibv_fork_init)
        // SAFETY: the caller upholds the contract for all of them.
        .map(|prepare| unsafe { prepare() })
        .reduce(|first, next| if first == 0 { next } else { first })
        .unwrap_or_else(|| failure::code(libc::EOPNOTSUPP))
}

/// `ibv_is_fork_initialized`: see `ibv_is_fork_initialized(3)`. Returns the result of the system's library, else of the
/// first provider with this function, else `IBV_FORK_DISABLED` with errno `EOPNOTSUPP`.
///
/// # Safety
///
/// As in C: this function has no other requirements.
pub unsafe extern "C" fn ibv_is_fork_initialized() -> ibv_fork_status {
    front!(IbverbsTable, ibv_is_fork_initialized());
    match tables().find_map(|table| table.ibv_is_fork_initialized) {
        // SAFETY: the function takes no arguments.
        Some(status) => unsafe { status() },
        None => failure::fork_disabled(libc::EOPNOTSUPP),
    }
}
