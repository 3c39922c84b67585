//! `dlopen` of libibverbs and librdmacm, for programs that open the libraries themselves: returns this library instead.
//!
//! All other calls continue in the C library as if the program had called it. It searches the folders of the object at
//! the return address, so these calls jump there with the return address of the program.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{self, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::register;

/// The names of the libraries, which a version may follow.
const LIBRARIES: [&[u8]; 2] = [b"libibverbs.so", b"librdmacm.so"];

type Dlopen = unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void;

/// Passes the arguments to [`target`], and jumps to the function that it returns. One word aligns the stack.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "endbr64",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {target}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        target = sym target,
    )
}

/// Passes the arguments to [`target`], and branches to the function that it returns.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C" fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "bti c",
        "stp x29, x30, [sp, #-32]!",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset x29, -32",
        ".cfi_offset x30, -24",
        "mov x29, sp",
        "stp x0, x1, [sp, #16]",
        "bl {target}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "br x16",
        ".cfi_endproc",
        target = sym target,
    )
}

/// Returns the function that continues the call.
///
/// # Safety
///
/// `name` is null or a C string.
unsafe extern "C" fn target(name: *const c_char, _flags: c_int) -> Dlopen {
    // SAFETY: guaranteed by the caller.
    let is_ours = !name.is_null() && !register::is_inside() && is_library(unsafe { CStr::from_ptr(name) });
    let system = system();
    if is_ours || system.is_null() {
        return own;
    }
    // SAFETY: the C library's function has this type.
    unsafe { mem::transmute::<*mut c_void, Dlopen>(system) }
}

fn is_library(name: &CStr) -> bool {
    let name = name.to_bytes();
    let file = name.rsplit(|&byte| byte == b'/').next().unwrap_or(name);
    let version = LIBRARIES.iter().find_map(|library| file.strip_prefix(*library));
    version.is_some_and(|version| version.is_empty() || version.starts_with(b"."))
}

/// Returns the function of the C library.
fn system() -> *mut c_void {
    static SYSTEM: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let known = SYSTEM.load(Ordering::Relaxed);
    if !known.is_null() {
        return known;
    }
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) };
    SYSTEM.store(found, Ordering::Relaxed);
    found
}

/// Opens this library, which is loaded already.
unsafe extern "C" fn own(_name: *const c_char, flags: c_int) -> *mut c_void {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let system = system();
    // SAFETY: the loader compares the address with its objects; it sets `found` if it returns non-zero. The path of a
    // loaded object is a C string, and the C library's function has this type.
    unsafe {
        if system.is_null() || libc::dladdr(own as *const c_void, found.as_mut_ptr()) == 0 {
            return ptr::null_mut();
        }
        mem::transmute::<*mut c_void, Dlopen>(system)(found.assume_init().dli_fname, flags | libc::RTLD_NOLOAD)
    }
}
