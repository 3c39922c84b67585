//! Services, operations and addresses are only this crate's: the items that their traits need are private. Another
//! crate adds a service through `queue_pair::vendor`.

use sideway::ffi::Sealed;

fn main() {}
