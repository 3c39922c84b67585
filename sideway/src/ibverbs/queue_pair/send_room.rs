//! Which drivers check that an extended send queue has room before they write a request.
//!
//! The driver of a device is known by the file that its functions are in.

use std::ffi::{CStr, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use rdma_mummy_sys::load::{ibverbs, provider::ProviderId};

use crate::ibverbs::device_context::DeviceContext;

/// Drivers that check (rdma-core 64), and libraries that have softrnic in them.
const CHECKED: [&str; 6] = ["librxe", "libefa", "libionic", "libsoftrnic", "librdma_mummy", "libibverbs"];

/// Drivers that do not, and hns, which loses count of its requests if a batch is posted before ReadyToSend.
const UNCHECKED: [&str; 3] = ["libmlx5", "libbnxt_re", "libhns"];

/// The driver of an open device, unless it checks.
pub(super) fn unchecked_driver(context: &DeviceContext) -> Option<String> {
    // SAFETY: the context is open as long as it is borrowed, and its driver fills the table in before it hands it out.
    let function = unsafe { (*context.raw()).ops.poll_cq };
    let file = file_of(function.map_or(ptr::null(), |function| function as *const c_void)).unwrap_or_default();
    let is_of = |drivers: &[&str]| drivers.iter().any(|driver| file.starts_with(driver));
    if is_of(&CHECKED) || !is_of(&UNCHECKED) && is_of_the_program(context) {
        return None;
    }
    Some(if file.is_empty() { "the driver".to_owned() } else { file })
}

/// Whether the functions of the device are a table that the program has registered or installed. It has promised that they do what
/// rdma-core documents: nothing of a batch that fails is posted.
fn is_of_the_program(context: &DeviceContext) -> bool {
    // SAFETY: the context is open as long as it is borrowed.
    unsafe { ProviderId::of_context(context.raw()) }.is_some()
        || ibverbs::library().is_ok_and(|library| library.is_from_table())
}

/// The name of the file that a function is in.
fn file_of(function: *const c_void) -> Option<String> {
    // Miri has no loader to ask, and no driver of rdma-core either.
    if cfg!(miri) {
        return None;
    }
    let mut info = MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: dladdr takes any address, and fills `info` if it returns non-zero; all-zero is a legal Dl_info.
    let (found, info) = unsafe { (libc::dladdr(function, info.as_mut_ptr()), info.assume_init()) };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's name of a loaded object, terminated by zero and never freed while the object is loaded.
    let path = unsafe { CStr::from_ptr(info.dli_fname) }.to_string_lossy();
    path.rsplit('/').next().map(str::to_owned)
}
