//! Only this crate defines services, operations and addresses: the items that their traits need are private. Another
//! crate adds a service through `queue_pair::vendor`.

use sideway::ffi::Sealed;

fn main() {}
