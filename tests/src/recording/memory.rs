//! Memory regions, device memory, DMA handles, buffers, and what is imported.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ptr;
use std::sync::{Mutex, PoisonError};

use libc::{c_int, c_uint, c_void};
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::later::{IbverbsLater, ibv_buf, ibv_dmah, ibv_dmah_init_attr, ibv_mr_init_attr};
use rdma_mummy_sys::load::ibverbs::IbverbsTable;

use super::calls::Kind;
use super::device::{self, state_of};
use super::objects::{destroy_object, forever};

/// Bytes that a buffer of `alloc_buf` has, whatever was asked for.
const BUFFER: usize = 1 << 16;
/// Bytes of any device memory.
const DEVICE_MEMORY: usize = 4096;

thread_local! {
    /// What was called on no object, which belongs to no device: name, first argument and second argument.
    static LOOSE: RefCell<Vec<(&'static str, usize, usize)>> = const { RefCell::new(Vec::new()) };
    /// What the next such calls give.
    static ANSWERS: RefCell<BTreeMap<&'static str, c_int>> = const { RefCell::new(BTreeMap::new()) };
}

/// Whose a buffer is: it begins with no context.
static BUFFERS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

/// A buffer of the provider.
#[repr(C, align(4096))]
struct BufferBytes([u8; BUFFER]);

/// Device memory with its bytes behind it.
#[repr(C)]
struct Memory {
    dm: ffi::ibv_dm,
    len: usize,
    bytes: [u8; DEVICE_MEMORY],
}

/// The calls on no object that this thread has made since this was last asked: name, first and second argument.
pub fn loose_calls() -> Vec<(&'static str, usize, usize)> {
    LOOSE.take()
}

/// What calls of `verb`, which is called on no object, return in this thread from now on.
pub fn answer(verb: &'static str, value: c_int) {
    ANSWERS.with_borrow_mut(|answers| answers.insert(verb, value));
}

fn loose(verb: &'static str, first: usize, second: usize) -> c_int {
    LOOSE.with_borrow_mut(|calls| calls.push((verb, first, second)));
    ANSWERS.with_borrow(|answers| answers.get(verb).copied().unwrap_or(0))
}

/// What is called on no object goes to the library of the system.
pub(super) fn system_table() -> IbverbsTable {
    IbverbsTable {
        ibv_import_device: Some(import_device),
        ibv_fork_init: Some(fork_init),
        ibv_is_fork_initialized: Some(is_fork_initialized),
        ibv_dontfork_range: Some(dontfork_range),
        ibv_dofork_range: Some(dofork_range),
        ..Default::default()
    }
}

pub(super) fn later_table() -> IbverbsLater {
    IbverbsLater {
        ibv_alloc_dmah: Some(alloc_dmah),
        ibv_dealloc_dmah: Some(dealloc_dmah),
        ibv_reg_mr_ex: Some(reg_mr_ex),
        ibv_dm_export_dmabuf_fd: Some(dm_export_dmabuf_fd),
        ibv_alloc_buf: Some(alloc_buf),
        ibv_free_buf: Some(free_buf),
        ibv_reg_buf_mr: Some(reg_buf_mr),
        ibv_alloc_user_buf: Some(alloc_user_buf),
        ibv_free_user_buf: Some(free_user_buf),
        ..Default::default()
    }
}

pub(super) fn fill_in(table: &mut ffi::verbs_context, has: impl Fn(&str) -> bool) {
    table.advise_mr = has("advise_mr").then_some(advise_mr);
    table.alloc_null_mr = has("alloc_null_mr").then_some(alloc_null_mr);
    table.alloc_dm = has("alloc_dm").then_some(alloc_dm);
    table.free_dm = has("free_dm").then_some(free_dm);
    table.reg_dm_mr = has("reg_dm_mr").then_some(reg_dm_mr);
}

/// A new region, or null where the script says so.
///
/// # Safety
///
/// The domain is one of this provider's.
unsafe fn register(
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
    // SAFETY: the caller's promise.
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
    // SAFETY: the caller's promise.
    unsafe { register("reg_dmabuf_mr", &arguments, pd, ptr::null_mut(), length, &[]) }
}

unsafe extern "C" fn reg_mr_ex(pd: *mut ffi::ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ffi::ibv_mr {
    // SAFETY: the attributes can be read, and the rest is the caller's promise.
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

unsafe extern "C" fn reg_dm_mr(
    pd: *mut ffi::ibv_pd,
    dm: *mut ffi::ibv_dm,
    offset: u64,
    length: usize,
    access: c_uint,
) -> *mut ffi::ibv_mr {
    let arguments = [("offset", offset), ("length", length as u64), ("access", access.into())];
    // SAFETY: the caller's promise; objects are never freed.
    unsafe {
        let mr = register("reg_dm_mr", &arguments, pd, ptr::null_mut(), length, &[dm.addr()]);
        if (*dm).context != (*pd).context {
            state_of((*pd).context).lock().violation("device memory of another context was registered");
        }
        mr
    }
}

unsafe extern "C" fn reg_buf_mr(
    pd: *mut ffi::ibv_pd,
    buf: *mut ibv_buf,
    addr: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ffi::ibv_mr {
    let arguments = [("addr", addr.addr() as u64), ("length", length as u64), ("access", access as u64)];
    // SAFETY: the caller's promise.
    unsafe { register("reg_buf_mr", &arguments, pd, addr, length, &[buf.addr()]) }
}

unsafe extern "C" fn alloc_null_mr(pd: *mut ffi::ibv_pd) -> *mut ffi::ibv_mr {
    // SAFETY: the caller's promise.
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
                inner.destroy(Kind::MemoryRegion, mr.addr()).expect("it is there, and no window is bound to it");
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

/// New device memory.
///
/// # Safety
///
/// The context is one of this provider's.
unsafe fn new_dm(context: *mut ffi::ibv_context, len: usize, handle: u32) -> *mut ffi::ibv_dm {
    let memory = forever::<Memory>();
    // SAFETY: the memory is new.
    unsafe {
        (*memory).len = len;
        (*memory).dm = ffi::ibv_dm {
            context,
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: ffi::ibv_dm_mask::IBV_DM_MASK_HANDLE.0,
            handle,
        };
    }
    memory.cast()
}

unsafe extern "C" fn alloc_dm(context: *mut ffi::ibv_context, attr: *mut ffi::ibv_alloc_dm_attr) -> *mut ffi::ibv_dm {
    // SAFETY: the context is one of this provider's, and the attributes can be read.
    unsafe {
        let attr = &*attr;
        let arguments =
            [("length", attr.length as u64), ("log_align", attr.log_align_req.into()), ("mask", attr.comp_mask.into())];
        let (mut inner, failure) = state_of(context).enter("alloc_dm", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let handle = inner.handle();
        let dm = new_dm(context, attr.length, handle);
        if inner.script.without.contains("memcpy_to_dm") {
            ((*dm).memcpy_to_dm, (*dm).memcpy_from_dm, (*dm).comp_mask) = (None, None, 0);
        }
        inner.made(Kind::DeviceMemory, dm, &[context.addr()]);
        dm
    }
}

unsafe extern "C" fn free_dm(dm: *mut ffi::ibv_dm) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*dm).context, "free_dm", Kind::DeviceMemory, dm.addr()) }
}

/// Whether a copy is within the memory; one that is not is a violation.
///
/// # Safety
///
/// The memory is one of this provider's.
unsafe fn copies(dm: *mut ffi::ibv_dm, verb: &'static str, offset: u64, length: usize) -> Result<*mut u8, c_int> {
    // SAFETY: objects are never freed.
    unsafe {
        let arguments = [("offset", offset), ("length", length as u64)];
        let (mut inner, failure) = state_of((*dm).context).enter(verb, &arguments);
        if let Some(failure) = failure {
            return Err(failure.code());
        }
        let memory = dm.cast::<Memory>();
        if offset as usize + length > (*memory).len.min(DEVICE_MEMORY) {
            inner.violation("a copy was not within device memory");
            return Err(libc::EFAULT);
        }
        Ok((&raw mut (*memory).bytes).cast::<u8>().add(offset as usize))
    }
}

unsafe extern "C" fn memcpy_to_dm(dm: *mut ffi::ibv_dm, offset: u64, from: *const c_void, length: usize) -> c_int {
    // SAFETY: the memory is one of this provider's, and the bytes can be read.
    unsafe {
        match copies(dm, "memcpy_to_dm", offset, length) {
            Ok(to) => to.copy_from(from.cast(), length),
            Err(code) => return code,
        }
    }
    0
}

unsafe extern "C" fn memcpy_from_dm(to: *mut c_void, dm: *mut ffi::ibv_dm, offset: u64, length: usize) -> c_int {
    // SAFETY: the memory is one of this provider's, and the bytes can be written.
    unsafe {
        match copies(dm, "memcpy_from_dm", offset, length) {
            Ok(from) => from.copy_to(to.cast(), length),
            Err(code) => return code,
        }
    }
    0
}

unsafe extern "C" fn dm_export_dmabuf_fd(dm: *mut ffi::ibv_dm) -> c_int {
    // SAFETY: objects are never freed.
    let (_inner, failure) = unsafe { state_of((*dm).context) }.enter("dm_export_dmabuf_fd", &[]);
    match failure {
        Some(failure) => failure.minus(),
        // SAFETY: the call takes plain numbers.
        None => unsafe { libc::eventfd(77, libc::EFD_CLOEXEC) },
    }
}

unsafe extern "C" fn alloc_dmah(context: *mut ffi::ibv_context, attr: *mut ibv_dmah_init_attr) -> *mut ibv_dmah {
    // SAFETY: the context is one of this provider's, and the attributes can be read.
    unsafe {
        let attr = &*attr;
        let arguments = [
            ("mask", attr.comp_mask.into()),
            ("cpu_id", attr.cpu_id.into()),
            ("ph", attr.ph.into()),
            ("tph_mem_type", attr.tph_mem_type.into()),
        ];
        let (mut inner, failure) = state_of(context).enter("alloc_dmah", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        // It begins with its context, and the rest is the library's.
        let dmah = forever::<[*mut ffi::ibv_context; 4]>();
        (*dmah)[0] = context;
        let dmah = dmah.cast::<ibv_dmah>();
        inner.made(Kind::DmaHandle, dmah, &[context.addr()]);
        dmah
    }
}

unsafe extern "C" fn dealloc_dmah(dmah: *mut ibv_dmah) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*dmah).context, "dealloc_dmah", Kind::DmaHandle, dmah.addr()) }
}

