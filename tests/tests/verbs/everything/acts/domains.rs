//! Thread domains, allocators, imports, and single-threaded queues.

use std::alloc::{Layout, alloc, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::address::GlobalRoutingHeader;
use sideway::ibverbs::completion::{
    CompletionQueue, PollCompletionQueueError, WorkCompletionFlags, WorkCompletionSource,
};
use sideway::ibverbs::parent_domain::{Allocation, AllocationRequest, DomainAllocator};
use sideway_tests::recording::Recording;

use super::{Outcome, open, show};

/// The program's own allocator.
#[derive(Debug)]
struct Heap;

// SAFETY: memory from `alloc` has the requested size and alignment, and stays allocated until `free`.
unsafe impl DomainAllocator for Heap {
    fn allocate(&self, request: &AllocationRequest) -> Allocation {
        let Ok(layout) = Layout::from_size_align(request.size.max(1), request.alignment) else {
            return Allocation::Failed;
        };
        assert_eq!(layout, LAYOUT);
        // SAFETY: the size is not zero.
        NonNull::new(unsafe { alloc(layout) }).map_or(Allocation::Failed, Allocation::Memory)
    }

    unsafe fn free(&self, memory: NonNull<u8>, _resource_type: u64) {
        // SAFETY: guaranteed by the caller; all memory has this layout.
        unsafe { dealloc(memory.as_ptr(), LAYOUT) };
    }
}

/// The amount that the recording device requests.
const LAYOUT: Layout = match Layout::from_size_align(4096, 256) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

pub(super) fn act(recording: &Recording) -> Outcome {
    let context = open(recording)?;
    let pd = context.alloc_pd()?;
    show(&pd);
    let mut builder = pd.create_parent_domain_builder();
    let parent = builder.setup_allocator(Arc::new(Heap)).build()?;
    let shared = context.create_cq_builder().setup_parent_domain(&parent).build_ex()?;
    show((&shared, shared.cqe()));
    let td = context.alloc_td()?;
    let domain = builder.build_single_threaded(&td)?;
    let mut cq = domain.create_cq_builder().build()?;
    let qp = domain.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_ex()?;
    show((&qp, qp.qp_number(), qp.state()));
    match cq.start_poll().map(drop) {
        Err(PollCompletionQueueError::CompletionQueueEmpty) => {}
        other => other?,
    }

    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh_src_gid_index(0);
    show(parent.create_ah(&way)?);
    show(parent.create_ah_from_wc(1, &WorkCompletionSource::default(), None)?);
    let wc_flags = WorkCompletionFlags::GlobalRoutingHeader;
    let source = WorkCompletionSource { wc_flags, ..WorkCompletionSource::default() };
    show(context.init_ah_from_wc(1, &source, Some(&GlobalRoutingHeader::from_bytes([0x60; 40])))?);

    let region = pd.reg_owned_mr(64, AccessFlags::LocalWrite)?;
    let memory = context.alloc_dm(4096, 0)?;
    let imported = context.import_pd(pd.handle())?;
    // SAFETY: this program registered the region.
    show(unsafe { imported.import_mr(region.region().handle()) }?);
    // SAFETY: the memory has this length, and lives until the end of this program.
    show(unsafe { context.import_dm(memory.handle().unwrap_or_default(), 4096) }?);
    Ok(())
}
