use std::error::Error;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::dma_handle::{DmaHandleAttributes, HintedMemory};
use sideway::ibverbs::memory_region::{
    AdviseFlags, MemoryAdvice, MemoryRegion, RegistrationAttributes, ReregisterError, SurvivingRegion,
};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::work_request::ScatterGatherEntry;
use sideway_tests::process::alone;
use sideway_tests::recording::{Call, Failure, Kind, Recording, World};

/// The only call since the last query.
#[track_caller]
pub(crate) fn only(recording: &Recording) -> Call {
    let mut calls = recording.calls();
    assert_eq!(calls.len(), 1, "{calls:?}");
    calls.remove(0)
}

#[track_caller]
pub(crate) fn expect(call: &Call, verb: &str, arguments: &[(&str, u64)]) {
    assert_eq!(call.verb, verb);
    for (name, value) in arguments {
        assert_eq!(call.argument(name), *value, "{name} of {call:?}");
    }
}

/// A region of memory that is never accessed or freed.
fn region(pd: &Arc<ProtectionDomain>, access: AccessFlags) -> Arc<MemoryRegion> {
    static MEMORY: [u8; 64] = [0; 64];
    // SAFETY: the memory is never freed, and the recording device does not access it.
    unsafe { pd.reg_mr(MEMORY.as_ptr().expose_provenance(), 64, access) }.unwrap()
}

#[test]
fn reg_mr_and_reg_mr_iova_differ_in_the_io_address() {
    let world = World::new();
    let memory = [0_u8; 100];
    let at = memory.as_ptr().expose_provenance();
    let access = AccessFlags::LocalWrite | AccessFlags::RemoteRead | AccessFlags::RelaxedOrdering;
    let bits = 1 | 4 | 1 << 20;

    // SAFETY: the memory outlives the regions, and the recording device does not touch it.
    let plain = unsafe { world.pd.reg_mr(at, 100, access) }.unwrap();
    let call = only(&world.recording);
    expect(&call, "reg_mr", &[("addr", at as u64), ("length", 100), ("iova", at as u64), ("access", bits)]);
    assert_eq!((plain.get_ptr(), plain.region_len(), plain.iova()), (at, 100, Some(at as u64)));

    // SAFETY: as above.
    let moved = unsafe { world.pd.reg_mr_iova(at, 100, 0x7000, access) }.unwrap();
    let call = only(&world.recording);
    expect(&call, "reg_mr", &[("addr", at as u64), ("length", 100), ("iova", 0x7000), ("access", bits)]);
    assert_eq!((moved.get_ptr(), moved.iova()), (at, Some(0x7000)));
    assert_ne!(moved.lkey(), plain.lkey());
    assert_ne!(moved.handle(), plain.handle());

    // SAFETY: as above.
    let zero_based = unsafe { world.pd.reg_mr(at, 100, AccessFlags::ZeroBased) }.unwrap();
    assert_eq!(zero_based.iova(), None);
    let mut attributes = RegistrationAttributes::new(100, AccessFlags::ZeroBased);
    attributes.setup_ptr(at);
    // SAFETY: as above.
    let said_in_full = unsafe { world.pd.reg_mr_ex(&attributes) }.unwrap();
    assert_eq!(said_in_full.iova(), None);
    attributes.setup_iova(0x7000);
    // SAFETY: as above.
    let moved_in_full = unsafe { world.pd.reg_mr_ex(&attributes) }.unwrap();
    // SAFETY: as above.
    let moved_and_zero_based = unsafe { world.pd.reg_mr_iova(at, 100, 0x7000, AccessFlags::ZeroBased) }.unwrap();
    assert_eq!((moved_in_full.iova(), moved_and_zero_based.iova()), (None, None));
    drop((moved_in_full, moved_and_zero_based));
    drop((plain, moved, zero_based, said_in_full));
    world.end();
}

