//! The rsockets of librdmacm, which work only with devices of the system.
//!
//! rsockets access private fields of an identifier, so the identifier must come from librdmacm itself. If softrnic
//! serves connections, a new rsocket therefore fails. Some programs then use ordinary sockets, for example programs
//! that run with `librspreload`.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;

use rdma_mummy_exports::rdma_mummy_sys::load::rdmacm;

type Rsocket = unsafe extern "C" fn(c_int, c_int, c_int) -> c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    let _inside = crate::register::ready();
    let system = match rdmacm::serves() {
        // SAFETY: the name is a C string.
        Ok(None) => unsafe { libc::dlsym(libc::RTLD_NEXT, c"rsocket".as_ptr()) },
        _ => ptr::null_mut(),
    };
    if system.is_null() {
        // SAFETY: libc returns the address of this thread's errno, which is valid while the thread runs.
        unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
        return -1;
    }
    // SAFETY: librdmacm's function of this name has this type, and the caller keeps its contract.
    unsafe { mem::transmute::<*mut c_void, Rsocket>(system)(domain, kind, protocol) }
}
