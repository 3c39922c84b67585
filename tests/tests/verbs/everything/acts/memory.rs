//! Regions of every origin, device memory, buffers, hints, windows.

use std::fs::File;
use std::os::fd::AsFd;
use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::dma_handle::DmaHandleAttributes;
use sideway::ibverbs::memory_region::{AdviseFlags, MemoryAdvice, RegistrationAttributes};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindowType};
use sideway::ibverbs::work_request::{ScatterGatherEntry, WorkRequestFlags};
use sideway_tests::recording::Recording;

use super::{Outcome, open, show};

pub(super) fn act(recording: &Recording) -> Outcome {
    let context = open(recording)?;
    let pd = context.alloc_pd()?;
    let owned = pd.reg_owned_mr(64, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind)?;
    show((&owned, owned.lkey(), owned.region().rkey(), owned.region().handle()));
    let mut bytes = vec![0_u8; 64];
    let at = bytes.as_mut_ptr().addr();
    let file = File::open("/dev/null")?;
    // SAFETY: the recording device accesses no memory, and the bytes outlive all regions.
    let named = unsafe {
        let implicit = pd.reg_implicit_odp_mr(AccessFlags::LocalWrite)?;
        let of_file = pd.reg_dmabuf_mr(0, 64, 0, file.as_fd(), AccessFlags::LocalWrite)?;
        [
            pd.reg_mr(at, 64, AccessFlags::LocalWrite)?,
            pd.reg_mr_iova(at, 64, 0, AccessFlags::LocalWrite)?,
            implicit,
            of_file,
        ]
    };
    named.iter().for_each(|region| show((region, region.lkey(), region.rkey(), region.iova())));
    let null = pd.alloc_null_mr()?;
    let entry = ScatterGatherEntry::new(owned.lkey(), owned.addr(), 64);
    pd.advise_mr(MemoryAdvice::Prefetch, AdviseFlags::empty(), &[entry])?;

    let hints = context.alloc_dmah(&DmaHandleAttributes::default())?;
    let mut attributes = RegistrationAttributes::new(64, AccessFlags::LocalWrite);
    attributes.setup_ptr(at).setup_dma_handle(&hints);
    // SAFETY: as above.
    let mut hinted = unsafe { pd.reg_mr_ex(&attributes) }?;
    if let Some(hinted) = Arc::get_mut(&mut hinted) {
        // SAFETY: as above.
        unsafe { hinted.rereg_mr(None, None, Some(AccessFlags::empty())) }?;
        show((hinted.lkey(), hinted.rkey()));
    }

    let memory = context.alloc_dm(64, 0)?;
    memory.memcpy_to_dm(0, b"four")?;
    memory.memcpy_from_dm(0, &mut [0; 4])?;
    show((&memory, memory.handle(), memory.export_dmabuf_fd()?));
    let of_device = pd.reg_dm_mr(&memory, 0, 64, AccessFlags::LocalWrite)?;
    let buffer = pd.alloc_buf(64)?;
    let of_buffer = pd.reg_buf_mr(&buffer, 0, 64, AccessFlags::LocalWrite)?;
    // SAFETY: as above.
    let of_program = unsafe { pd.alloc_user_buf(at, 64, None) }?;
    show((&of_device, &of_buffer, &of_program));

    let cq = context.create_cq_builder().build()?;
    let mut qp = pd.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build()?;
    let mut window = pd.alloc_mw(MemoryWindowType::Type1)?;
    let all = BindInformation::new(owned.region(), owned.addr(), 64, AccessFlags::RemoteRead);
    show(window.bind_mw(qp.queues().0, 1, WorkRequestFlags::empty(), &all)?);
    show((&window, window.rkey(), &null, named));
    Ok(())
}
