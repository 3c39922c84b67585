//! How two programs tell each other where their queue pairs are: over TCP, in the words of rdma-core's ping-pongs,
//! so that ours and those are peers.
//!
//! ```text
//! client                                  server
//!   connects                    ───────►    accepts
//!   its 52-byte address         ───────►    brings its queue pair up
//!   brings its queue pair up    ◄───────    its 52-byte address
//!   "done\0"                    ───────►
//! ```

mod address;
mod peer;

pub use address::{Address, ParseAddressError};
pub use peer::Peer;

/// The TCP port unless another is asked for.
pub const DEFAULT_PORT: u16 = 18515;
