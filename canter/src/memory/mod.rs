//! Registered memory: pools of buffers that requests own while they are in flight, and memory for the requests of
//! peers.

mod buf;
mod exposed;
mod pool;
mod remote;

pub use self::buf::Buf;
pub use self::exposed::{Exposed, Rights};
pub(crate) use self::pool::Origin;
pub use self::pool::{Get, Pool};
pub use self::remote::Remote;
pub(crate) use self::remote::Target;
