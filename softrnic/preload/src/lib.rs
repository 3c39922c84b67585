//! softrnic for C programs: a shared object with the functions of libibverbs and librdmacm.
//!
//! Each function calls the one of the same name of `rdma-mummy-sys`, which knows whose object it is given: one of the system's
//! library, or of softrnic. The first call of any registers softrnic; nothing runs when the object is loaded.
//!
//! The functions are those of `rdma-mummy-exports`, `register` is the first call. The feature `pair` is for libraries that take the
//! place of the system's and do not only stand before them: it adds the names that drivers want, and rsockets.

#[cfg(not(feature = "pair"))]
mod files;
mod register;
// In a test, `rdma-mummy-exports` may have a function of this name: features are those of the whole workspace.
#[cfg(not(any(feature = "pair", test)))]
mod rsockets;

rdma_mummy_exports::functions!(crate::register::ready);
