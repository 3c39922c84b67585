//! The functions that `rdma_mummy.h` declares.

use core::ffi::{c_char, c_int};
use core::ptr;

use rdma_mummy_sys::load::{Library, LoadError, ibverbs, rdmacm};

use crate::soft;

/// Registers softrnic's devices in this process. Returns zero, or the errno value, which is also set.
#[unsafe(no_mangle)]
extern "C" fn rdma_mummy_register_softrnic() -> c_int {
    soft::ready();
    match soft::register() {
        Ok(()) => 0,
        Err(code) => {
            // SAFETY: libc returns the address of this thread's errno, which is valid and aligned while the thread
            // runs.
            unsafe { *libc::__errno_location() = code };
            code
        }
    }
}

/// Describes the loaded libraries, one line each, and returns the length of the text.
///
/// # Safety
///
/// `text` can be written for `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_mummy_describe(text: *mut c_char, size: usize) -> usize {
    soft::ready();
    let all = format!(
        "libibverbs: {}\nlibrdmacm: {}\nsoftrnic: {}\n",
        library(ibverbs::library()),
        library(rdmacm::library()),
        soft::state()
    );
    // As in snprintf, writes the part that fits, then a zero byte.
    if size > 0 && !text.is_null() {
        let length = all.len().min(size - 1);
        // SAFETY: `length` bytes are in the string, and one more than that can be written by contract; the string does
        // not overlap the caller's memory.
        unsafe {
            ptr::copy_nonoverlapping(all.as_ptr().cast(), text, length);
            *text.add(length) = 0;
        }
    }
    all.len()
}

/// Formats the loaded file, or the reason why none was loaded.
fn library<T>(loaded: Result<&'static Library<T>, LoadError>) -> String {
    let library = match loaded {
        Ok(library) => library,
        Err(error) => return error.to_string(),
    };
    let file = library.path().map_or_else(|| String::from("loaded"), |path| path.display().to_string());
    let release = library.release().map(|release| format!(", of rdma-core {release}"));
    format!("{file}{}", release.unwrap_or_default())
}
