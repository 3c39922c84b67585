//! Memory regions.

use std::ptr;

use libc::{c_int, c_uint, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::since_v44::{IbverbsSinceV44, ibv_mr_init_attr};

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};
use super::{buffer, device_memory};

pub(super) fn since_v44_table() -> IbverbsSinceV44 {
    IbverbsSinceV44 {
        ibv_alloc_dmah: Some(device_memory::alloc_dmah),
        ibv_dealloc_dmah: Some(device_memory::dealloc_dmah),
        ibv_reg_mr_ex: Some(reg_mr_ex),
        ibv_dm_export_dmabuf_fd: Some(device_memory::dm_export_dmabuf_fd),
        ibv_alloc_buf: Some(buffer::alloc_buf),
        ibv_free_buf: Some(buffer::free_buf),
        ibv_reg_buf_mr: Some(buffer::reg_buf_mr),
        ibv_alloc_user_buf: Some(buffer::alloc_user_buf),
        ibv_free_user_buf: Some(buffer::free_user_buf),
        ..Default::default()
    }
}

pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.advise_mr = has("advise_mr").then_some(advise_mr);
    table.alloc_null_mr = has("alloc_null_mr").then_some(alloc_null_mr);
    table.alloc_dm = has("alloc_dm").then_some(device_memory::alloc_dm);
    table.free_dm = has("free_dm").then_some(device_memory::free_dm);
    table.reg_dm_mr = has("reg_dm_mr").then_some(device_memory::reg_dm_mr);
}

/// Creates a region; null if the script makes the call fail.
///
/// # Safety
///
/// The domain is one of this provider's.
pub(super) unsafe fn register(
    verb: &'static str,
    arguments: &[(&'static str, u64)],
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    parents: &[usize],
) -> *mut ffi::ibv_mr {
    // SAFETY: the domain is one of this provider's, and the region is new.
    unsafe {
        let (mut inner, failure) = state_of((*pd).context).enter(verb, arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let mr = forever::<ffi::ibv_mr>();
        (*mr).context = (*pd).context;
        (*mr).pd = pd;
        (*mr).addr = addr;
        (*mr).length = length;
        (*mr).handle = inner.handle();
        (*mr).lkey = inner.handle();
        (*mr).rkey = inner.handle() << 8;
        for number in [&raw mut (*mr).handle, &raw mut (*mr).lkey, &raw mut (*mr).rkey] {
            inner.output("a region: its numbers", number);
        }
        inner.made(Kind::MemoryRegion, mr, &[&[pd.addr()], parents].concat());
        mr
    }
}

pub(super) unsafe extern "C" fn reg_mr(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ffi::ibv_mr {
    let arguments =
        [("addr", addr.addr() as u64), ("length", length as u64), ("iova", iova), ("access", access.into())];
    // SAFETY: guaranteed by the caller.
    unsafe { register("reg_mr", &arguments, pd, addr, length, &[]) }
}

pub(super) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ffi::ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    fd: c_int,
    access: c_int,
) -> *mut ffi::ibv_mr {
    let arguments =
        [("offset", offset), ("length", length as u64), ("iova", iova), ("fd", fd as u64), ("access", access as u64)];
    // SAFETY: guaranteed by the caller.
    unsafe { register("reg_dmabuf_mr", &arguments, pd, ptr::null_mut(), length, &[]) }
}

unsafe extern "C" fn reg_mr_ex(pd: *mut ffi::ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ffi::ibv_mr {
    // SAFETY: the attributes can be read, and the caller guarantees the rest.
    unsafe {
        let attr = &*attr;
        let arguments = [
            ("length", attr.length as u64),
            ("access", attr.access as u64),
            ("mask", attr.comp_mask),
            ("iova", attr.iova),
            ("addr", attr.addr.addr() as u64),
            ("fd", attr.fd as u64),
            ("fd_offset", attr.fd_offset),
            ("dmah", attr.dmah.addr() as u64),
        ];
        let parents: &[usize] = if attr.dmah.is_null() { &[] } else { &[attr.dmah.addr()] };
        register("reg_mr_ex", &arguments, pd, attr.addr, attr.length, parents)
    }
}

unsafe extern "C" fn alloc_null_mr(pd: *mut ffi::ibv_pd) -> *mut ffi::ibv_mr {
    // SAFETY: guaranteed by the caller.
    unsafe { register("alloc_null_mr", &[], pd, ptr::null_mut(), usize::MAX, &[]) }
}

pub(super) unsafe extern "C" fn rereg_mr(
    mr: *mut ffi::ibv_mr,
    flags: c_int,
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    let arguments = [
        ("flags", flags as u64),
        ("pd", pd.addr() as u64),
        ("addr", addr.addr() as u64),
        ("length", length as u64),
        ("access", access as u64),
    ];
    // SAFETY: objects are never freed.
    unsafe {
        let (mut inner, failure) = state_of((*mr).context).enter("rereg_mr", &arguments);
        if let Some(failure) = failure {
            return failure.minus();
        }
        if !inner.is_live(Kind::MemoryRegion, mr.addr(), "rereg_mr") {
            return -1;
        }
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
            super::failure::set_errno(errno);
            code
        })
    }
}

pub(super) unsafe extern "C" fn dereg_mr(mr: *mut ffi::ibv_mr) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*mr).context, "dereg_mr", Kind::MemoryRegion, mr.addr()) }
}

unsafe extern "C" fn advise_mr(
    pd: *mut ffi::ibv_pd,
    advice: ffi::ib_uverbs_advise_mr_advice,
    flags: u32,
    list: *mut ffi::ibv_sge,
    count: u32,
) -> c_int {
    // SAFETY: the domain is one of this provider's, and the list has `count` entries.
    unsafe {
        let list = if count == 0 { &[] } else { std::slice::from_raw_parts(list, count as usize) };
        let mut arguments = vec![("advice", advice.0.into()), ("flags", flags.into()), ("count", count.into())];
        for entry in list {
            arguments.extend([("lkey", entry.lkey.into()), ("addr", entry.addr), ("length", u64::from(entry.length))]);
        }
        let (_inner, failure) = state_of((*pd).context).enter("advise_mr", &arguments);
        failure.map_or(0, |failure| failure.code())
    }
}
