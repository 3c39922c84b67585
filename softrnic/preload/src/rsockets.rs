//! rsockets: librdmacm's own, on the system's devices alone.
//!
//! They look into the identifiers beside librdmacm's functions, and so work on identifiers of librdmacm's only. Where softrnic serves
//! identifiers a new rsocket is refused, and a program that has sockets to fall back on, as `librspreload` has, uses these.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;

use rdma_mummy_exports::rdma_mummy_sys::load::rdmacm;

type Rsocket = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    crate::register::ready();
    let system = match rdmacm::serves() {
        // SAFETY: the name is a C string.
        Ok(None) => unsafe { libc::dlsym(libc::RTLD_NEXT, c"rsocket".as_ptr()) },
        _ => ptr::null_mut(),
    };
    if system.is_null() {
        // SAFETY: libc gives the address of this thread's errno, which is valid for as long as the thread runs.
        unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
        return -1;
    }
    // SAFETY: librdmacm's function of this name has this type, and the caller keeps its contract.
    unsafe { mem::transmute::<*mut c_void, Rsocket>(system)(domain, kind, protocol) }
}
