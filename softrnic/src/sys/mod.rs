//! Services of the operating system and the processor: forks, addresses, clocks, signals, locks.

pub(crate) mod addresses;
pub(crate) mod changes;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod credentials;
pub(crate) mod datagram;
pub(crate) mod descriptor;
pub(crate) mod errno;
pub(crate) mod exit;
pub(crate) mod fork;
pub(crate) mod guard;
pub(crate) mod rundown;
pub(crate) mod signals;
pub(crate) mod socket_set;
pub(crate) mod sync;
pub(crate) mod tcp;
pub(crate) mod thread;
pub(crate) mod udp;
pub(crate) mod usage;

use std::sync::PoisonError;

/// Ignores poisoning: even after a panic, data under a lock is consistent, because no change is left incomplete.
pub(crate) fn unpoisoned<T>(result: Result<T, PoisonError<T>>) -> T {
    result.unwrap_or_else(PoisonError::into_inner)
}

/// Returns bytes that identify this host: its name and, if present, its machine ID.
pub(crate) fn identity() -> Vec<u8> {
    if cfg!(miri) {
        return Vec::new();
    }
    let mut identity = vec![0; 256];
    // SAFETY: `identity` has this many writable bytes.
    if unsafe { libc::gethostname(identity.as_mut_ptr().cast(), identity.len()) } != 0 {
        identity.clear();
    }
    identity.truncate(identity.iter().position(|&byte| byte == 0).unwrap_or(identity.len()));
    identity.push(0);
    // Without a machine ID, the name alone identifies the host.
    identity.extend(std::fs::read("/etc/machine-id").unwrap_or_default());
    identity
}
