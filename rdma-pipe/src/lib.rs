//! Transfers files and pipes between hosts, over RDMA, or over TCP if RDMA is unavailable. This is the library of
//! `rdcp`, `rdsend`, `rdrecv` and `rdpipe`.
//!
//! | module | what |
//! |---|---|
//! | [`channel`] | password-authenticated key exchange, sealed messages: no I/O |
//! | [`proto`] | the frames of transfers: no I/O |
//! | [`link`] | an authenticated connection over trespass |
//! | [`stream`] | a single stream of bytes |
//! | [`tree`] | files of this host: walking trees, writing below an open directory, partial files |
//! | [`copy`] | files and trees: the threads of both sides |
//! | [`launch`] | the far side: ssh starts it, and requests and replies use its standard streams |
//! | [`pipeline`] | a segment of a pipeline: a command between two streams |
//! | [`standard`] | the standard streams, which may be closed |
//! | [`show`] | progress and reports |
//! | [`cli`] | command lines |

pub mod channel;
pub mod cli;
pub mod copy;
pub mod error;
pub mod launch;
pub mod link;
pub mod pipeline;
pub mod proto;
pub mod show;
mod silence;
pub mod standard;
pub mod stream;
mod thread;
pub mod tree;
