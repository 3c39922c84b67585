//! The functions under their C names, from the lists in `rdma-mummy-sys`.

/// Defines all functions in the calling crate; each calls `$ready` first, and drops its result at the end.
#[macro_export]
macro_rules! functions {
    ($ready:path) => {
        // One module per list, because the lists use some type names differently.
        mod ibverbs {
            $crate::export!(@list ibverbs_functions, $ready);
        }
        mod ibverbs_since_v44 {
            $crate::export!(@list ibverbs_since_v44_functions, $ready);
        }
        mod rdmacm {
            $crate::export!(@list rdmacm_functions, $ready);
        }
        mod rdmacm_since_v44 {
            $crate::export!(@list rdmacm_since_v44_functions, $ready);
        }
    };
}

/// Defines the functions of one list.
#[doc(hidden)]
#[macro_export]
macro_rules! export {
    (@list $list:ident, $ready:path) => {
        use $crate::types::*;

        $crate::rdma_mummy_sys::$list!($crate::export, $ready);
    };

    (
        $ready:path, [$($module:ident)::+]
        $(fn $name:ident $arguments:tt -> $result:ty;)*
    ) => {
        use $crate::$($module)::+ as library;

        $($crate::export!(@one $ready, $name $arguments -> $result);)*
    };

    (@one $ready:path, ibv_close_device ($context:ident: $type:ty) -> $result:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn ibv_close_device($context: $type) -> $result {
            let _ready = $ready();
            // SAFETY: the caller upholds the contract of the C function, which is that of this one.
            unsafe { $crate::close_device($context) }
        }
    };

    // Reads a file of the program's choice, so nothing marks it as a call of the library.
    (@one $ready:path, ibv_read_sysfs_file ($($argument:ident: $type:ty),* $(,)?) -> $result:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn ibv_read_sysfs_file($($argument: $type),*) -> $result {
            drop($ready());
            // SAFETY: the caller upholds the contract of the C function, which is that of this one.
            unsafe { library::ibv_read_sysfs_file($($argument),*) }
        }
    };

    (@one $ready:path, $name:ident ($($argument:ident: $type:ty),* $(,)?) -> $result:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // Some functions are safe in Rust. This constant gives each of them the type that it has in C.
            const FUNCTION: unsafe extern "C" fn($($type),*) -> $result = library::$name;
            let _ready = $ready();
            // SAFETY: the caller upholds the contract of the C function, which is that of this one.
            unsafe { FUNCTION($($argument),*) }
        }
    };
}

/// The types in the prototypes.
#[doc(hidden)]
pub mod types {
    pub use core::ffi::{c_char, c_int, c_uint, c_void};

    pub use libc::sockaddr;
    pub use rdma_mummy_sys::bindings::rdma_cma::*;
    pub use rdma_mummy_sys::bindings::verbs::*;
    pub use rdma_mummy_sys::since_v44::*;
}

/// Closes a device as C does, even if objects are left on it. The C library closes any device, because the kernel frees
/// the remaining objects, and programs such as perftest rely on that. softrnic returns an error instead, to protect
/// Rust programs. This function then leaves the device open until the process exits.
///
/// # Safety
///
/// As for `ibv_close_device`.
pub unsafe fn close_device(context: *mut types::ibv_context) -> types::c_int {
    // SAFETY: the caller upholds the contract of the C function.
    let result = unsafe { rdma_mummy_sys::load::ibverbs::ibv_close_device(context) };
    let in_use = result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY);
    if in_use { 0 } else { result }
}