#[test]
fn implicit_on_demand_paging_registers_everything() {
    let world = World::new();
    // SAFETY: the recording device touches no memory.
    let mr = unsafe { world.pd.reg_implicit_odp_mr(AccessFlags::LocalWrite) }.unwrap();
    let call = only(&world.recording);
    expect(&call, "reg_mr", &[("addr", 0), ("length", u64::MAX), ("iova", 0), ("access", 1 | 1 << 6)]);
    assert_eq!((mr.iova(), mr.region_len()), (Some(0), usize::MAX));
    drop(mr);
    world.recording.fail("reg_mr", 0, Failure::documented(libc::EOPNOTSUPP));
    // SAFETY: as above.
    let error = unsafe { world.pd.reg_implicit_odp_mr(AccessFlags::empty()) }.unwrap_err();
    assert!(error.to_string().contains("does not support implicit on-demand paging"), "{error}");
    world.end();
}

#[test]
fn dmabuf_is_registered_by_its_descriptor() {
    let world = World::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    // SAFETY: the recording device touches no memory.
    let mr = unsafe { world.pd.reg_dmabuf_mr(4096, 512, 0x10_0000, file.as_fd(), AccessFlags::LocalWrite) }.unwrap();
    let fd = file.as_raw_fd() as u64;
    let arguments = [("offset", 4096), ("length", 512), ("iova", 0x10_0000), ("fd", fd), ("access", 1)];
    expect(&only(&world.recording), "reg_dmabuf_mr", &arguments);
    assert_eq!((mr.iova(), mr.get_ptr()), (Some(0x10_0000), 0));
    drop(mr);
    // SAFETY: as above.
    let mr = unsafe { world.pd.reg_dmabuf_mr(4096, 512, 0x10_0000, file.as_fd(), AccessFlags::ZeroBased) }.unwrap();
    assert_eq!(mr.iova(), None);
    drop(mr);
    world.end();
}

#[test]
fn registration_errors_have_a_remedy() {
    let world = World::new();
    for (errno, iova, access, words) in [
        (libc::EINVAL, 0x7000, AccessFlags::RemoteWrite, "also need LocalWrite"),
        (libc::EINVAL, 0x7001, AccessFlags::LocalWrite, "different offsets within a page"),
        (libc::EOPNOTSUPP, 0x7000, AccessFlags::OnDemand, "may not support on-demand paging"),
        (libc::EOPNOTSUPP, 0x7000, AccessFlags::FlushGlobal, "may not support flush"),
        (libc::EFAULT, 0x7000, AccessFlags::LocalWrite, "not mapped"),
    ] {
        world.recording.fail("reg_mr", 0, Failure::documented(errno));
        // SAFETY: nothing is registered.
        let error = unsafe { world.pd.reg_mr_iova(0x10_0000, 64, iova, access) }.unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_reg_mr_iova", errno));
        assert!(error.to_string().contains(words), "{error}");
    }
    world.end();
}

#[test]
#[cfg_attr(miri, ignore = "makes system calls")]
fn locked_memory_counts_towards_the_limit() {
    // The limit belongs to the process.
    if !alone("memory::regions::locked_memory_counts_towards_the_limit", &[]) {
        return;
    }
    let world = World::new();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: lowering the limit is sound, because these tests lock no memory.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(1 << 20);
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &limit), 0);
    }
    world.recording.fail("reg_mr", 0, Failure::documented(libc::ENOMEM));
    // SAFETY: nothing is registered.
    let error = unsafe { world.pd.reg_mr(0x10_0000, 64, AccessFlags::LocalWrite) }.unwrap_err();
    let hint = error.hint().unwrap();
    assert!(hint.starts_with("cannot lock 64 bytes") && hint.contains(&format!(" is {};", limit.rlim_cur)), "{hint}");
    assert!(hint.contains("memory locked before") && hint.contains("ulimit -l"), "{hint}");
    world.end();
}

