//! Memory regions, windows and device memory through the C API.

use std::ffi::{c_int, c_void};
use std::ptr;

use rdma_mummy_sys::*;

use super::memory_region::dereg_mr;
use super::object::Object;
use super::protection_domain::{ProtectionDomain, alloc_pd, dealloc_pd};
use super::table;
use super::{context::close_device, open::open_device};
use crate::mem::{Memory, page_size};
use crate::wire::bytes::{Fault, read_bytes, write_bytes};

const LOCAL_WRITE: c_int = ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0 as c_int;
const REMOTE_READ: c_int = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0 as c_int;
const REMOTE_WRITE: c_int = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0 as c_int;
const ZERO_BASED: u32 = ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;

/// A context that belongs to no device, and two protection domains.
struct Bench {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
    other: *mut ibv_pd,
}

impl Bench {
    fn new() -> Self {
        // SAFETY: `open_device` does not dereference the device; the domains belong to the context.
        unsafe {
            let context = open_device(ptr::null_mut());
            Self { context, pd: alloc_pd(context), other: alloc_pd(context) }
        }
    }

    /// Closes the context. All its objects must be destroyed.
    fn end(self) {
        // SAFETY: `new` created the objects, and they are no longer used.
        unsafe {
            assert_eq!(dealloc_pd(self.pd), 0);
            assert_eq!(dealloc_pd(self.other), 0);
            assert_eq!(close_device(self.context), 0);
        }
    }

    /// Writes bytes through a local key, as the response to a read does.
    fn write(&self, pd: *mut ibv_pd, lkey: u32, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        // SAFETY: the domain lives until `end`.
        let domain = unsafe { &ProtectionDomain::of(pd).domain };
        let segment = Memory::of_process().local(domain, lkey, address, bytes.len() as u64, true)?;
        write_bytes(bytes, &[segment])
    }

    fn read(&self, lkey: u32, address: u64, length: usize) -> Result<Vec<u8>, Fault> {
        // SAFETY: as above.
        let domain = unsafe { &ProtectionDomain::of(self.pd).domain };
        let segment = Memory::of_process().local(domain, lkey, address, length as u64, false)?;
        let mut bytes = vec![0; length];
        read_bytes(&[segment], &mut bytes)?;
        Ok(bytes)
    }
}

fn errno() -> Option<i32> {
    std::io::Error::last_os_error().raw_os_error()
}

