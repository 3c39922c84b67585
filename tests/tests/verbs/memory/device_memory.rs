use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway_tests::recording::{Failure, Kind, Recording, Warnings, World};

use crate::memory::regions::{expect, only};

#[test]
fn device_memory_is_allocated_copied_and_freed() {
    let world = World::new();
    let dm = world.context.alloc_dm(256, 6).unwrap();
    expect(&only(&world.recording), "alloc_dm", &[("length", 256), ("log_align", 6), ("mask", 0)]);
    assert_eq!((dm.len(), dm.handle().is_some()), (256, true));
    dm.memcpy_to_dm(252, b"last").unwrap();
    expect(&only(&world.recording), "memcpy_to_dm", &[("offset", 252), ("length", 4)]);
    let mut bytes = [0; 6];
    dm.memcpy_from_dm(250, &mut bytes).unwrap();
    expect(&only(&world.recording), "memcpy_from_dm", &[("offset", 250), ("length", 6)]);
    assert_eq!(&bytes, b"\0\0last");

    for (offset, len) in [(253, 4), (257, 0), (0, 257), (u64::MAX, 2)] {
        for error in [
            dm.memcpy_to_dm(offset, &vec![0; len]).unwrap_err(),
            dm.memcpy_from_dm(offset, &mut vec![0; len]).unwrap_err(),
            world.pd.reg_dm_mr(&dm, offset, len, AccessFlags::empty()).unwrap_err(),
        ] {
            assert_eq!(error.errno().raw(), libc::EINVAL);
            assert!(error.to_string().contains("exceed the 256 bytes of device memory"), "{error}");
        }
    }
    assert!(world.context.alloc_dm(0, 0).unwrap_err().to_string().contains("length is 0"));
    assert_eq!(world.recording.verbs(), [""; 0]);

    let fd = dm.export_dmabuf_fd().unwrap();
    assert!(std::fs::File::from(fd).metadata().is_ok());
    world.recording.fail("dm_export_dmabuf_fd", 0, Failure::documented(libc::ENOTSUP));
    let error = dm.export_dmabuf_fd().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_dm_export_dmabuf_fd", libc::EOPNOTSUPP));
    world.recording.calls();
    Arc::into_inner(dm).unwrap().close().unwrap();
    assert_eq!(world.recording.verbs(), ["free_dm"]);
    world.end();
}

#[test]
fn device_memory_region_is_zero_based_and_holds_its_memory() {
    let world = World::new();
    let dm = world.context.alloc_dm(256, 0).unwrap();
    world.recording.calls();
    let mr = world.pd.reg_dm_mr(&dm, 128, 64, AccessFlags::LocalWrite).unwrap();
    expect(&only(&world.recording), "reg_dm_mr", &[("offset", 128), ("length", 64), ("access", 1 | 1 << 5)]);
    assert_eq!((mr.iova(), mr.get_ptr(), mr.region_len()), (Some(0), 0, 64));
    drop(dm);
    assert_eq!(world.recording.verbs(), [""; 0]);
    drop(mr);
    assert_eq!(world.recording.verbs(), ["dereg_mr", "free_dm"]);

    // A region that cannot be deregistered keeps its memory.
    let warnings = Warnings::listen();
    let dm = world.context.alloc_dm(256, 0).unwrap();
    let mr = world.pd.reg_dm_mr(&dm, 0, 256, AccessFlags::LocalWrite).unwrap();
    world.recording.fail("dereg_mr", 0, Failure::documented(libc::EIO)).calls();
    drop((dm, mr));
    assert_eq!(world.recording.verbs(), ["dereg_mr"]);
    assert_eq!(warnings.take().len(), 1);
    assert!(world.recording.live().contains(&Kind::DeviceMemory));
}

#[test]
fn device_memory_of_another_context_is_refused_before_the_call() {
    let world = World::new();
    let foreign = world.recording.open().alloc_dm(256, 0).unwrap();
    world.recording.calls();
    let error = world.pd.reg_dm_mr(&foreign, 0, 256, AccessFlags::LocalWrite).unwrap_err();
    assert!(error.to_string().contains("another device context"), "{error}");
    assert_eq!(world.recording.verbs(), [""; 0]);
    drop(foreign);
    world.end();
}

#[test]
fn driver_without_a_function_is_an_error_and_no_null_is_called() {
    let recording = Recording::new();
    recording.without("alloc_dm");
    let error = recording.open().alloc_dm(256, 0).unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_alloc_dm", libc::EOPNOTSUPP));

    let recording = Recording::new();
    recording.without("memcpy_to_dm").without("reg_dm_mr");
    let context = recording.open();
    let (pd, dm) = (context.alloc_pd().unwrap(), context.alloc_dm(256, 0).unwrap());
    assert_eq!(dm.handle(), None);
    for (error, verb) in [
        (dm.memcpy_to_dm(0, b"x").unwrap_err(), "ibv_memcpy_to_dm"),
        (dm.memcpy_from_dm(0, &mut [0]).unwrap_err(), "ibv_memcpy_from_dm"),
        (pd.reg_dm_mr(&dm, 0, 1, AccessFlags::empty()).unwrap_err(), "ibv_reg_dm_mr"),
    ] {
        assert_eq!((error.verb(), error.errno().raw()), (verb, libc::EOPNOTSUPP));
    }
}