unsafe extern "C" fn alloc_buf(pd: *mut ffi::ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void {
    // SAFETY: the domain is one of this provider's, and the place for the handle can be written.
    unsafe {
        let (mut inner, failure) = state_of((*pd).context).enter("alloc_buf", &[("size", size as u64)]);
        if let Some(failure) = failure {
            return failure.null();
        }
        let handle = forever::<u64>().cast::<ibv_buf>();
        BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.addr(), (*pd).context.expose_provenance());
        inner.made(Kind::Buffer, handle, &[pd.addr()]);
        *buf = handle;
        forever::<BufferBytes>().cast()
    }
}

unsafe extern "C" fn alloc_user_buf(
    pd: *mut ffi::ibv_pd,
    addr: *mut c_void,
    size: usize,
    dmabuf_fd: c_int,
) -> *mut ibv_buf {
    let arguments = [("addr", addr.addr() as u64), ("size", size as u64), ("fd", dmabuf_fd as u64)];
    // SAFETY: the domain is one of this provider's.
    unsafe {
        let (mut inner, failure) = state_of((*pd).context).enter("alloc_user_buf", &arguments);
        if let Some(failure) = failure {
            return failure.null();
        }
        let handle = forever::<u64>().cast::<ibv_buf>();
        BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).insert(handle.addr(), (*pd).context.expose_provenance());
        inner.made(Kind::Buffer, handle, &[pd.addr()]);
        handle
    }
}

