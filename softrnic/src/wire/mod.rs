//! The messages between QPs, and the traits that connect QPs and transports.
//!
//! A work request becomes a [`message::Request`]. If the destination is in the same process, its QP handles the message
//! directly. Otherwise a [`transport::Carrier`] carries the message as [`packet::Part`]s and returns
//! [`packet::Response`]s. The bytes of both are [`bytes::Segment`]s.

pub(crate) mod address;
pub(crate) mod bytes;
pub(crate) mod condition;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod operation;
pub(crate) mod packet;
pub(crate) mod transport;
