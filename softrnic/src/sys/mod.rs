//! What the operating system and the processor give: children after `fork`, addresses, clocks, signals, locks.

pub(crate) mod addresses;
pub(crate) mod changes;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod descriptor;
pub(crate) mod errno;
pub(crate) mod fork;
pub(crate) mod guard;
pub(crate) mod rundown;
pub(crate) mod signals;
pub(crate) mod sync;
pub(crate) mod usage;

use std::sync::PoisonError;

/// What a lock guards is whole also where a thread has panicked with it held: nothing is left half-changed.
pub(crate) fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// What tells this host from others: its name, and the number that it was installed with where it has one.
pub(crate) fn identity() -> Vec<u8> {
    if cfg!(miri) {
        return Vec::new();
    }
    let mut identity = vec![0; 256];
    // SAFETY: so many bytes can be written.
    if unsafe { libc::gethostname(identity.as_mut_ptr().cast(), identity.len()) } != 0 {
        identity.clear();
    }
    identity.truncate(identity.iter().position(|&byte| byte == 0).unwrap_or(identity.len()));
    identity.push(0);
    // Where there is none, the name alone has to do.
    identity.extend(std::fs::read("/etc/machine-id").unwrap_or_default());
    identity
}