unsafe extern "C" fn free_buf(buf: *mut ibv_buf) {
    // SAFETY: the caller's promise.
    unsafe { free("free_buf", buf) };
}

unsafe extern "C" fn free_user_buf(buf: *mut ibv_buf) {
    // SAFETY: the caller's promise.
    unsafe { free("free_user_buf", buf) };
}

/// # Safety
///
/// The buffer is one of this provider's.
unsafe fn free(verb: &'static str, buf: *mut ibv_buf) {
    let context = BUFFERS.lock().unwrap_or_else(PoisonError::into_inner).remove(&buf.addr());
    let Some(context) = context else { panic!("a buffer was freed that is not there") };
    let context = ptr::with_exposed_provenance_mut(context);
    // SAFETY: the context is one of this provider's.
    let mut inner = unsafe { state_of(context) }.note(verb, &[("object", buf.addr() as u64)]);
    if inner.destroy(Kind::Buffer, buf.addr()).is_err() {
        inner.violation("a buffer was freed while a region was in it");
    }
}

unsafe extern "C" fn import_device(cmd_fd: c_int) -> *mut ffi::ibv_context {
    if loose("import_device", cmd_fd as usize, 0) != 0 {
        super::failure::set_errno(ANSWERS.with_borrow(|answers| answers["import_device"]));
        return ptr::null_mut();
    }
    let context = device::open_last();
    if !context.is_null() {
        // SAFETY: the context is new.
        unsafe { (*context).cmd_fd = cmd_fd };
    }
    context
}

