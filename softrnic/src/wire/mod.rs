//! What travels between queue pairs, and the traits between these and the ways that it travels.
//!
//! A program's request becomes a [`message::Request`]. A queue pair of the same process handles it as it is. To any other it goes in
//! [`packet::Part`]s by a [`transport::Transport`], and [`packet::Answer`]s come back; the bytes of both are [`bytes::Segment`]s.

pub(crate) mod address;
pub(crate) mod bytes;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod packet;
pub(crate) mod transport;
