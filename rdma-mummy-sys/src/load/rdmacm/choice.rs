//! Who serves a new connection, which no argument tells.

use core::ffi::c_int;
use std::env;
use std::sync::{PoisonError, RwLock};

use super::library;
use crate::load::provider::{self, ProviderId, SYSTEM};
use crate::load::route::Owner;
use crate::load::{gate, ibverbs};

/// The environment variable that names who serves new connections: `system`, or the name of a provider.
pub const VARIABLE: &str = "RDMA_MUMMY_RDMACM";

/// Who serves connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Choice {
    /// What the environment variable [`VARIABLE`] names. If it is not set: the system, where its library loads and it
    /// has a device, or where no provider in this process has a connection manager; else the first provider that has
    /// one.
    #[default]
    Automatic,
    /// The system's library.
    System,
    /// This provider.
    Provider(ProviderId),
}

static CHOICE: RwLock<Choice> = RwLock::new(Choice::Automatic);

/// Sets who serves the event channels, the identifiers without a channel and the address lists that are made from now
/// on, and returns what was set before. Connections that exist stay where they are.
pub fn choose(choice: Choice) -> Choice {
    // The value is whole whenever the lock is free, even if a thread panicked with it held.
    std::mem::replace(&mut *CHOICE.write().unwrap_or_else(PoisonError::into_inner), choice)
}

/// Who serves a connection that is made now: a provider; `None` is the system.
///
/// # Errors
///
/// `ENODEV` when the environment names a provider that does not exist.
pub fn serves() -> Result<Option<ProviderId>, c_int> {
    chosen().map(ProviderId::of)
}

/// Who serves a new connection, or `ENODEV` when the environment names a provider that does not exist.
pub(super) fn chosen() -> Result<Owner, c_int> {
    let choice = *CHOICE.read().unwrap_or_else(PoisonError::into_inner);
    match choice {
        Choice::System => Ok(Owner::System),
        Choice::Provider(provider) => Ok(Owner::Provider(provider.registered())),
        Choice::Automatic => match env::var(VARIABLE).ok().filter(|name| !name.is_empty()) {
            Some(name) if name == SYSTEM => Ok(Owner::System),
            Some(name) => {
                let provider = ProviderId::by_name(&name).ok_or(libc::ENODEV)?;
                Ok(Owner::Provider(provider.registered()))
            }
            None => Ok(automatic()),
        },
    }
}

fn automatic() -> Owner {
    match provider::listed().find(|registered| registered.rdmacm().is_some()) {
        Some(registered) if !system_has_a_device() => Owner::Provider(registered),
        _ => Owner::System,
    }
}

/// Whether the libraries of the system load and list a device.
fn system_has_a_device() -> bool {
    let (Ok(_), Ok(verbs)) = (library(), ibverbs::library()) else { return false };
    let (Some(get), Some(free)) = (verbs.ibv_get_device_list, verbs.ibv_free_device_list) else { return false };
    let mut count = 0;
    // The listing takes a lock of libibverbs.
    let _hold = gate::hold();
    // SAFETY: both are functions of the library, `count` can be written to, and the list is freed once.
    unsafe {
        let list = get(&raw mut count);
        if !list.is_null() {
            free(list);
        }
    }
    count > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_serves_is_who_was_chosen() {
        let before = choose(Choice::System);
        assert!(matches!(serves(), Ok(None)));
        choose(before);
    }
}
