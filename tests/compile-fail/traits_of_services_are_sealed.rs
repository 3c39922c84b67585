//! Services, operations and addresses are this crate's alone: what their traits need cannot be named elsewhere. Another crate adds a
//! service through `queue_pair::vendor`.

use sideway::ffi::Sealed;

fn main() {}
