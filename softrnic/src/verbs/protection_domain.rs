//! `struct ibv_pd`, which also represents parent domains. An import works only on the context that created the domain
//! (`ibv_import_device` fails with `EOPNOTSUPP`).

use std::ffi::c_int;
use std::sync::Arc;

use rdma_mummy_sys::{ibv_context, ibv_parent_domain_init_attr, ibv_parent_domain_init_attr_mask, ibv_pd};

use super::context::Context;
use super::failure;
use super::object::Object;
use super::thread_domain::ThreadDomain;
use crate::mem::domain::Domain;
use crate::sys::errno::Errno;
use crate::sys::fork::PerProcess;
use crate::sys::unpoisoned;
use crate::sys::usage::{Quota, Share, Usage, Use};
use crate::wire::limits;

static DOMAINS: PerProcess<Quota> =
    PerProcess::new(Quota::new(limits::MAX_PD), || Box::new(Quota::new(limits::MAX_PD)));

/// A protection domain. A parent domain has the `domain` of its origin.
#[repr(C)]
pub(crate) struct ProtectionDomain {
    pub(crate) c: ibv_pd,
    pub(crate) domain: Arc<Domain>,
    /// Counts the dependents of this C object. A parent domain is one dependent of its origin.
    pub(crate) usage: Usage,
    /// The uses of the context and, if this is a parent domain, of its origin.
    pub(crate) uses: Vec<Use>,
    /// `Some` if this object has created the domain. This object can be deallocated only while no other object uses the
    /// domain.
    share: Option<Share>,
}

// SAFETY: a `ProtectionDomain` starts with an `ibv_pd`.
unsafe impl Object for ProtectionDomain {
    type C = ibv_pd;
}

fn new(c: ibv_pd, domain: Arc<Domain>, uses: Vec<Use>, share: Option<Share>) -> *mut ibv_pd {
    ProtectionDomain { c, domain, usage: Usage::default(), uses, share }.into_c()
}

pub(crate) unsafe extern "C" fn alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
    // SAFETY: the context belongs to this provider and is open.
    let open = unsafe { Context::of(context) };
    let share = match DOMAINS.get().take() {
        Ok(share) => share,
        Err(errno) => return failure::null(errno),
    };
    let domain = Arc::new(Domain::new());
    let handle = open.handle();
    unpoisoned(open.domains.lock()).insert(handle, Arc::downgrade(&domain));
    new(ibv_pd { context, handle }, domain, vec![open.usage.begin()], Some(share))
}

/// `ibv_dealloc_pd(pd)`: deallocates a protection domain or a parent domain.
pub(crate) unsafe extern "C" fn dealloc_pd(pd: *mut ibv_pd) -> c_int {
    // SAFETY: the domain belongs to this provider and is alive.
    let this = unsafe { ProtectionDomain::of(pd) };
    if this.usage.is_used() || (this.share.is_some() && this.domain.usage.is_used()) {
        return failure::code(Errno::BUSY);
    }
    // SAFETY: `alloc_pd`, `alloc_parent_domain` or `import_pd` created it, and the program no longer uses it.
    let this = unsafe { ProtectionDomain::from_c(pd) };
    // SAFETY: the context is open: this domain belongs to it.
    let open = unsafe { Context::of(this.c.context) };
    let mut domains = unpoisoned(open.domains.lock());
    let (handle, domain) = (this.c.handle, Arc::downgrade(&this.domain));
    drop(this);
    // Parent domains and imports share the handle of their origin. The handle ends with the last of these objects.
    if domain.strong_count() == 0 {
        domains.remove(&handle);
    }
    0
}

/// `ibv_alloc_parent_domain(context, attr)`: accepts the program's allocator but never calls it, because no memory of
/// the program is allocated. For the same reason, unprotected memory of a confidential guest is allowed without effect.
pub(crate) unsafe extern "C" fn alloc_parent_domain(
    context: *mut ibv_context,
    attr: *mut ibv_parent_domain_init_attr,
) -> *mut ibv_pd {
    const ALLOCATORS: u32 = ibv_parent_domain_init_attr_mask::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS.0;
    const PD_CONTEXT: u32 = ibv_parent_domain_init_attr_mask::IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT.0;
    const UNPROTECTED: u32 = ibv_parent_domain_init_attr_mask::IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC.0;
    // SAFETY: the context belongs to this provider and is open, and the attributes are readable.
    let (open, attr) = unsafe { (Context::of(context), &*attr) };
    let mask = attr.comp_mask;
    if attr.pd.is_null() || mask & !(ALLOCATORS | PD_CONTEXT | UNPROTECTED) != 0 {
        return failure::null(Errno::INVALID);
    }
    if mask & ALLOCATORS != 0 && (attr.alloc.is_none() || attr.free.is_none()) {
        return failure::null(Errno::INVALID);
    }
    // SAFETY: the domain belongs to this provider and is alive.
    let from = unsafe { ProtectionDomain::of(attr.pd) };
    if from.c.context != context {
        return failure::null(Errno::INVALID);
    }
    let mut uses = vec![open.usage.begin(), from.usage.begin()];
    if !attr.td.is_null() {
        // SAFETY: the domain belongs to this provider and is alive.
        let thread = unsafe { ThreadDomain::of(attr.td) };
        if thread.c.context != context {
            return failure::null(Errno::INVALID);
        }
        uses.push(thread.usage.begin());
    }
    new(ibv_pd { context, handle: from.c.handle }, Arc::clone(&from.domain), uses, None)
}

