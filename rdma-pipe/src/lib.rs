//! Files and pipes between hosts, over RDMA, and over TCP if RDMA is missing: the library of `rdcp`, `rdsend`, `rdrecv` and `rdpipe`.
//!
//! | module | what |
//! |---|---|
//! | [`channel`] | key exchange by password, sealed messages: no I/O |
//! | [`proto`] | the frames of transfers: no I/O |
//! | [`link`] | an authenticated connection over trespass |
//! | [`stream`] | one stream of bytes |
//! | [`cli`] | command lines |

pub mod channel;
pub mod cli;
pub mod error;
pub mod link;
pub mod proto;
pub mod stream;
