//! A slice of an owned region borrows it: this program cannot write those bytes.

use sideway::ibverbs::memory_region::OwnedMemoryRegion;

fn write(region: &mut OwnedMemoryRegion) {
    let Ok(slice) = region.as_slice() else { return };
    let _ = region.write_at(0, b"new");
    drop(slice[0]);
}

fn main() {}