/// Maps two pages of zeros.
fn pages() -> (*mut c_void, usize) {
    let length = 2 * page_size();
    // SAFETY: the mapping is new and anonymous, and exists until the process ends.
    let start = unsafe {
        libc::mmap(
            ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(start, libc::MAP_FAILED);
    (start, length)
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn region_shows_its_parameters_and_keeps_its_domain() {
    let bench = Bench::new();
    let (start, length) = pages();
    let reg_mr = table::table().ibv_reg_mr.unwrap();
    // SAFETY: the pages exist until the process ends.
    unsafe {
        let mr = reg_mr(bench.pd, start, length, LOCAL_WRITE | REMOTE_READ);
        assert_eq!(((*mr).context, (*mr).pd, (*mr).addr, (*mr).length), (bench.context, bench.pd, start, length));
        assert_eq!((*mr).lkey, (*mr).rkey);
        assert_eq!(dealloc_pd(bench.pd), libc::EBUSY);
        let lkey = (*mr).lkey;
        bench.write(bench.pd, lkey, start.addr() as u64 + 5, b"here").unwrap();
        assert_eq!(std::slice::from_raw_parts(start.cast::<u8>().add(5), 4), b"here");
        assert_eq!(bench.write(bench.other, lkey, start.addr() as u64, b"x"), Err(Fault::Domain));
        assert_eq!(dereg_mr(mr), 0);
        assert_eq!(bench.write(bench.pd, lkey, start.addr() as u64, b"x"), Err(Fault::Key));
    }
    bench.end();
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn registrations_that_the_kernel_refuses_are_refused() {
    let bench = Bench::new();
    let (start, length) = pages();
    let table = table::table();
    let (reg_mr, reg_iova) = (table.ibv_reg_mr.unwrap(), table.ibv_reg_mr_iova2.unwrap());
    // SAFETY: the pages exist; other memory is refused.
    unsafe {
        let refused = |mr: *mut ibv_mr, code| {
            let errno = errno();
            assert!(mr.is_null());
            assert_eq!(errno, Some(code));
        };
        refused(reg_mr(bench.pd, start, 0, LOCAL_WRITE), libc::EINVAL);
        refused(reg_mr(bench.pd, start, length, REMOTE_WRITE), libc::EINVAL);
        refused(reg_mr(bench.pd, start, length, 1 << 10), libc::EINVAL);
        refused(reg_mr(bench.pd, ptr::null_mut(), usize::MAX, LOCAL_WRITE | 1 << 6), libc::EOPNOTSUPP);
        refused(reg_mr(bench.pd, ptr::null_mut(), length, LOCAL_WRITE), libc::EFAULT);
        refused(reg_iova(bench.pd, start, length, 1, 0), libc::EINVAL);
        refused(reg_iova(bench.pd, start, length, u64::MAX - page_size() as u64 + 1, 0), libc::EINVAL);
        let mr = reg_iova(bench.pd, start.wrapping_byte_add(1), 8, 0x1001, 1 | 1 << 20);
        assert_eq!((*mr).addr, start.wrapping_byte_add(1));
        bench.write(bench.pd, (*mr).lkey, 0x1001, b"12345678").unwrap();
        assert_eq!(bench.read((*mr).lkey, 0x1008, 1).unwrap(), b"8");
        assert_eq!(dereg_mr(mr), 0);
        let mr = reg_iova(bench.pd, start.wrapping_byte_add(1), 8, start.addr() as u64 + 1, 1 | ZERO_BASED);
        assert_eq!(bench.read((*mr).lkey, 0, 8).unwrap(), b"12345678");
        assert_eq!(dereg_mr(mr), 0);
    }
    bench.end();
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn region_is_reregistered() {
    const DOMAIN: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_PD.0 as c_int;
    const TRANSLATION: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0 as c_int;
    const ACCESS: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_ACCESS.0 as c_int;
    let bench = Bench::new();
    let ((start, length), (second, _)) = (pages(), pages());
    let table = table::table();
    let rereg = table.ibv_rereg_mr.unwrap();
    // SAFETY: the pages exist until the process ends.
    unsafe {
        let mr = table.ibv_reg_mr.unwrap()(bench.pd, start, length, REMOTE_READ);
        let key = (*mr).lkey;
        let none = ptr::null_mut();
        assert_eq!(rereg(mr, DOMAIN, bench.other, none, 0, 0), 0);
        assert_eq!((*mr).pd, bench.other);
        assert_eq!(dealloc_pd(bench.other), libc::EBUSY);
        assert_eq!(rereg(mr, ACCESS, ptr::null_mut(), none, 0, LOCAL_WRITE), 0);
        bench.write(bench.other, key, start.addr() as u64, b"first").unwrap();
        assert_eq!(rereg(mr, DOMAIN | TRANSLATION | ACCESS, bench.pd, second, 8, LOCAL_WRITE | REMOTE_READ), 0);
        assert_eq!(((*mr).pd, (*mr).addr, (*mr).length, (*mr).lkey), (bench.pd, second, 8, key));
        bench.write(bench.pd, key, second.addr() as u64, b"second").unwrap();
        assert_eq!(bench.read(key, start.addr() as u64, 1), Err(Fault::Bounds));

        let input = ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_INPUT.0;
        let command = ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD.0;
        assert_eq!(rereg(mr, 8, ptr::null_mut(), none, 0, 0), input);
        assert_eq!(rereg(mr, TRANSLATION, ptr::null_mut(), none, 8, 0), input);
        assert_eq!(rereg(mr, TRANSLATION, ptr::null_mut(), second, 0, 0), input);
        assert_eq!(rereg(mr, DOMAIN, bench.pd, none, 0, LOCAL_WRITE), input);
        assert_eq!(rereg(mr, 0, ptr::null_mut(), none, 0, 0), command);
        assert_eq!(rereg(mr, ACCESS, ptr::null_mut(), none, 0, REMOTE_WRITE), command);
        assert_eq!(rereg(mr, TRANSLATION, ptr::null_mut(), ptr::without_provenance_mut(page_size()), 8, 0), command);
        assert_eq!(errno(), Some(libc::EFAULT));
        assert_eq!(bench.read(key, second.addr() as u64, 6).unwrap(), b"second");
        assert_eq!(dereg_mr(mr), 0);
    }
    bench.end();
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn null_region_has_no_remote_key() {
    let bench = Bench::new();
    // SAFETY: the domain lives until `end`, and the region as long as it is used.
    unsafe {
        let mr = super::memory_region::alloc_null_mr(bench.pd);
        assert_eq!(((*mr).addr.is_null(), (*mr).length, (*mr).rkey), (true, usize::MAX, 0));
        bench.write(bench.pd, (*mr).lkey, 0x1234, b"lost").unwrap();
        assert_eq!(bench.read((*mr).lkey, 0x1234, 4).unwrap(), [0; 4]);
        assert_eq!(super::memory_region::rereg_mr(mr, 4, ptr::null_mut(), ptr::null_mut(), 0, 1), -1);
        assert_eq!(dereg_mr(mr), 0);
    }
    bench.end();
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn advise_mr_checks_its_arguments() {
    type Advice = ib_uverbs_advise_mr_advice;
    let bench = Bench::new();
    let (start, length) = pages();
    let advise = super::memory_region::advise_mr;
    // SAFETY: the pages exist until the process ends, and the list during the calls.
    unsafe {
        let mr = table::table().ibv_reg_mr.unwrap()(bench.pd, start, length, REMOTE_READ);
        let good = ibv_sge { addr: start.addr() as u64, length: length as u32, lkey: (*mr).lkey };
        let read = Advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH;
        let write = Advice::IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
        let ask = |pd, advice, flags, mut pieces: Vec<ibv_sge>| {
            let count = pieces.len() as u32;
            advise(pd, advice, flags, pieces.as_mut_ptr(), count)
        };
        assert_eq!(ask(bench.pd, read, 1, vec![good, good]), 0);
        assert_eq!(ask(bench.pd, write, 0, vec![good]), libc::EPERM);
        assert_eq!(ask(bench.other, read, 0, vec![good]), libc::EPERM);
        assert_eq!(ask(bench.pd, read, 0, vec![good, ibv_sge { lkey: 0, ..good }]), libc::ENOENT);
        assert_eq!(ask(bench.pd, read, 2, vec![good]), libc::EINVAL);
        assert_eq!(ask(bench.pd, read, 0, vec![]), libc::EINVAL);
        assert_eq!(ask(bench.pd, ib_uverbs_advise_mr_advice(77), 0, vec![good]), libc::EOPNOTSUPP);
        assert_eq!(dereg_mr(mr), 0);
    }
    bench.end();
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn windows_have_two_types() {
    let bench = Bench::new();
    // SAFETY: the domain lives until `end`, and the windows as long as they are used.
    unsafe {
        let ops = (*bench.context).ops;
        let (alloc, dealloc) = (ops.alloc_mw.unwrap(), ops.dealloc_mw.unwrap());
        for kind in [ibv_mw_type::IBV_MW_TYPE_1, ibv_mw_type::IBV_MW_TYPE_2] {
            let mw = alloc(bench.pd, kind);
            assert_eq!(((*mw).context, (*mw).pd, (*mw).type_), (bench.context, bench.pd, kind));
            assert_ne!((*mw).rkey >> 8, 0);
            assert_eq!(dealloc_pd(bench.pd), libc::EBUSY);
            assert_eq!(dealloc(mw), 0);
        }
        assert!(alloc(bench.pd, ibv_mw_type(3)).is_null());
        assert_eq!(errno(), Some(libc::EINVAL));
    }
    bench.end();
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn reg_dmabuf_mr_refuses_other_files() {
    let bench = Bench::new();
    // SAFETY: the name ends with a nul byte; the domain lives until `end`.
    unsafe {
        let file = libc::memfd_create(c"softrnic".as_ptr(), libc::MFD_CLOEXEC);
        assert_eq!(libc::ftruncate(file, 8192), 0);
        for (descriptor, access, code) in
            [(file, LOCAL_WRITE, libc::EINVAL), (-1, LOCAL_WRITE, libc::EBADF), (file, 1 << 4, libc::EINVAL)]
        {
            assert!(super::memory_region::reg_dmabuf_mr(bench.pd, 0, 4096, 0, descriptor, access).is_null());
            assert_eq!(errno(), Some(code));
        }
        libc::close(file);
    }
    bench.end();
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn device_memory_is_copied_and_registered() {
    use super::device_memory::{alloc_dm, free_dm, reg_dm_mr};
    let bench = Bench::new();
    // SAFETY: the domain lives until `end`, and the objects as long as they are used.
    unsafe {
        let mut attr = ibv_alloc_dm_attr { length: 100, log_align_req: 12, comp_mask: 0 };
        let dm = alloc_dm(bench.context, &mut attr);
        let (to, from) = ((*dm).memcpy_to_dm.unwrap(), (*dm).memcpy_from_dm.unwrap());
        let mut bytes = [0u8; 8];
        assert_eq!(to(dm, 88, b"0123456789ab".as_ptr().cast(), 12), 0);
        assert_eq!(from(bytes.as_mut_ptr().cast(), dm, 92, 8), 0);
        assert_eq!(&bytes, b"456789ab");
        // mlx5 checks the range first, and then the alignment.
        let errors =
            [(92, 12, libc::EFAULT), (u64::MAX, 1, libc::EFAULT), (97, 4, libc::EFAULT), (104, 0, libc::EFAULT)];
        for (offset, length, errno) in errors.into_iter().chain([(1, 4, libc::EINVAL), (4, 3, libc::EINVAL)]) {
            assert_eq!(to(dm, offset, b"0123456789ab".as_ptr().cast(), length), errno, "{offset} {length}");
            assert_eq!(from([0u8; 12].as_mut_ptr().cast(), dm, offset, length), errno, "{offset} {length}");
        }
        assert_eq!(to(dm, 100, ptr::null(), 0), 0);

        assert!(reg_dm_mr(bench.pd, dm, 0, 8, 1).is_null());
        for (offset, length) in [(96, 8), (101, 0), (u64::MAX, 8)] {
            assert!(reg_dm_mr(bench.pd, dm, offset, length, 1 | ZERO_BASED).is_null());
            assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EINVAL));
        }
        let empty = reg_dm_mr(bench.pd, dm, 8, 0, 1 | ZERO_BASED);
        assert_eq!(bench.read((*empty).lkey, 0, 1), Err(Fault::Bounds));
        assert_eq!(dereg_mr(empty), 0);
        let mr = reg_dm_mr(bench.pd, dm, 90, 10, 1 | ZERO_BASED);
        assert_eq!(bench.read((*mr).lkey, 0, 10).unwrap(), b"23456789ab");
        assert_eq!(bench.read((*mr).lkey, 1, 10), Err(Fault::Bounds));
        assert_eq!(free_dm(dm), libc::EBUSY);
        assert_eq!(dereg_mr(mr), 0);
        assert_eq!(free_dm(dm), 0);

        for wrong in [
            ibv_alloc_dm_attr { length: 0, ..attr },
            ibv_alloc_dm_attr { log_align_req: 64, ..attr },
            ibv_alloc_dm_attr { log_align_req: 63, ..attr },
            ibv_alloc_dm_attr { comp_mask: 1, ..attr },
        ] {
            assert!(alloc_dm(bench.context, &mut { wrong }).is_null());
            assert_eq!(errno(), Some(libc::EINVAL));
        }
        assert!(alloc_dm(bench.context, &mut ibv_alloc_dm_attr { length: usize::MAX, ..attr }).is_null());
        assert_eq!(errno(), Some(libc::ENOMEM));
    }
    bench.end();
}

#[test]
#[cfg(target_pointer_width = "64")]
#[cfg_attr(miri, ignore = "makes system calls")]
fn gpu_memory_is_registered_by_address() {
    use rdma_cuda::Fake;
    const TRANSLATION: c_int = ibv_rereg_mr_flags::IBV_REREG_MR_CHANGE_TRANSLATION.0 as c_int;
    let (bench, fake) = (Bench::new(), Fake::load());
    let device = fake.allocate(fake.context(), 100);
    let address = ptr::without_provenance_mut(device as usize);
    let table = table::table();
    let reg_mr = table.ibv_reg_mr.unwrap();
    // SAFETY: the allocation and the pages exist as long as the regions.
    unsafe {
        assert!(reg_mr(bench.pd, address, 101, LOCAL_WRITE).is_null());
        assert_eq!(errno(), Some(libc::EFAULT));
        let mr = reg_mr(bench.pd, address, 100, LOCAL_WRITE);
        assert_eq!(((*mr).addr, (*mr).length), (address, 100));
        bench.write(bench.pd, (*mr).lkey, device + 90, b"0123456789").unwrap();
        assert_eq!(fake.get(device + 90, 10), b"0123456789");
        assert_eq!(bench.read((*mr).lkey, device + 95, 5).unwrap(), b"56789");
        assert_eq!(bench.read((*mr).lkey, device + 95, 6), Err(Fault::Bounds));

        let (start, _) = pages();
        let rereg = table.ibv_rereg_mr.unwrap();
        assert_eq!(rereg(mr, TRANSLATION, ptr::null_mut(), start, 8, 0), 0);
        bench.write(bench.pd, (*mr).lkey, start.addr() as u64, b"host").unwrap();
        assert_eq!(std::slice::from_raw_parts(start.cast::<u8>(), 4), b"host");
        assert_eq!(
            rereg(mr, TRANSLATION, ptr::null_mut(), address, 101, 0),
            ibv_rereg_mr_err_code::IBV_REREG_MR_ERR_CMD.0
        );
        assert_eq!(rereg(mr, TRANSLATION, ptr::null_mut(), address, 100, 0), 0);
        assert_eq!(bench.read((*mr).lkey, device + 90, 1).unwrap(), b"0");
        assert_eq!(dereg_mr(mr), 0);
    }
    bench.end();
}

#[test]
fn buffer_is_registered_within_its_bounds() {
    use rdma_mummy_sys::since_v44::*;
    let bench = Bench::new();
    let table = table::table().since_v44;
    let (allocate, free) = (table.ibv_alloc_buf.unwrap(), table.ibv_free_buf.unwrap());
    let (register, any) = (table.ibv_reg_buf_mr.unwrap(), table.ibv_reg_mr_ex.unwrap());
    let mut buf = ptr::null_mut();
    // SAFETY: the domains and the buffer are alive while they are used, and the attributes are readable.
    unsafe {
        let start = allocate(bench.pd, 5000, &raw mut buf);
        assert!(start.addr().is_multiple_of(page_size()));
        assert!(allocate(bench.pd, 0, &raw mut buf).is_null());
        let mr = register(bench.pd, buf, start.byte_add(1000), 4000, LOCAL_WRITE);
        assert_eq!(((*mr).addr, (*mr).length), (start.byte_add(1000), 4000));
        assert_eq!(bench.write(bench.pd, (*mr).lkey, start.addr() as u64 + 4996, b"last"), Ok(()));
        assert_eq!(std::slice::from_raw_parts(start.cast::<u8>().add(4996), 4), b"last");
        assert_eq!(dereg_mr(mr), 0);
        assert!(register(bench.pd, buf, start.byte_add(1001), 4000, LOCAL_WRITE).is_null());
        assert!(register(bench.pd, buf, start.wrapping_byte_sub(1), 10, LOCAL_WRITE).is_null());
        assert!(register(bench.other, buf, start, 10, LOCAL_WRITE).is_null(), "another domain");
        assert_eq!(table.ibv_export_buf_dmabuf_fd.unwrap()(buf), -1);

        let mut attr = ibv_mr_init_attr {
            length: 10,
            access: LOCAL_WRITE,
            comp_mask: IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_IOVA,
            iova: 0x10_0000,
            addr: start,
            fd: -1,
            fd_offset: 0,
            dmah: ptr::null_mut(),
            buf,
        };
        for mask in [attr.comp_mask, attr.comp_mask | IBV_REG_MR_MASK_BUF] {
            attr.comp_mask = mask;
            let mr = any(bench.pd, &raw mut attr);
            assert_eq!(bench.read((*mr).lkey, 0x10_0000, 10).map(|bytes| bytes.len()), Ok(10));
            assert_eq!(dereg_mr(mr), 0);
        }
        for mask in [IBV_REG_MR_MASK_IOVA, IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_ADDR, IBV_REG_MR_MASK_DMAH, 1 << 6] {
            attr.comp_mask = mask;
            assert!(any(bench.pd, &raw mut attr).is_null(), "{mask:#x}");
        }
        free(buf);
    }
    bench.end();
}
