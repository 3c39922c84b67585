//! A shared reference to an owned region cannot write it.

use std::sync::Arc;

use sideway::ibverbs::memory_region::OwnedMemoryRegion;

fn write(region: Arc<OwnedMemoryRegion>) {
    let _ = region.write_at(0, b"new");
}

fn main() {}
