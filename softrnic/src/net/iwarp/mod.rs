//! iWARP over TCP (RFC 5044, 5041, 5040, 6581, 7306), without I/O: bytes go in and come out by slices and vectors.
//!
//! From the bottom up:
//!
//! - `mpa`: the start-up frames of a connection
//! - `connect`: the set-up of a connection at both ends
//! - `fpdu`: the frames of the byte stream, with their CRC
//! - `ddp`: the headers of a segment
//! - `rdmap`: the messages that consist of fields
//! - `terminate`: the message that ends a connection, with its error
//! - `sender`: cuts messages into frames
//! - `receiver`: checks received segments against the state of the connection
//! - `stream`: a connection after its set-up
//!
//! Only `simulator`, the test of both ends, uses them yet. The device `softiw0` is their purpose: it has one TCP socket
//! per QP, and moves bytes between the socket, these machines and the QP. The parsers accept any input without a
//! panic.

mod connect;
mod ddp;
mod fpdu;
mod mpa;
mod rdmap;
mod receiver;
mod sender;
mod simulator;
mod stream;
mod terminate;

/// Splits `N` bytes from the start of `bytes`.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (first, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*first)
}
