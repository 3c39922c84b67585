//! The device writes to the allocated memory.

use std::ptr::NonNull;

use sideway::ibverbs::parent_domain::{Allocation, AllocationRequest, DomainAllocator};

#[derive(Debug)]
struct Careless;

impl DomainAllocator for Careless {
    fn allocate(&self, _request: &AllocationRequest) -> Allocation {
        Allocation::Memory(NonNull::dangling())
    }

    unsafe fn free(&self, _memory: NonNull<u8>, _resource_type: u64) {}
}

fn main() {}
