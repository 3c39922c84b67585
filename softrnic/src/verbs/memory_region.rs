//! `struct ibv_mr`.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Arc, Mutex};

use rdma_mummy_sys::{
    ib_uverbs_advise_mr_advice, ib_uverbs_advise_mr_flag, ibv_access_flags, ibv_mr, ibv_pd, ibv_rereg_mr_err_code,
    ibv_rereg_mr_flags, ibv_sge,
};

use super::context::Context;
use super::failure;
use super::object::Object;
use super::protection_domain::ProtectionDomain;
use crate::mem::{Access, Backing, Change, Mapping, Memory, Region, page_size};
use crate::sys::errno::Errno;
use crate::sys::unpoisoned;
use crate::sys::usage::Use;
use crate::wire::bytes::Fault;
use crate::wire::condition::{Condition, Registered};

const ZERO_BASED: Access = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;

/// A memory region.
#[repr(C)]
pub(crate) struct MemoryRegion {
    pub(crate) c: ibv_mr,
    pub(crate) region: Arc<Region>,
    /// Whether the program has registered memory by its address. Only such a region can be registered again.
    pub(super) is_plain: bool,
    /// The use of the protection domain and of other objects. `ibv_rereg_mr` may change the domain.
    pub(super) uses: Mutex<Vec<Use>>,
    /// The memory as it counts against the limit of the device, if it is memory of the program.
    pub(super) registered: Mutex<Option<Registered>>,
}

// SAFETY: a `MemoryRegion` starts with an `ibv_mr`.
unsafe impl Object for MemoryRegion {
    type C = ibv_mr;
}

/// The parameters of a new region.
pub(super) struct Parts {
    pub(super) backing: Backing,
    /// The value of `addr` in the C struct.
    pub(super) shown: *mut c_void,
    pub(super) length: usize,
    pub(super) iova: u64,
    pub(super) access: Access,
    /// The objects that the region uses in addition to the protection domain.
    pub(super) more: Vec<Use>,
}

/// Creates a region.
///
/// # Safety
///
/// `pd` is alive. The program owns the memory: until the region is deregistered, any thread may use it.
pub(super) unsafe fn make(pd: *mut ibv_pd, parts: Parts) -> *mut ibv_mr {
    let Parts { backing, shown, length, iova, access, more } = parts;
    // SAFETY: guaranteed by the caller.
    let domain = unsafe { ProtectionDomain::of(pd) };
    // SAFETY: the context of a live domain is alive.
    let context = unsafe { Context::of(domain.c.context) };
    let is_plain = matches!(backing, Backing::Host(_));
    let condition = |context| {
        // SAFETY: the context of a live domain is alive, and belongs to this provider.
        unsafe { Condition::of(context) }
    };
    let registered = match is_plain.then(|| condition(domain.c.context).register(length as u64)).transpose() {
        Ok(registered) => Mutex::new(registered),
        Err(errno) => return failure::null(errno),
    };
    let rkey_of = |key| if matches!(backing, Backing::Null) { 0 } else { key };
    match Memory::of_process().register(&domain.domain, backing.clone(), length as u64, iova, access) {
        Ok(region) => {
            let c = ibv_mr {
                context: domain.c.context,
                pd,
                addr: shown,
                length,
                handle: context.handle(),
                lkey: region.key(),
                rkey: rkey_of(region.key()),
            };
            context.exports.enter_region(&c, &region);
            let mut uses = more;
            uses.push(domain.usage.begin());
            MemoryRegion { c, region, is_plain, uses: Mutex::new(uses), registered }.into_c()
        }
        Err(errno) => failure::null(errno),
    }
}

/// Whether both addresses have the same offset in a page, as the kernel requires for translation.
fn is_translatable(start: u64, iova: u64) -> bool {
    (start ^ iova).is_multiple_of(page_size() as u64)
}

/// `ibv_reg_mr`. Optional access flags are ignored.
///
/// # Safety
///
/// `pd` is alive. The program owns the memory: until the region is deregistered, any thread may use it.
pub(crate) unsafe extern "C" fn reg_mr(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    unsafe { reg_mr_iova2(pd, address, length, address.addr() as u64, access.cast_unsigned()) }
}

/// `ibv_reg_mr_iova`.
///
/// # Safety
///
/// As for [`reg_mr`].
pub(crate) unsafe extern "C" fn reg_mr_iova(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_int,
) -> *mut ibv_mr {
    // SAFETY: guaranteed by the caller.
    unsafe { reg_mr_iova2(pd, address, length, iova, access.cast_unsigned()) }
}

