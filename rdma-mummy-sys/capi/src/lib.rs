//! The functions of libibverbs and librdmacm as one library for programs in C and C++.
//!
//! Each function calls the one of the same name of `rdma-mummy-sys`, which opens rdma-core's libraries when the first verb needs
//! them, and fails as the manual page says where there are none. Nothing runs when a program starts.
//!
//! `own` has what `rdma_mummy.h` declares beside the functions of rdma-core, `soft` knows whether softrnic is asked for.
//!
//! A panic ends the process: the functions are `extern "C"`, which nothing unwinds out of, and the profile is built to abort.

mod own;
mod soft;

rdma_mummy_exports::functions!(crate::soft::ready);
