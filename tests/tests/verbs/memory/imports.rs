use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device_context::DeviceContext;
use sideway_tests::recording::{Kind, Recording, World, answer, loose_calls};

use crate::memory::regions::{expect, only};

#[test]
fn device_is_imported_by_a_duplicate_of_its_descriptor() {
    let recording = Recording::new();
    let original = recording.open();
    assert!(original.cmd_fd().is_none(), "the recording device has no descriptor");
    let file = std::fs::File::open("/dev/null").unwrap();
    loose_calls();
    let context = DeviceContext::import_device(file.as_fd()).unwrap();
    let calls = loose_calls();
    let fd = context.cmd_fd().unwrap().as_raw_fd();
    assert_eq!(calls, [("import_device", fd as usize, 0)]);
    assert_ne!(fd, file.as_raw_fd());
    drop(original);
    recording.calls();
    drop(context);
    assert_eq!(recording.verbs(), ["close_device"]);
    assert_eq!(recording.live(), []);

    for (errno, words) in [
        (libc::ENODEV, "does not belong to an RDMA device"),
        (libc::EOPNOTSUPP, "does not support importing"),
        (libc::EIO, "EIO"),
    ] {
        answer("import_device", errno);
        let error = DeviceContext::import_device(file.as_fd()).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_import_device", errno));
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn imports_are_released_and_their_originals_stay() {
    let world = World::new();
    let mr = world.pd.reg_owned_mr(64, AccessFlags::LocalWrite).unwrap();
    let dm = world.context.alloc_dm(4096, 0).unwrap();
    world.recording.calls();

    let pd = world.context.import_pd(world.pd.handle()).unwrap();
    expect(&only(&world.recording), "import_pd", &[("handle", world.pd.handle().into())]);
    assert_eq!(pd.handle(), world.pd.handle());
    // SAFETY: this test registered the region.
    let region = unsafe { pd.import_mr(mr.region().handle()) }.unwrap();
    expect(&only(&world.recording), "import_mr", &[("handle", mr.region().handle().into())]);
    assert_eq!((region.iova(), region.get_ptr(), region.region_len()), (None, 0, 64));
    assert_eq!((region.lkey().raw(), region.rkey().raw()), (71, 72));
    // SAFETY: the memory lives as long as the import, and has this size.
    let memory = unsafe { world.context.import_dm(dm.handle().unwrap(), 4096) }.unwrap();
    expect(&only(&world.recording), "import_dm", &[("handle", dm.handle().unwrap().into())]);
    assert!(memory.memcpy_to_dm(4095, b"xy").is_err());
    memory.memcpy_to_dm(4095, b"x").unwrap();
    // SAFETY: as above.
    assert!(unsafe { world.context.import_dm(1, 0) }.unwrap_err().to_string().contains("length is 0"));
    // An import is used like its original.
    drop(pd.reg_owned_mr(64, AccessFlags::LocalWrite).unwrap());
    drop(world.pd.reg_dm_mr(&memory, 0, 64, AccessFlags::LocalWrite));

    world.recording.calls();
    drop(pd);
    drop(region);
    Arc::into_inner(memory).unwrap().close().unwrap();
    assert_eq!(world.recording.verbs(), ["unimport_mr", "unimport_pd", "unimport_dm"]);
    let live = world.recording.live();
    for kind in [Kind::ProtectionDomain, Kind::MemoryRegion, Kind::DeviceMemory] {
        assert!(live.contains(&kind), "{kind:?}");
    }
    assert!(!live.contains(&Kind::Import));
    drop((mr, dm));
    world.end();
}
