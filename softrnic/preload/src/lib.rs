//! softrnic for C programs: a shared object with the functions of libibverbs and librdmacm.
//!
//! Each function calls the one of the same name of `rdma-mummy-sys`, which knows whose object it is given: one of the system's
//! library, or of softrnic. The first call of any registers softrnic; nothing runs when the object is loaded.
//!
//! `export` makes the functions from the lists that `rdma-mummy-sys` has of them, `register` is the first call. `private` is for the
//! pair alone: libraries that take the place of the system's and do not only stand before them.
#![recursion_limit = "256"] // The list of private names has one level a name.

mod export;
#[cfg(feature = "pair")]
mod private;
mod register;
