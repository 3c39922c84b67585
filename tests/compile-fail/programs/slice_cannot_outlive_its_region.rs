//! The memory of an owned region is freed with the region.

use sideway::ibverbs::memory_region::OwnedMemoryRegion;

fn first(region: OwnedMemoryRegion) -> u8 {
    let Ok(slice) = region.as_slice() else { return 0 };
    drop(region);
    slice[0]
}

fn main() {}
