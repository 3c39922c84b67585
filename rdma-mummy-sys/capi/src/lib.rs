//! The functions of libibverbs and librdmacm as one library for programs in C and C++.
//!
//! Each function calls the function of the same name in `rdma-mummy-sys`, which loads rdma-core's libraries at the
//! first verb that needs them. If they are missing, each verb fails as its manual page documents. No code runs at
//! program start.
//!
//! `own` has the functions that `rdma_mummy.h` adds to rdma-core's; `soft` registers softrnic on request.
//!
//! A panic ends the process: `extern "C"` functions cannot unwind, and the build profile aborts on panic.

mod own;
mod soft;

rdma_mummy_exports::functions!(crate::soft::ready);
