//! What `rdma_mummy.h` declares.

use core::ffi::{c_char, c_int};
use core::ptr;

use rdma_mummy_sys::load::{Library, LoadError, ibverbs, rdmacm};

use crate::soft;

/// Adds softrnic's devices to those of this process. Zero, or the errno value, which is also set.
#[unsafe(no_mangle)]
extern "C" fn rdma_mummy_register_softrnic() -> c_int {
    soft::ready();
    match soft::register() {
        Ok(()) => 0,
        Err(code) => {
            // SAFETY: libc gives the address of this thread's errno, which is valid and aligned for as long as the thread runs.
            unsafe { *libc::__errno_location() = code };
            code
        }
    }
}

/// Says in words what is behind the functions, a line for each library, and returns how long the text is.
///
/// # Safety
///
/// `text` can be written to for `size` bytes, or `size` is 0.
#[unsafe(no_mangle)]
unsafe extern "C" fn rdma_mummy_describe(text: *mut c_char, size: usize) -> usize {
    soft::ready();
    let all = format!(
        "libibverbs: {}\nlibrdmacm: {}\nsoftrnic: {}\n",
        library(ibverbs::library()),
        library(rdmacm::library()),
        soft::state()
    );
    // As snprintf does: what fits, and a zero after it.
    if size > 0 && !text.is_null() {
        let length = all.len().min(size - 1);
        // SAFETY: `length` bytes are in the string, and one more than that can be written to by contract; a string of ours is
        // nowhere in the caller's memory.
        unsafe {
            ptr::copy_nonoverlapping(all.as_ptr().cast(), text, length);
            *text.add(length) = 0;
        }
    }
    all.len()
}

/// Which file was loaded, or why none.
fn library<T>(loaded: Result<&'static Library<T>, LoadError>) -> String {
    let library = match loaded {
        Ok(library) => library,
        Err(error) => return error.to_string(),
    };
    let file = library.path().map_or_else(|| String::from("loaded"), |path| path.display().to_string());
    let release = library.release().map(|release| format!(", of rdma-core {release}"));
    format!("{file}{}", release.unwrap_or_default())
}
