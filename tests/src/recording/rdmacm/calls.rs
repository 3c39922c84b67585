//! What every call on an identifier goes through: whose it is, whether it is there, and who else is at it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::Manager;
use super::id::Identifier;
use crate::recording::calls::Kind;
use crate::recording::device;
use crate::recording::failure::set_errno;
use crate::recording::state::{Device, Inner};

/// The device of each object that was ever made.
static DEVICES: Mutex<BTreeMap<usize, &'static Device>> = Mutex::new(BTreeMap::new());

/// A new object is of this device.
pub(super) fn belongs<T>(object: *const T, device: &'static Device) {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner).insert(object.addr(), device);
}

/// The device of an object, also of one that was destroyed.
pub(super) fn device_of<T>(object: *const T) -> Option<&'static Device> {
    DEVICES.lock().unwrap_or_else(PoisonError::into_inner).get(&object.addr()).copied()
}

/// The device of a call on no object, or `ENODEV`.
pub(super) fn own_device() -> Result<&'static Device, c_int> {
    device::last().ok_or(libc::ENODEV)
}

/// What a call does with the C struct of the identifier.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Reads,
    Writes,
}

/// A call on an identifier.
#[derive(Clone, Copy)]
pub(super) struct On {
    pub(super) device: &'static Device,
    pub(super) id: *mut ffi::rdma_cm_id,
}

impl On {
    pub(super) fn lock(&self) -> MutexGuard<'static, Inner> {
        self.device.state.lock()
    }

    /// Changes what is remembered of the identifier, or reads it.
    pub(super) fn with<T>(&self, look: impl FnOnce(&mut Identifier) -> T) -> Result<T, c_int> {
        self.lock().manager.id(self.id.addr()).map(look)
    }

    /// Writes down what C would not survive.
    pub(super) fn crash<T>(&self, what: &str) -> Result<T, c_int> {
        self.lock().violation(what);
        Err(libc::EINVAL)
    }
}

impl Manager {
    pub(super) fn id(&mut self, id: usize) -> Result<&mut Identifier, c_int> {
        self.ids.get_mut(&id).ok_or(libc::EINVAL)
    }
}

/// What C returns.
pub(super) fn answer(result: Result<(), c_int>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// A call on a device: writes it down, fails it where it is to, and writes down what it failed with otherwise.
pub(super) fn on_device<T>(
    device: &'static Device,
    verb: &'static str,
    arguments: &[(&'static str, u64)],
    body: impl FnOnce() -> Result<T, c_int>,
) -> Result<T, c_int> {
    let (inner, failure) = device.state.enter(verb, arguments);
    drop(inner);
    if let Some(failure) = failure {
        return Err(failure.errno());
    }
    let result = body();
    if let Err(errno) = &result {
        let mut inner = device.state.lock();
        if let Some(call) = inner.calls.iter_mut().rev().find(|call| call.verb == verb) {
            call.failed = Some(*errno);
        }
    }
    device.state.acknowledged.notify_all();
    result
}

/// A call on an identifier.
pub(super) fn on_id<T>(
    verb: &'static str,
    id: *mut ffi::rdma_cm_id,
    access: Access,
    arguments: &[(&'static str, u64)],
    body: impl FnOnce(On) -> Result<T, c_int>,
) -> Result<T, c_int> {
    let Some(device) = device_of(id) else { return Err(libc::EINVAL) };
    let mut all = vec![("id", id.addr() as u64)];
    all.extend_from_slice(arguments);
    on_device(device, verb, &all, || {
        begin(&mut device.state.lock(), id.addr(), verb, access)?;
        let result = body(On { device, id });
        end(&mut device.state.lock(), id.addr(), access);
        result
    })
}

/// A call begins: the identifier has to be there, and nobody else at it while its C struct is written.
pub(super) fn begin(inner: &mut Inner, id: usize, verb: &'static str, access: Access) -> Result<(), c_int> {
    if !inner.is_live(Kind::Identifier, id, verb) {
        return Err(libc::EINVAL);
    }
    let found = inner.manager.id(id)?;
    let other = found.writer.or_else(|| found.readers.last().copied().filter(|_| access == Access::Writes));
    match access {
        Access::Reads => found.readers.push(verb),
        Access::Writes => found.writer = Some(verb),
    }
    if let Some(other) = other {
        inner.violation(format!("{verb} on an identifier while {other} ran on it"));
    }
    Ok(())
}

/// It is over, and so may be the identifier.
pub(super) fn end(inner: &mut Inner, id: usize, access: Access) {
    let Ok(found) = inner.manager.id(id) else { return };
    match access {
        Access::Reads => drop(found.readers.pop()),
        Access::Writes => found.writer = None,
    }
}

/// A queue pair is destroyed by the program: an identifier that it was made through has forgotten it by then.
pub(in crate::recording) fn queue_pair_destroyed(inner: &mut Inner, qp: usize) {
    // SAFETY: identifiers are never freed.
    if inner.manager.ids.values().any(|id| id.qp == qp && unsafe { (*id.c).qp }.addr() == qp) {
        inner.violation("a queue pair was destroyed that an identifier still holds");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::Recording;
    use crate::recording::rdmacm::id::make;

    #[test]
    fn who_writes_is_alone() {
        let recording = Recording::new();
        let Ok(device) = own_device() else { panic!("no device") };
        let kind = (ffi::rdma_port_space::RDMA_PS_TCP, ffi::ibv_qp_type::IBV_QPT_RC);
        let mut inner = device.state.lock();
        let id = make(device, &mut inner, None, std::ptr::null_mut(), kind).addr();
        let both = [("first", Access::Reads), ("second", Access::Reads)];
        assert!(both.iter().all(|&(verb, access)| begin(&mut inner, id, verb, access).is_ok()));
        assert_eq!(inner.violations, [""; 0]);
        assert_eq!(begin(&mut inner, id, "third", Access::Writes), Ok(()));
        both.iter().for_each(|&(_, access)| end(&mut inner, id, access));
        assert_eq!(begin(&mut inner, id, "fourth", Access::Reads), Ok(()));
        drop(inner);
        let found = recording.violations();
        assert_eq!(found[0], "third on an identifier while second ran on it");
        assert_eq!(found[1..], ["fourth on an identifier while third ran on it"]);
    }
}
