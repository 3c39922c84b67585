//! The functions under their C names, from the list that `rdma-mummy-sys` has of each library.

/// Defines the functions of one list.
macro_rules! export {
    (
        [$($module:ident)::+]
        $(fn $name:ident ($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*
    ) => {
        use $($module)::+ as library;

        $(export!(@one $name ($($argument: $type),*) -> $result);)*
    };

    // Written below.
    (@one ibv_close_device $arguments:tt -> $result:ty) => {};

    (@one $name:ident ($($argument:ident: $type:ty),*) -> $result:ty) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $type),*) -> $result {
            // Some of them are safe in Rust; here all are what C has.
            const FUNCTION: unsafe extern "C" fn($($type),*) -> $result = library::$name;
            crate::register::ready();
            // SAFETY: the caller keeps the contract of the C function, which is that of this one.
            unsafe { FUNCTION($($argument),*) }
        }
    };
}

/// What the prototypes name.
mod types {
    pub(super) use core::ffi::{c_char, c_int, c_uint, c_void};

    pub(super) use libc::sockaddr;
    pub(super) use rdma_mummy_sys::bindings::rdma_cma::*;
    pub(super) use rdma_mummy_sys::bindings::verbs::*;
    pub(super) use rdma_mummy_sys::later::*;
}

/// A module for each list, as the same name may stand for something else in the next.
macro_rules! lists {
    ($($module:ident: $list:ident;)*) => { $(
        mod $module {
            use super::types::*;

            rdma_mummy_sys::$list!(export);
        }
    )* };
}

lists! {
    ibverbs: ibverbs_functions;
    ibverbs_later: ibverbs_later_functions;
    rdmacm: rdmacm_functions;
    rdmacm_later: rdmacm_later_functions;
}

/// The C library closes any device, as the kernel clears away what is left on it, and programs count on that: perftest leaves
/// queues behind. softrnic refuses, so that nothing is pulled from under a Rust program. Here the device is left to the end of the
/// process then.
#[unsafe(no_mangle)]
unsafe extern "C" fn ibv_close_device(context: *mut types::ibv_context) -> types::c_int {
    crate::register::ready();
    // SAFETY: the caller keeps the contract of the C function, which is that of this one.
    let result = unsafe { rdma_mummy_sys::load::ibverbs::ibv_close_device(context) };
    let in_use = result != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EBUSY);
    if in_use { 0 } else { result }
}
