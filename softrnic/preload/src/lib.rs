//! softrnic for C programs. This is a shared object that exports the functions of libibverbs and librdmacm.
//!
//! Each function calls the function of the same name in `rdma-mummy-sys`, which forwards the call to the provider of
//! its argument: the system's library or softrnic. The first call of any function registers softrnic. When the object
//! is loaded, it only keeps the standard error for the trace of a lens, if there is one.
//!
//! `rdma-mummy-exports` defines the functions, and `register` handles the first call. `files` serves the files of the
//! devices, and `dlopen` the programs that open the libraries themselves. The feature `pair` is for building the two
//! libraries that replace those of the system. It adds rsockets and the private symbols to which drivers link, and needs
//! no `dlopen`, because the libraries have the names of the system's.
//!
//! rsockets are those of rdma-core's librdmacm, which calls its own exported functions through the dynamic loader and
//! therefore uses softrnic.

#[cfg(not(feature = "pair"))]
mod dlopen;
mod files;
mod jump;
mod register;

rdma_mummy_exports::functions!(crate::register::ready);
