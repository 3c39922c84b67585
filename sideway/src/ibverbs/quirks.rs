//! Workarounds for faults of drivers. `manual::quirks` describes each of them.

use std::ffi::CStr;
use std::mem::MaybeUninit;

use libc::c_int;
use rdma_mummy_sys::ibv_cq_ex;
use rdma_mummy_sys::load::{front, ibverbs, provider::ProviderId};

use super::device_context::DeviceContext;
use crate::error::Errno;

/// Works around a fault of rdma-core's soft-RoCE driver in extended completion queues. Its `next_poll` advances the
/// cursor and releases the lock even if it finds nothing, and `end_poll` does both again. This function replaces
/// `next_poll` by a function that finds nothing and changes nothing, so each poll returns only one completion. Returns
/// whether the fault applies.
///
/// # Safety
///
/// `cq` is a live extended queue of `driver`, and not polled.
pub(crate) unsafe fn mend_completion_queue(driver: Driver, cq: *mut ibv_cq_ex) -> bool {
    let faulty = driver == Driver::SoftRoce;
    if faulty {
        // SAFETY: the queue is live and not polled, so its functions may be replaced.
        unsafe { (*cq).next_poll = Some(nothing_further) };
    }
    faulty
}

unsafe extern "C" fn nothing_further(_cq: *mut ibv_cq_ex) -> c_int {
    libc::ENOENT
}

/// The drivers that this crate distinguishes because of their faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    /// `librxe-rdmavNN.so`
    SoftRoce,
    /// `libbnxt_re-rdmavNN.so`
    BnxtRe,
    /// `libmlx5.so`, `libmlx5-rdmavNN.so`
    Mlx5,
    /// A table of functions that the program has registered.
    InProcess,
    /// Any other driver of rdma-core, or a driver that is linked into the program.
    Other,
}

impl Driver {
    /// Returns the driver of an open device. It is identified by the file that contains its functions.
    pub(crate) fn of(context: &DeviceContext) -> Self {
        let file = driver_file(context).unwrap_or_default();
        let is_of = |name| file.starts_with(name);
        if is_of("librxe") {
            Self::SoftRoce
        } else if is_of("libbnxt_re") {
            Self::BnxtRe
        } else if is_of("libmlx5") {
            Self::Mlx5
        } else if !file.contains("-rdmav") && is_in_process(context) {
            Self::InProcess
        } else {
            Self::Other
        }
    }

    /// Whether `ibv_bind_mw` may be called without a region, which unbinds the window. mlx4, irdma, ionic and soft-RoCE
    /// dereference the null pointer.
    pub(crate) fn unbinds(self) -> bool {
        matches!(self, Self::Mlx5 | Self::InProcess)
    }

    /// Returns the reason why the driver's extended queue pairs are not safe to post to.
    pub(crate) fn refuses_extended(self) -> Option<&'static str> {
        (self == Self::BnxtRe).then_some(
            "libbnxt_re writes requests of a batch, and of a full queue, outside the memory of its extended queue \
            pairs",
        )
    }

    /// Whether the driver checks the lengths of inline data and of lists against the limits of its extended queue
    /// pairs. The hns driver is not included, because it adds the lengths in 32 bits, which may overflow.
    pub(crate) fn compares_lengths(self) -> bool {
        matches!(self, Self::Mlx5 | Self::InProcess)
    }

    /// Returns the reason why the driver must not resize completion queues.
    pub(crate) fn refuses_resize(self) -> Option<&'static str> {
        (self == Self::BnxtRe)
            .then_some("libbnxt_re frees the queue in use if the kernel rejects the new size; build another queue")
    }

    /// Whether a completion queue is unusable after `ibv_resize_cq` returned this error.
    pub(crate) fn loses_queue(self, errno: Errno) -> bool {
        // After a failed mmap the driver has no memory for the queue. Errors of the kernel are reported before the
        // mmap.
        self == Self::SoftRoce && !matches!(errno.raw(), libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS)
    }
}

/// Whether the device's functions are a table that the program has registered or installed. By contract, these
/// functions behave as rdma-core documents: a failed batch posts nothing.
pub(crate) fn is_in_process(context: &DeviceContext) -> bool {
    provider(context).is_some() || ibverbs::library().is_ok_and(|library| library.is_from_table())
}

/// Returns the name of the provider in this process to which an open device belongs.
pub(crate) fn provider(context: &DeviceContext) -> Option<&'static str> {
    // SAFETY: the context is open as long as it is borrowed.
    unsafe { ProviderId::of_context(context.raw()) }.map(ProviderId::name)
}

/// Returns the name of the file that contains an open device's functions.
pub(crate) fn driver_file(context: &DeviceContext) -> Option<String> {
    // Under Miri, there is no loader and no driver of rdma-core.
    if cfg!(miri) {
        return None;
    }
    // SAFETY: the context is open as long as it is borrowed, and its driver filled the table before it returned the
    // context.
    let function = unsafe { front::driver(context.raw()) };
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr accepts any address, even null, and fills `info` if it returns non-zero. All zeros are a valid Dl_info.
    let (found, info) = unsafe { (libc::dladdr(function, info.as_mut_ptr()), info.assume_init()) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: this is the loader's name of a loaded object. It ends in a zero byte, and is not freed while the object
    // is loaded.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    path.rsplit('/').next().map(str::to_owned)
}