unsafe extern "C" fn fork_init() -> c_int {
    loose("fork_init", 0, 0)
}

unsafe extern "C" fn is_fork_initialized() -> ffi::ibv_fork_status {
    ffi::ibv_fork_status(loose("is_fork_initialized", 0, 0) as u32)
}

unsafe extern "C" fn dontfork_range(base: *mut c_void, size: usize) -> c_int {
    loose("dontfork_range", base.addr(), size)
}

unsafe extern "C" fn dofork_range(base: *mut c_void, size: usize) -> c_int {
    loose("dofork_range", base.addr(), size)
}

/// A second object for one that is there, whatever its handle.
///
/// # Safety
///
/// The context is one of this provider's.
unsafe fn import<T>(
    verb: &'static str,
    context: *mut ffi::ibv_context,
    handle: u32,
    parent: usize,
    make: impl FnOnce() -> *mut T,
) -> *mut T {
    // SAFETY: the caller's promise.
    let (mut inner, failure) = unsafe { state_of(context) }.enter(verb, &[("handle", handle.into())]);
    if let Some(failure) = failure {
        return failure.null();
    }
    let object = make();
    inner.made(Kind::Import, object, &[parent]);
    object
}

/// # Safety
///
/// The context is one of this provider's.
unsafe fn unimport(context: *mut ffi::ibv_context, verb: &'static str, object: usize) {
    // SAFETY: the caller's promise.
    let mut inner = unsafe { state_of(context) }.note(verb, &[("object", object as u64)]);
    if inner.destroy(Kind::Import, object).is_err() {
        inner.violation("an import was given back that is in use or not there");
    }
}

pub(super) unsafe extern "C" fn import_pd(context: *mut ffi::ibv_context, handle: u32) -> *mut ffi::ibv_pd {
    // SAFETY: the context is one of this provider's, and the domain is new.
    unsafe {
        import("import_pd", context, handle, context.addr(), || {
            let pd = forever::<ffi::ibv_pd>();
            ((*pd).context, (*pd).handle) = (context, handle);
            pd
        })
    }
}

pub(super) unsafe extern "C" fn unimport_pd(pd: *mut ffi::ibv_pd) {
    // SAFETY: objects are never freed.
    unsafe { unimport((*pd).context, "unimport_pd", pd.addr()) }
}

pub(super) unsafe extern "C" fn import_mr(pd: *mut ffi::ibv_pd, handle: u32) -> *mut ffi::ibv_mr {
    // SAFETY: the domain is one of this provider's, and the region is new.
    unsafe {
        import("import_mr", (*pd).context, handle, pd.addr(), || {
            let mr = forever::<ffi::ibv_mr>();
            ((*mr).context, (*mr).pd, (*mr).handle) = ((*pd).context, pd, handle);
            ((*mr).length, (*mr).lkey, (*mr).rkey) = (64, 71, 72);
            mr
        })
    }
}

pub(super) unsafe extern "C" fn unimport_mr(mr: *mut ffi::ibv_mr) {
    // SAFETY: objects are never freed.
    unsafe { unimport((*mr).context, "unimport_mr", mr.addr()) }
}

pub(super) unsafe extern "C" fn import_dm(context: *mut ffi::ibv_context, handle: u32) -> *mut ffi::ibv_dm {
    // SAFETY: the context is one of this provider's.
    unsafe { import("import_dm", context, handle, context.addr(), || new_dm(context, DEVICE_MEMORY, handle)) }
}

pub(super) unsafe extern "C" fn unimport_dm(dm: *mut ffi::ibv_dm) {
    // SAFETY: objects are never freed.
    unsafe { unimport((*dm).context, "unimport_dm", dm.addr()) }
}
