//! Finding the system's library if a library of the same name contains this code.
//!
//! A shared object with this crate may be installed as `libibverbs.so.1`. Loading that name would return this object,
//! and every verb would call itself. So this module checks each loaded object. If it is this one, the system's library
//! is loaded by its path, which the loader treats as another object.

use core::ffi::c_void;
use std::mem::MaybeUninit;
use std::path::PathBuf;

/// Whether the function at `address` is in the same object as this code.
pub(crate) fn is_own(address: *const c_void) -> bool {
    let own = is_own as fn(*const c_void) -> bool as *const c_void;
    base(address).is_some_and(|there| base(own) == Some(there))
}

/// Returns the start of the object that contains a function.
fn base(address: *const c_void) -> Option<usize> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the loader compares the address with its objects and does not dereference it; it sets `found` if it
    // returns non-zero.
    let found = unsafe { (libc::dladdr(address, found.as_mut_ptr()) != 0).then(|| found.assume_init()) }?;
    Some(found.dli_fbase.addr())
}

/// Returns the files of this name in the library directories of distributions.
pub(crate) fn files(soname: &str) -> impl Iterator<Item = PathBuf> {
    let machine = std::env::consts::ARCH;
    let debian = ["/lib", "/usr/lib"].map(|folder| format!("{folder}/{machine}-linux-gnu"));
    let others = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib64", "/usr/local/lib"].map(String::from);
    let file = soname.to_owned();
    debian.into_iter().chain(others).map(move |folder| PathBuf::from(folder).join(&file)).filter(|file| file.is_file())
}

#[cfg(test)]
#[cfg(not(miri))] // Miri has no objects.
mod tests {
    use super::*;

    #[test]
    fn is_own_distinguishes_this_object_from_others() {
        assert!(is_own(base as fn(*const c_void) -> Option<usize> as *const c_void));
        // SAFETY: the name is a C string, and the address is only compared.
        let other = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr()) };
        assert!(!other.is_null() && !is_own(other));
        assert!(!is_own(core::ptr::null()));
    }
}