#[test]
fn null_region_has_no_memory_and_cannot_be_changed() {
    let world = World::new();
    let mut mr = world.pd.alloc_null_mr().unwrap();
    expect(&only(&world.recording), "alloc_null_mr", &[]);
    assert_eq!((mr.get_ptr(), mr.region_len()), (0, usize::MAX));
    // SAFETY: nothing is registered.
    let error =
        unsafe { Arc::get_mut(&mut mr).unwrap().rereg_mr(None, None, Some(AccessFlags::LocalWrite)) }.unwrap_err();
    assert!(error.to_string().contains("null region"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0]);
    drop(mr);
    assert_eq!(world.recording.verbs(), ["dereg_mr"]);
    world.end();

    let recording = Recording::new();
    recording.without("alloc_null_mr").without("advise_mr");
    let pd = recording.open().alloc_pd().unwrap();
    assert_eq!(pd.alloc_null_mr().unwrap_err().errno().raw(), libc::EOPNOTSUPP);
    let error = pd.advise_mr(MemoryAdvice::Prefetch, AdviseFlags::empty(), &[]).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_advise_mr", libc::EOPNOTSUPP));
}

#[test]
fn advice_names_each_range() {
    let world = World::new();
    let mr = region(&world.pd, AccessFlags::OnDemand);
    let ranges = [ScatterGatherEntry::new(mr.lkey(), 0x1000, 64), ScatterGatherEntry::new(mr.lkey(), 0x2000, 128)];
    world.recording.calls();
    world.pd.advise_mr(MemoryAdvice::PrefetchWrite, AdviseFlags::Flush, &ranges).unwrap();
    let call = only(&world.recording);
    expect(&call, "advise_mr", &[("advice", 1), ("flags", 1), ("count", 2)]);
    let lkey = u64::from(mr.lkey().raw());
    let entries = [("lkey", lkey), ("addr", 0x1000), ("length", 64), ("lkey", lkey), ("addr", 0x2000), ("length", 128)];
    assert_eq!(call.arguments[3..], entries);
    world.pd.advise_mr(MemoryAdvice::PrefetchNoFault, AdviseFlags::empty(), &[]).unwrap();
    expect(&only(&world.recording), "advise_mr", &[("advice", 2), ("flags", 0), ("count", 0)]);

    for failure in [Failure::documented(libc::EFAULT), Failure::negative(libc::EFAULT)] {
        world.recording.fail("advise_mr", 0, failure);
        let error = world.pd.advise_mr(MemoryAdvice::Prefetch, AdviseFlags::empty(), &ranges).unwrap_err();
        assert!(error.to_string().starts_with("ibv_advise_mr: EFAULT"), "{error}");
        assert!(error.hint().unwrap().contains("without OnDemand"), "{error}");
    }
    drop(mr);
    world.end();
}

/// Reregisters a region.
fn change(
    mr: &mut Arc<MemoryRegion>,
    pd: Option<&Arc<ProtectionDomain>>,
    range: Option<(usize, usize)>,
    access: Option<AccessFlags>,
) -> Result<(), ReregisterError> {
    // SAFETY: the recording device touches no memory.
    unsafe { Arc::get_mut(mr).unwrap().rereg_mr(pd, range, access) }
}

