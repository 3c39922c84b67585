//! The messages between QPs, and the traits between QPs and transports.
//!
//! A work request becomes a [`message::Request`]. A QP of the same process handles it directly. For other QPs, a
//! [`transport::Transport`] carries it as [`packet::Part`]s and returns [`packet::Response`]s. The bytes of both are
//! [`bytes::Segment`]s.

pub(crate) mod address;
pub(crate) mod bytes;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod packet;
pub(crate) mod transport;
