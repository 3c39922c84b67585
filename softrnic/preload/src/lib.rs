//! softrnic for C programs: a shared object with the functions of libibverbs and librdmacm.
//!
//! Each function calls the function of the same name in `rdma-mummy-sys`, which forwards the call to the provider of
//! its argument: the system's library or softrnic. The first call of any function registers softrnic; loading the
//! object runs no code.
//!
//! `rdma-mummy-exports` defines the functions, and `register` handles the first call. The feature `pair` builds the
//! libraries that replace the system's: it adds the private symbols that drivers link to, and rsockets.

#[cfg(not(feature = "pair"))]
mod files;
mod register;
// A test build uses the workspace's features, so `rdma-mummy-exports` may already define `rsocket`.
#[cfg(not(any(feature = "pair", test)))]
mod rsockets;

rdma_mummy_exports::functions!(crate::register::ready);
