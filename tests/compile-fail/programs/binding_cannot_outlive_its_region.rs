//! A binding names a region by its C object.

use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::memory_window::BindInformation;

fn bind(region: Arc<MemoryRegion>) -> BindInformation<'static> {
    let all = BindInformation::new(&region, 0, 1, AccessFlags::RemoteRead);
    all
}

fn main() {}
