//! An authenticated channel over messages. It begins with a password-authenticated key exchange, which is followed by
//! sealed messages. This module uses no I/O, clock or threads.
//!
//! Both sides have a key: one that the user chose, or 32 random bytes that were sent through ssh. SPAKE2 derives the
//! AES-256-GCM keys from it. A recorded handshake does not help an attacker to guess the key offline; each guess
//! requires a new connection.
//!
//! A message is a control frame or a block. A control frame is sealed (encrypted and authenticated) completely. A block
//! consists of its payload and a trailer: header, XXH3-128 and tag. The payload is encrypted only if the sender's
//! options require it. The nonce of each direction counts the messages in this direction, so decryption fails after a
//! lost, repeated or swapped message.

mod block;
mod cipher;
mod handshake;
mod seal;

pub use block::{BLOCK, Block, BlockKind, TRAILER};
pub use handshake::{Handshake, Role};
pub use seal::{Message, Opener, Sealer};