#[test]
fn reregistration_changes_only_the_given_parts() {
    let world = World::new();
    let other = world.context.alloc_pd().unwrap();
    let mut mr = region(&world.pd, AccessFlags::LocalWrite);
    let (rkey, at) = (mr.rkey(), mr.get_ptr() as u64);
    world.recording.calls();

    change(&mut mr, None, None, Some(AccessFlags::LocalWrite | AccessFlags::RemoteWrite)).unwrap();
    let call = only(&world.recording);
    expect(&call, "rereg_mr", &[("flags", 4), ("pd", 0), ("addr", 0), ("length", 0), ("access", 3)]);
    assert_eq!((mr.rkey(), mr.iova()), (rkey.inc_rkey(), Some(at)));

    change(&mut mr, None, Some((0x5000, 99)), None).unwrap();
    let call = only(&world.recording);
    expect(&call, "rereg_mr", &[("flags", 1), ("pd", 0), ("addr", 0x5000), ("length", 99), ("access", 0)]);
    assert_eq!((mr.iova(), mr.get_ptr(), mr.region_len()), (Some(0x5000), 0x5000, 99));

    change(&mut mr, Some(&other), None, None).unwrap();
    expect(&only(&world.recording), "rereg_mr", &[("flags", 2), ("addr", 0), ("length", 0), ("access", 0)]);
    assert!(Arc::ptr_eq(mr.protection_domain(), &other), "the region keeps the new domain");
    drop(other);
    assert_eq!(world.recording.verbs(), [""; 0]);
    drop(mr);
    assert_eq!(world.recording.verbs(), ["dereg_mr", "dealloc_pd"]);
    world.end();
}

#[test]
fn zero_based_addresses_are_not_reported_as_memory_addresses() {
    let world = World::new();
    let mut mr = region(&world.pd, AccessFlags::ZeroBased);
    change(&mut mr, None, Some((0x5000, 99)), None).unwrap();
    assert_eq!(mr.iova(), None, "the access is as it was");
    change(&mut mr, None, Some((0x6000, 99)), Some(AccessFlags::LocalWrite)).unwrap();
    assert_eq!(mr.iova(), Some(0x6000));
    change(&mut mr, None, None, Some(AccessFlags::ZeroBased)).unwrap();
    assert_eq!(mr.iova(), None);
    drop(mr);
    world.end();
}

