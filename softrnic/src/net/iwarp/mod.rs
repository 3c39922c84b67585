//! iWARP over TCP (RFC 5044, 5041, 5040, 6581, 7306).
//!
//! The following modules perform no I/O. They read bytes from slices and append bytes to vectors. The lowest one is
//! first:
//!
//! - `mpa`: the start-up frames of a connection
//! - `connect`: the set-up of a connection at both ends
//! - `fpdu`: the frames of the byte stream, with their CRC
//! - `code`: the codes of errors
//! - `ddp`: the headers of a segment
//! - `rdmap`: the messages that consist of fields
//! - `terminate`: the message that ends a connection, with its error
//! - `sender`: cuts messages into frames
//! - `receiver`: checks received segments against the state of the connection
//! - `stream`: a connection after its set-up
//!
//! The following modules perform I/O, for the devices named `softiw...`:
//!
//! - `connection`: the carrier of a QP, on one TCP socket; `connection/incoming`: its receiving side; `outgoing`: its
//!   sending side
//! - `engine`: the connections of the process, and the thread that serves them
//!
//! `simulator` tests both ends without I/O. The parsers accept any input without a panic.

mod alignment;
mod code;
pub(crate) mod connect;
pub(crate) mod connection;
mod ddp;
pub(crate) mod engine;
mod fpdu;
mod mpa;
mod outgoing;
mod rdmap;
mod receiver;
mod sender;
#[cfg(test)]
mod simulator;
mod stream;
mod terminate;
#[cfg(test)]
mod tests;

use super::take;
