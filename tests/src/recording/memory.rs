//! Memory regions.

use std::ptr;

use libc::{c_int, c_uint, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::since_v44::ibv_mr_init_attr;

use super::calls::Kind;
use super::failure::set_errno;
use super::state::Inner;
use super::stub::{endings, stubs};

/// Creates a region.
///
/// # Safety
///
/// The domain is one of this provider's.
pub(super) unsafe fn register(
    inner: &mut Inner,
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    parents: &[usize],
) -> *mut ffi::ibv_mr {
    // SAFETY: the domain is one of this provider's, and the region is new.
    unsafe {
        let mr = inner.create::<ffi::ibv_mr>((*pd).context, &[&[pd.addr()], parents].concat());
        ((*mr).pd, (*mr).addr, (*mr).length) = (pd, addr, length);
        ((*mr).handle, (*mr).lkey, (*mr).rkey) = (inner.handle(), inner.handle(), inner.handle() << 8);
        for number in [&raw mut (*mr).handle, &raw mut (*mr).lkey, &raw mut (*mr).rkey] {
            inner.output("a region: its numbers", number);
        }
        mr
    }
}

stubs! {
    fn reg_mr(pd: *mut ffi::ibv_pd, addr: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ffi::ibv_mr
        [addr, length, iova, access] |inner|
    {
        register(&mut inner, pd, addr, length, &[])
    }

    fn ibv_reg_dmabuf_mr(pd: *mut ffi::ibv_pd, offset: u64, length: usize, iova: u64, fd: c_int, access: c_int)
        -> *mut ffi::ibv_mr [offset, length, iova, fd, access] |inner|
    {
        register(&mut inner, pd, ptr::null_mut(), length, &[])
    }

    fn ibv_reg_mr_ex(pd: *mut ffi::ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ffi::ibv_mr
        [; @attr: length, access, iova, addr, fd, fd_offset, dmah; mask = (*attr).comp_mask] |inner|
    {
        let dmah = Some((*attr).dmah.addr()).filter(|&dmah| dmah != 0);
        register(&mut inner, pd, (*attr).addr, (*attr).length, dmah.as_slice())
    }

    fn alloc_null_mr(pd: *mut ffi::ibv_pd) -> *mut ffi::ibv_mr [] |inner| {
        register(&mut inner, pd, ptr::null_mut(), usize::MAX, &[])
    }

    fn ibv_rereg_mr(
        mr: *mut ffi::ibv_mr,
        flags: c_int,
        pd: *mut ffi::ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int [flags, pd, addr, length, access] |inner| {
        let answer = inner.script.rereg.take();
        if answer.is_none_or(|(code, _)| code == ffi::ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_DO_FORK_OLD.0) {
            if flags & 1 != 0 {
                ((*mr).addr, (*mr).length) = (addr, length);
            }
            if flags & 2 != 0 {
                (*mr).pd = pd;
                inner.destroy(Kind::MemoryRegion, mr.addr()).expect("the region exists, and no window is bound to it");
                inner.made(Kind::MemoryRegion, mr, &[pd.addr()]);
            }
            (*mr).rkey = ffi::ibv_inc_rkey((*mr).rkey);
        }
        answer.map_or(0, |(code, errno)| {
            inner.failed(errno);
            set_errno(errno);
            code
        })
    }

    fn advise_mr(
        pd: *mut ffi::ibv_pd,
        advice: ffi::ib_uverbs_advise_mr_advice,
        flags: u32,
        list: *mut ffi::ibv_sge,
        count: u32,
    ) -> c_int [advice, flags, count; ..(0..count as usize).flat_map(|index| {
        let entry = list.add(index).read();
        [("lkey", entry.lkey.into()), ("addr", entry.addr), ("length", u64::from(entry.length))]
    })] |_inner| {
        0
    }
}

endings! {
    ibv_dereg_mr(ffi::ibv_mr);
}