/// `ibv_reg_mr_iova2`.
///
/// # Safety
///
/// As for [`reg_mr`].
pub(crate) unsafe extern "C" fn reg_mr_iova2(
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    iova: u64,
    access: c_uint,
) -> *mut ibv_mr {
    if access & ZERO_BASED == 0 && !is_translatable(address.addr() as u64, iova) {
        return failure::null(Errno::INVALID);
    }
    let backing = Backing::Host(address.expose_provenance());
    // SAFETY: guaranteed by the caller.
    unsafe { make(pd, Parts { backing, shown: address, length, iova, access, more: Vec::new() }) }
}

/// `ibv_reg_dmabuf_mr`. The dma-buf must permit mappings.
///
/// # Safety
///
/// `pd` is alive, and the program owns the dma-buf.
pub(crate) unsafe extern "C" fn reg_dmabuf_mr(
    pd: *mut ibv_pd,
    offset: u64,
    length: usize,
    iova: u64,
    descriptor: c_int,
    access: c_int,
) -> *mut ibv_mr {
    let access = access.cast_unsigned();
    match map_dmabuf(offset, length, iova, descriptor, access) {
        Ok(mapping) => {
            let backing = Backing::Own { address: mapping.address(), keep: Arc::new(mapping) };
            let shown = ptr::without_provenance_mut(offset as usize);
            // SAFETY: guaranteed by the caller; the mapping exists as long as the region.
            unsafe { make(pd, Parts { backing, shown, length, iova, access, more: Vec::new() }) }
        }
        Err(errno) => failure::null(errno),
    }
}

fn map_dmabuf(offset: u64, length: usize, iova: u64, descriptor: c_int, access: Access) -> Result<Mapping, Errno> {
    /// The magic number of the file system of dma-bufs (`DMA_BUF_MAGIC` in linux/magic.h).
    const DMA_BUF: u64 = 0x444d_4142;
    /// An error code that is defined only inside the kernel. NVIDIA's driver returns this code for the memory of a GPU.
    const ENOTSUPP: c_int = 524;
    const ALLOWED: Access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
        | ibv_access_flags::IBV_ACCESS_RELAXED_ORDERING.0;
    if access & !ALLOWED != 0 || !is_translatable(offset, iova) {
        return Err(Errno::INVALID);
    }
    // SAFETY: all zeros are a valid `statfs`.
    let mut status: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `status` is writable; the kernel checks the descriptor.
    if unsafe { libc::fstatfs(descriptor, &mut status) } != 0 {
        return Err(Errno(libc::EBADF));
    }
    // The file system shows whether the file is a dma-buf. A file of another type might shrink while it is mapped.
    if status.f_type as u64 != DMA_BUF {
        return Err(Errno::INVALID);
    }
    Mapping::new(descriptor, offset, length, access).map_err(|errno| {
        rdma_mummy_sys::log!(
            debug,
            "cannot map a DMA buffer: errno {}; register memory of a GPU by its address",
            errno.0
        );
        if errno.0 == ENOTSUPP { Errno::NOT_SUPPORTED } else { errno }
    })
}

/// `ibv_alloc_null_mr`. The region has no remote key and allows no remote access.
///
/// # Safety
///
/// `pd` is alive.
pub(crate) unsafe extern "C" fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
    let access = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0;
    let parts =
        Parts { backing: Backing::Null, shown: ptr::null_mut(), length: usize::MAX, iova: 0, access, more: Vec::new() };
    // SAFETY: guaranteed by the caller; there is no memory.
    unsafe { make(pd, parts) }
}

