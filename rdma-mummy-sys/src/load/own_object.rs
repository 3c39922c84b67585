//! Where the library of the system is when what bears its name is this code itself.
//!
//! A shared object made of this crate may take the place of `libibverbs.so.1`. Whoever then asks the loader for that name gets
//! the object back, and every verb would call itself. So what was opened is looked at, and if it is this object the real library
//! is looked for by its path, which the loader takes for another.

use core::ffi::c_void;
use std::mem::MaybeUninit;
use std::path::PathBuf;

/// Whether the function at `address` is in the same object as this one.
pub(crate) fn is_own(address: *const c_void) -> bool {
    let own = is_own as fn(*const c_void) -> bool as *const c_void;
    base(address).is_some_and(|there| base(own) == Some(there))
}

/// Where the object of a function begins.
fn base(address: *const c_void) -> Option<usize> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: the loader compares the address with those of its objects and does not follow it; it fills `found` in if it returns
    // something else than zero.
    let found = unsafe { (libc::dladdr(address, found.as_mut_ptr()) != 0).then(|| found.assume_init()) }?;
    Some(found.dli_fbase.addr())
}

/// The files of this name in the folders that distributions keep libraries in.
pub(crate) fn files(soname: &str) -> impl Iterator<Item = PathBuf> {
    let machine = std::env::consts::ARCH;
    let debian = ["/lib", "/usr/lib"].map(|folder| format!("{folder}/{machine}-linux-gnu"));
    let others = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib64", "/usr/local/lib"].map(String::from);
    let file = soname.to_owned();
    debian.into_iter().chain(others).map(move |folder| PathBuf::from(folder).join(&file)).filter(|file| file.is_file())
}

#[cfg(test)]
#[cfg(not(miri))] // There are no objects in the interpreter.
mod tests {
    use super::*;

    #[test]
    fn a_function_of_this_object_is_its_own_and_one_of_another_is_not() {
        assert!(is_own(base as fn(*const c_void) -> Option<usize> as *const c_void));
        // SAFETY: the name is a string, and nothing is done with the address but comparing it.
        let other = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getpid".as_ptr()) };
        assert!(!other.is_null() && !is_own(other));
        assert!(!is_own(core::ptr::null()));
    }
}
