//! softrnic for C programs. This is a shared object that exports the functions of libibverbs and librdmacm.
//!
//! Each function calls the function of the same name in `rdma-mummy-sys`, which forwards the call to the provider of
//! its argument: the system's library or softrnic. The first call of any function registers softrnic. When the object
//! is loaded, no code runs.
//!
//! `rdma-mummy-exports` defines the functions, and `register` handles the first call. `files` serves the files of the
//! devices, and `dlopen` the programs that open the libraries themselves. The feature `pair` is for building the two
//! libraries that replace those of the system. It adds rsockets and the private symbols to which drivers link, and needs
//! no `dlopen`, because the libraries have the names of the system's.

#[cfg(not(feature = "pair"))]
mod dlopen;
mod files;
mod register;
// A test build uses the workspace's features, so `rdma-mummy-exports` may already define `rsocket`.
#[cfg(not(any(feature = "pair", test)))]
mod rsockets;

rdma_mummy_exports::functions!(crate::register::ready);
