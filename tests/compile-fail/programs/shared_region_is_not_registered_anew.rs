//! A region changes its keys only while it has one owner.

use std::sync::Arc;

use sideway::ibverbs::memory_region::MemoryRegion;

fn change(region: &Arc<MemoryRegion>) {
    // SAFETY: does not compile.
    let _ = unsafe { region.rereg_mr(None, Some((4096, 1)), None) };
}

fn main() {}