/// `ibv_rereg_mr`. If the verb fails, the region is unchanged, although the C API allows that it becomes unusable.
///
/// # Safety
///
/// `mr` is alive, and `pd` too if `flags` change it; for the memory, the same as for [`reg_mr`]. No other thread reads
/// the fields of `mr`.
pub(crate) unsafe extern "C" fn rereg_mr(
    mr: *mut ibv_mr,
    flags: c_int,
    pd: *mut ibv_pd,
    address: *mut c_void,
    length: usize,
    access: c_int,
) -> c_int {
    const TRANSLATION: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0;
    const DOMAIN: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0;
    const ACCESS: u32 = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0;
    let object = mr.cast::<MemoryRegion>();
    // SAFETY: guaranteed by the caller: `object` is a region of this provider. The references exclude the C struct,
    // which is changed below.
    let (region, is_plain, uses) = unsafe { (&(*object).region, (*object).is_plain, &(*object).uses) };
    let flags = flags.cast_unsigned();
    let is_valid = is_plain
        && flags & !(TRANSLATION | DOMAIN | ACCESS) == 0
        && (flags & TRANSLATION == 0 || !address.is_null() && length != 0)
        && (flags & ACCESS != 0 || access == 0);
    if !is_valid {
        failure::minus_one(Errno::INVALID);
        return ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT.0;
    }
    if flags == 0 {
        failure::minus_one(Errno::INVALID);
        return ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD.0;
    }
    // SAFETY: guaranteed by the caller.
    let mut registered = unpoisoned(unsafe { (*object).registered.lock() });
    let counted = registered.as_mut().filter(|_| flags & TRANSLATION != 0);
    let before = match counted.map(|counted| counted.change(length as u64)).transpose() {
        Ok(before) => before,
        Err(errno) => {
            failure::minus_one(errno);
            return ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD.0;
        }
    };
    // SAFETY: guaranteed by the caller.
    let domain = (flags & DOMAIN != 0).then(|| unsafe { ProtectionDomain::of(pd) });
    let change = Change {
        domain: domain.map(|domain| &*domain.domain),
        translation: (flags & TRANSLATION != 0)
            .then(|| (Backing::Host(address.expose_provenance()), length as u64, address.addr() as u64)),
        access: (flags & ACCESS != 0).then_some(access.cast_unsigned()),
    };
    if let Err(errno) = Memory::of_process().reregister(region, change) {
        if let (Some(counted), Some(before)) = (registered.as_mut(), before) {
            counted.restore(before);
        }
        failure::minus_one(errno);
        return ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD.0;
    }
    if let Some(domain) = domain {
        *unpoisoned(uses.lock()) = vec![domain.usage.begin()];
        // SAFETY: `mr` is alive, and no other thread uses its fields now.
        unsafe { (*mr).pd = pd };
    }
    if flags & TRANSLATION != 0 {
        // SAFETY: as above.
        unsafe {
            (*mr).addr = address;
            (*mr).length = length;
            Context::of((*mr).context).exports.enter_region(&*mr, region);
        }
    }
    0
}

/// `ibv_dereg_mr`. After this verb succeeds, the device neither reads nor writes the memory.
///
/// # Safety
///
/// `mr` is alive, and is not used again if this succeeds.
pub(crate) unsafe extern "C" fn dereg_mr(mr: *mut ibv_mr) -> c_int {
    // SAFETY: guaranteed by the caller.
    let object = unsafe { MemoryRegion::of(mr) };
    if let Err(errno) = Memory::of_process().deregister(&object.region) {
        return failure::code(errno);
    }
    // SAFETY: guaranteed by the caller: this was the last use; the region has kept its context open.
    unsafe {
        Context::of(object.c.context).exports.leave_region(object.c.handle);
        drop(MemoryRegion::from_c(mr));
    }
    0
}

/// `ibv_advise_mr`: checks the ranges. All registered memory is already populated, so the advice has no other effect.
///
/// # Safety
///
/// `pd` is alive, and `sg_list` has `num_sge` entries.
pub(crate) unsafe extern "C" fn advise_mr(
    pd: *mut ibv_pd,
    advice: ib_uverbs_advise_mr_advice,
    flags: u32,
    sg_list: *mut ibv_sge,
    num_sge: u32,
) -> c_int {
    type Advice = ib_uverbs_advise_mr_advice;
    let is_write = advice == Advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    let is_known = is_write
        || advice == Advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH
        || advice == Advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
    if !is_known {
        return failure::code(Errno::NOT_SUPPORTED);
    }
    let flush = ib_uverbs_advise_mr_flag::IB_UVERBS_ADVISE_MR_FLAG_FLUSH.0;
    if flags & !flush != 0 || num_sge == 0 || sg_list.is_null() {
        return failure::code(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    let domain = unsafe { ProtectionDomain::of(pd) };
    for index in 0..num_sge as usize {
        // SAFETY: guaranteed by the caller: the list has `num_sge` entries.
        let piece = unsafe { ptr::read(sg_list.wrapping_add(index)) };
        let checked =
            Memory::of_process().local(&domain.domain, piece.lkey, piece.addr, u64::from(piece.length), is_write);
        let errno = match checked {
            Ok(_) => continue,
            Err(Fault::Key | Fault::Bounds) => Errno(libc::ENOENT),
            Err(Fault::Domain | Fault::Rights | Fault::Invalidation) => Errno(libc::EPERM),
            Err(Fault::Alignment | Fault::Unmapped) => Errno::FAULT,
        };
        return failure::code(errno);
    }
    0
}
