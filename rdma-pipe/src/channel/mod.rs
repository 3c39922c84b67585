//! An authenticated channel over messages: a key exchange by password, then sealed messages. No I/O, clock or threads.
//!
//! Both sides have a key: a typed one, or 32 random bytes that were sent through ssh. SPAKE2 derives the AES-256-GCM
//! keys from it. A recorded handshake does not allow offline guessing, and each guess requires a new connection.
//!
//! A message is a control frame or a block. A control frame is sealed whole. A block is payload, then a trailer with
//! the block's header, its XXH3-128 and a tag; the payload is sealed too if the sender's options request it. Each
//! direction counts its messages in the nonce, so decrypting fails after a lost, repeated or swapped message.

mod block;
mod handshake;
mod seal;

pub use block::{BLOCK, Block, BlockKind, TRAILER};
pub use handshake::{Handshake, Role};
pub use seal::{Message, Opener, Sealer};