#[test]
fn failed_change_reports_which_registration_stands() {
    let world = World::new();
    let other = world.context.alloc_pd().unwrap();
    for (code, errno, left, words) in [
        (-1, "ENOMEM", SurvivingRegion::Old, "unchanged"),
        (-2, "ENOMEM", SurvivingRegion::Old, "unchanged"),
        (-3, "ENOMEM", SurvivingRegion::New, "has changed as requested"),
        (-4, "ENOMEM", SurvivingRegion::Neither, "is unusable"),
        (-5, "ENOMEM", SurvivingRegion::Neither, "is unusable"),
        (-77, "ENOMEM", SurvivingRegion::Neither, "is unusable"),
        (libc::EINVAL, "EINVAL", SurvivingRegion::Neither, "is unusable"),
        (libc::EOPNOTSUPP, "EOPNOTSUPP", SurvivingRegion::Old, "unchanged"),
    ] {
        let mut mr = region(&world.pd, AccessFlags::LocalWrite);
        let at = mr.iova();
        world.recording.fail_rereg(code, libc::ENOMEM).calls();
        let error = change(&mut mr, Some(&other), Some((0x5000, 99)), None).unwrap_err();
        assert_eq!((error.region(), error.verb_error().errno().name()), (left, Some(errno)), "{code}");
        assert!(error.to_string().starts_with(&format!("ibv_rereg_mr: {errno}")), "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.source().is_none(), "the error's text contains the source");
        let is_new = left == SurvivingRegion::New;
        assert_eq!(Arc::ptr_eq(mr.protection_domain(), &other), is_new);
        assert_eq!(mr.iova(), if is_new { Some(0x5000) } else { at });
        world.recording.calls();
        drop(mr);
        assert_eq!(world.recording.verbs(), ["dereg_mr"], "the region is still to be deregistered");
    }
    drop(other);
    world.end();
}

#[test]
fn impossible_change_is_refused_before_the_call() {
    let world = World::new();
    let foreign = world.recording.open().alloc_pd().unwrap();
    let mut mr = region(&world.pd, AccessFlags::LocalWrite);
    world.recording.calls();
    for (pd, words) in [(None, "no change was requested"), (Some(&foreign), "another device context")] {
        let error = change(&mut mr, pd, None, None).unwrap_err();
        assert_eq!((error.region(), error.verb_error().errno().raw()), (SurvivingRegion::Old, libc::EINVAL));
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(world.recording.verbs(), [""; 0]);
    drop((mr, foreign));
    world.end();
}

fn hints(context: &Arc<DeviceContext>) -> DmaHandleAttributes {
    assert!(context.num_comp_vectors() > 0);
    DmaHandleAttributes { cpu_id: Some(3), processing_hint: None, memory: Some(HintedMemory::Persistent) }
}

#[test]
fn refused_advice_is_explained() {
    let world = World::new();
    let all = DmaHandleAttributes { cpu_id: Some(3), processing_hint: Some(1), memory: Some(HintedMemory::Volatile) };
    for (attributes, words) in [
        (DmaHandleAttributes { processing_hint: None, ..all }, Some("set processing_hint")),
        (DmaHandleAttributes { cpu_id: None, ..all }, Some("set both or neither")),
        (DmaHandleAttributes { memory: None, ..all }, Some("set both or neither")),
        (DmaHandleAttributes { processing_hint: Some(4), ..all }, Some("0 to 3")),
        (all, None),
    ] {
        world.recording.fail("alloc_dmah", 0, Failure::documented(libc::EINVAL));
        let error = world.context.alloc_dmah(&attributes).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EINVAL);
        match words {
            Some(words) => assert!(error.hint().unwrap().contains(words), "{error}"),
            None => assert_eq!(error.hint(), None),
        }
    }
    world.end();
}

#[test]
fn registration_passes_all_fields_and_its_dma_handle_outlives_it() {
    let world = World::new();
    let dma_handle = world.context.alloc_dmah(&hints(&world.context)).unwrap();
    let call = only(&world.recording);
    expect(&call, "alloc_dmah", &[("mask", 0b101), ("cpu_id", 3), ("ph", 0), ("tph_mem_type", 1)]);

    let mut hinted = RegistrationAttributes::new(64, AccessFlags::LocalWrite);
    // SAFETY: nothing is registered.
    let error = unsafe { world.pd.reg_mr_ex(&hinted) }.unwrap_err();
    assert!(error.to_string().contains("either setup_ptr or setup_dmabuf"), "{error}");
    hinted.setup_ptr(0x9000).setup_dma_handle(&dma_handle);
    // SAFETY: the recording device touches no memory.
    let mr = unsafe { world.pd.reg_mr_ex(&hinted) }.unwrap();
    drop(hinted);
    let call = only(&world.recording);
    expect(&call, "reg_mr_ex", &[("length", 64), ("access", 1), ("mask", 0b10010), ("addr", 0x9000)]);
    assert_ne!(call.argument("dmah"), 0);
    assert_eq!(mr.iova(), Some(0x9000));

    let file = std::fs::File::open("/dev/null").unwrap();
    let mut attributes = RegistrationAttributes::new(64, AccessFlags::empty());
    attributes.setup_dmabuf(file.as_fd(), 128);
    // SAFETY: nothing is registered.
    let error = unsafe { world.pd.reg_mr_ex(&attributes) }.unwrap_err();
    assert!(error.to_string().contains("setup_iova"), "{error}");
    attributes.setup_iova(0x4000);
    // SAFETY: the recording device touches no memory.
    drop(unsafe { world.pd.reg_mr_ex(&attributes) }.unwrap());
    let calls = world.recording.calls();
    let fd = file.as_raw_fd() as u64;
    let arguments = [("mask", 0b1101), ("iova", 0x4000), ("addr", 0), ("fd", fd), ("fd_offset", 128), ("dmah", 0)];
    expect(&calls[0], "reg_mr_ex", &arguments);
    attributes.setup_ptr(1);
    // SAFETY: nothing is registered.
    unsafe { world.pd.reg_mr_ex(&attributes) }.unwrap_err();

    // A handle of another context.
    let foreign = world.recording.open().alloc_dmah(&DmaHandleAttributes::default()).unwrap();
    let mut attributes = RegistrationAttributes::new(64, AccessFlags::LocalWrite);
    attributes.setup_ptr(0x9000).setup_dma_handle(&foreign);
    world.recording.calls();
    // SAFETY: nothing is registered.
    let error = unsafe { world.pd.reg_mr_ex(&attributes) }.unwrap_err();
    assert!(error.to_string().contains("another device context"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0]);
    drop((attributes, foreign));
    world.recording.calls();

    drop(dma_handle);
    assert_eq!(world.recording.verbs(), [""; 0], "the region holds it");
    drop(mr);
    assert_eq!(world.recording.verbs(), ["dereg_mr", "dealloc_dmah"]);
    world.end();
}

#[test]
fn buffer_of_the_driver_outlives_its_regions() {
    let world = World::new();
    assert!(world.pd.alloc_buf(0).unwrap_err().to_string().contains("length is 0"));
    let buffer = world.pd.alloc_buf(8192).unwrap();
    expect(&only(&world.recording), "alloc_buf", &[("size", 8192)]);
    let at = buffer.as_ptr().addr() as u64;
    let mr = world.pd.reg_buf_mr(&buffer, 4096, 4096, AccessFlags::LocalWrite).unwrap();
    expect(&only(&world.recording), "reg_buf_mr", &[("addr", at + 4096), ("length", 4096), ("access", 1)]);
    assert_eq!((mr.iova(), buffer.len()), (Some(at + 4096), 8192));
    assert_eq!(world.pd.reg_buf_mr(&buffer, 4096, 4096, AccessFlags::ZeroBased).unwrap().iova(), None);
    for (offset, len) in [(4096, 4097), (8193, 0), (usize::MAX, 2)] {
        let error = world.pd.reg_buf_mr(&buffer, offset, len, AccessFlags::empty()).unwrap_err();
        assert!(error.to_string().contains("exceed the 8192 bytes"), "{error}");
    }
    let foreign = world.recording.open().alloc_pd().unwrap();
    let error = foreign.reg_buf_mr(&buffer, 0, 1, AccessFlags::empty()).unwrap_err();
    assert!(error.to_string().contains("another device context"), "{error}");
    drop(foreign);
    world.recording.calls();
    drop(buffer);
    assert_eq!(world.recording.live().iter().filter(|kind| **kind == Kind::Buffer).count(), 1);
    drop(mr);
    assert_eq!(world.recording.verbs(), ["dereg_mr", "free_buf"]);
    world.end();
}

#[test]
fn user_buffer_uses_the_given_memory() {
    let world = World::new();
    let file = std::fs::File::open("/dev/null").unwrap();
    for (dmabuf, fd) in [(None, -1_i64 as u64), (Some(file.as_fd()), file.as_raw_fd() as u64)] {
        // SAFETY: the recording device touches no memory.
        let buffer = unsafe { world.pd.alloc_user_buf(0x8000, 4096, dmabuf) }.unwrap();
        expect(&only(&world.recording), "alloc_user_buf", &[("addr", 0x8000), ("size", 4096), ("fd", fd)]);
        let mr = world.pd.reg_buf_mr(&buffer, 16, 32, AccessFlags::empty()).unwrap();
        expect(&only(&world.recording), "reg_buf_mr", &[("addr", 0x8010), ("length", 32), ("access", 0)]);
        drop((buffer, mr));
        assert_eq!(world.recording.verbs(), ["dereg_mr", "free_user_buf"]);
    }
    world.recording.fail("alloc_user_buf", 0, Failure::documented(libc::ENOMEM));
    // SAFETY: as above.
    let error = unsafe { world.pd.alloc_user_buf(0x8000, 4096, None) }.unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_alloc_user_buf", libc::ENOMEM));
    // SAFETY: as above.
    assert!(unsafe { world.pd.alloc_user_buf(0x8000, 0, None) }.unwrap_err().to_string().contains("length is 0"));
    world.end();
}
