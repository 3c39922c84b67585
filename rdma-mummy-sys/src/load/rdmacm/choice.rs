//! The choice of the provider of a new connection, which no argument determines.

use core::ffi::c_int;
use std::env;
use std::sync::{PoisonError, RwLock};

use super::library;
use crate::load::provider::{self, ProviderId, SYSTEM};
use crate::load::route::Owner;
use crate::load::{gate, ibverbs};

/// The environment variable that names the provider of new connections: `system`, or a provider's name.
pub const VARIABLE: &str = "RDMA_MUMMY_RDMACM";

/// The provider of new connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Choice {
    /// The provider that the environment variable [`VARIABLE`] names. By default: the system, if its library loads and
    /// lists a device, or if no provider in this process has a connection manager; else the first provider with one.
    #[default]
    Automatic,
    /// The system's library.
    System,
    /// The provider with this ID.
    Provider(ProviderId),
}

static CHOICE: RwLock<Choice> = RwLock::new(Choice::Automatic);

/// Sets the provider of event channels, identifiers without a channel and address lists created from now on, and
/// returns the previous choice. Existing connections do not change.
pub fn choose(choice: Choice) -> Choice {
    // The value is consistent even if a thread panicked with the lock held.
    std::mem::replace(&mut *CHOICE.write().unwrap_or_else(PoisonError::into_inner), choice)
}

/// Returns the provider of a connection created now; `None` is the system.
///
/// # Errors
///
/// `ENODEV` if the environment variable names an unknown provider.
pub fn serves() -> Result<Option<ProviderId>, c_int> {
    chosen().map(ProviderId::of)
}

/// Returns the provider of a new connection, or `ENODEV` if the environment variable names an unknown provider.
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

/// Whether the system's libraries load and list a device.
fn system_has_a_device() -> bool {
    let (Ok(_), Ok(verbs)) = (library(), ibverbs::library()) else { return false };
    let (Some(get), Some(free)) = (verbs.ibv_get_device_list, verbs.ibv_free_device_list) else { return false };
    let mut count = 0;
    // Listing takes a lock of libibverbs.
    let _hold = gate::hold();
    // SAFETY: both are functions of the library, `count` can be written, and the list is freed once.
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
    fn chosen_provider_serves() {
        let before = choose(Choice::System);
        assert!(matches!(serves(), Ok(None)));
        choose(before);
    }
}
