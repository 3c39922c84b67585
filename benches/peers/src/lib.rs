//! The empty device as a `libibverbs.so.1` with the functions of `rdma-mummy-sys`.

macro_rules! export {
    (
        [$($module:ident)::+]
        $(fn $name:ident ($($argument:ident: $type:ty),* $(,)?) -> $result:ty;)*
    ) => {
        use $($module)::+ as library;

        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                const FUNCTION: unsafe extern "C" fn($($type),*) -> $result = library::$name;
                // Only the first registration has an effect; the result of later ones is ignored.
                let _ = sideway_zero_cost::device::register();
                // SAFETY: the caller keeps the contract of the C function, which is also that of `FUNCTION`.
                unsafe { FUNCTION($($argument),*) }
            }
        )*
    };
}

mod ibverbs {
    use core::ffi::{c_char, c_int, c_uint, c_void};

    use rdma_mummy_sys::bindings::verbs::*;

    rdma_mummy_sys::ibverbs_functions!(export);
}
