//! The C API of libibverbs and librdmacm.
pub mod bindings;