/// `ibv_import_pd(context, pd_handle)`: creates another object for the domain with this handle.
pub(crate) unsafe extern "C" fn import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd {
    // SAFETY: the context belongs to this provider and is open.
    let open = unsafe { Context::of(context) };
    let Some(domain) = unpoisoned(open.domains.lock()).get(&pd_handle).and_then(std::sync::Weak::upgrade) else {
        return failure::null(Errno(libc::ENOENT));
    };
    new(ibv_pd { context, handle: pd_handle }, domain, vec![open.usage.begin()], None)
}

/// `ibv_unimport_pd(pd)`: if other objects use the domain, it continues to exist.
pub(crate) unsafe extern "C" fn unimport_pd(pd: *mut ibv_pd) {
    // SAFETY: guaranteed by the caller. This function cannot return an error, so a domain in use is left allocated.
    unsafe { dealloc_pd(pd) };
}

#[cfg(test)]
mod tests {
    use std::mem::zeroed;
    use std::ptr;

    use rdma_mummy_sys::{ibv_td_init_attr, verbs_context};

    use super::super::thread_domain::{alloc_td, dealloc_td};
    use super::super::{context::close_device, open::open_device};
    use super::*;

    /// Opens a context that belongs to no device.
    fn open() -> *mut ibv_context {
        // SAFETY: `open_device` does not dereference the device.
        let context = unsafe { open_device(ptr::null_mut()) };
        assert!(!context.is_null());
        context
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn context_with_a_domain_is_busy() {
        let context = open();
        // SAFETY: all objects are created here and destroyed at the end in order.
        unsafe {
            let pd = alloc_pd(context);
            assert_eq!((*pd).context, context);
            assert_eq!(close_device(context), -1);
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EBUSY));
            assert_eq!(dealloc_pd(pd), 0);
            assert_eq!(close_device(context), 0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn programs_detect_the_extended_context() {
        let context = open();
        // SAFETY: the context is open until the end.
        unsafe {
            assert_eq!((*context).abi_compat.addr(), usize::MAX);
            let around = context.wrapping_byte_sub(offset()).cast::<verbs_context>();
            assert_eq!((*around).sz, size_of::<verbs_context>());
            assert!((*around).query_port.is_some() && (*around).query_device_ex.is_some());
            assert!((*context).async_fd >= 0 && (*context).cmd_fd >= 0);
            assert_eq!(close_device(context), 0);
        }
    }

    fn offset() -> usize {
        std::mem::offset_of!(verbs_context, context)
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn parent_domain_keeps_its_origin() {
        let context = open();
        // SAFETY: zero is valid for the attributes; all objects are created here and destroyed at the end in order.
        unsafe {
            let pd = alloc_pd(context);
            let td = alloc_td(context, &mut ibv_td_init_attr { comp_mask: 0 });
            let mut attr: ibv_parent_domain_init_attr = zeroed();
            (attr.pd, attr.td) = (pd, td);
            let parent = alloc_parent_domain(context, &raw mut attr);
            assert_eq!((*parent).handle, (*pd).handle);
            assert!(ProtectionDomain::of(parent).domain.is(&ProtectionDomain::of(pd).domain));
            assert_eq!((dealloc_pd(pd), dealloc_td(td)), (libc::EBUSY, libc::EBUSY));
            assert_eq!((dealloc_pd(parent), dealloc_td(td), dealloc_pd(pd)), (0, 0, 0));

            let pd = alloc_pd(context);
            (attr.pd, attr.td, attr.comp_mask) = (pd, ptr::null_mut(), 4);
            let unprotected = alloc_parent_domain(context, &raw mut attr);
            assert_eq!(dealloc_pd(unprotected), 0, "memory that a confidential guest shares");
            for (pd, mask) in [(ptr::null_mut(), 0), (pd, 1), (pd, 8)] {
                (attr.pd, attr.td, attr.comp_mask) = (pd, ptr::null_mut(), mask);
                assert!(alloc_parent_domain(context, &raw mut attr).is_null(), "{mask}");
            }
            assert!(alloc_td(context, &mut ibv_td_init_attr { comp_mask: 1 }).is_null());
            assert_eq!((dealloc_pd(pd), close_device(context)), (0, 0));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn imported_domain_is_the_same_domain() {
        let context = open();
        // SAFETY: all objects are created here and destroyed at the end in order.
        unsafe {
            let pd = alloc_pd(context);
            let handle = (*pd).handle;
            let imported = import_pd(context, handle);
            assert!(ProtectionDomain::of(imported).domain.is(&ProtectionDomain::of(pd).domain));
            unimport_pd(imported);
            assert_eq!(dealloc_pd(pd), 0);
            assert!(import_pd(context, handle).is_null());
            assert!(Context::of(context).domains.lock().is_ok_and(|domains| domains.is_empty()));
            assert_eq!(close_device(context), 0);
        }
    }
}
