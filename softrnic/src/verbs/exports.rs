//! The regions and the device memory of a context that can be imported by their handles.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use rdma_mummy_sys::ibv_mr;

use crate::mem::{Buffer, Region};
use crate::sys::unpoisoned;

/// Weak references to the objects of a context, by their handles.
#[derive(Debug, Default)]
pub(crate) struct Exports {
    regions: Mutex<HashMap<u32, Exported>>,
    memories: Mutex<HashMap<u32, Weak<Buffer>>>,
}

/// The data of a region that an import copies.
#[derive(Clone, Debug)]
pub(super) struct Exported {
    region: Weak<Region>,
    pub(super) length: usize,
    pub(super) lkey: u32,
    pub(super) rkey: u32,
}

impl Exports {
    /// Adds or updates a region.
    pub(super) fn enter_region(&self, c: &ibv_mr, region: &Arc<Region>) {
        let exported = Exported { region: Arc::downgrade(region), length: c.length, lkey: c.lkey, rkey: c.rkey };
        unpoisoned(self.regions.lock()).insert(c.handle, exported);
    }

    pub(super) fn leave_region(&self, handle: u32) {
        unpoisoned(self.regions.lock()).remove(&handle);
    }

    pub(super) fn enter_memory(&self, handle: u32, buffer: &Arc<Buffer>) {
        unpoisoned(self.memories.lock()).insert(handle, Arc::downgrade(buffer));
    }

    pub(super) fn leave_memory(&self, handle: u32) {
        unpoisoned(self.memories.lock()).remove(&handle);
    }

    pub(super) fn region(&self, handle: u32) -> Option<(Arc<Region>, Exported)> {
        let exported = unpoisoned(self.regions.lock()).get(&handle)?.clone();
        Some((exported.region.upgrade()?, exported))
    }

    pub(super) fn memory(&self, handle: u32) -> Option<Arc<Buffer>> {
        unpoisoned(self.memories.lock()).get(&handle)?.upgrade()
    }
}
