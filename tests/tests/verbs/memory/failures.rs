use sideway::error::VerbError;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::dma_handle::DmaHandleAttributes;
use sideway::ibverbs::memory_region::{AdviseFlags, MemoryAdvice, RegistrationAttributes};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindowType};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::recording::{Failure, Warnings, World};

/// Creates one object of each kind.
fn scenario(world: &World) -> Result<(), VerbError> {
    let (context, pd) = (&world.context, &world.pd);
    let mut qp = world.qp_builder().build()?;
    let region = pd.reg_owned_mr(64, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind)?;
    let null = pd.alloc_null_mr()?;
    let dm = context.alloc_dm(64, 0)?;
    dm.memcpy_to_dm(0, b"four")?;
    dm.memcpy_from_dm(0, &mut [0; 4])?;
    let of_device = pd.reg_dm_mr(&dm, 0, 64, AccessFlags::LocalWrite)?;
    let buffer = pd.alloc_buf(64)?;
    let of_buffer = pd.reg_buf_mr(&buffer, 0, 64, AccessFlags::LocalWrite)?;
    let dma_handle = context.alloc_dmah(&DmaHandleAttributes::default())?;
    let mut attributes = RegistrationAttributes::new(64, AccessFlags::LocalWrite);
    attributes.setup_ptr(0x1000).setup_dma_handle(&dma_handle);
    // SAFETY: the recording device touches no memory.
    let mut hinted = unsafe { pd.reg_mr_ex(&attributes) }?;
    let access = Some(AccessFlags::empty());
    let hinted_alone = std::sync::Arc::get_mut(&mut hinted).expect("it has no other owner");
    // SAFETY: as above.
    unsafe { hinted_alone.rereg_mr(None, None, access) }?;
    pd.advise_mr(MemoryAdvice::Prefetch, AdviseFlags::empty(), &[])?;
    let mut window = pd.alloc_mw(MemoryWindowType::Type1)?;
    let all = BindInformation::new(region.region(), region.addr(), 64, AccessFlags::RemoteRead);
    window.bind_mw(qp.queues().0, 1, WorkRequestFlags::empty(), &all)?;
    let imported = context.import_pd(pd.handle())?;
    // SAFETY: this test registered the region.
    let again = unsafe { imported.import_mr(null.handle()) }?;
    drop((window, again, of_device, of_buffer));
    Ok(())
}

#[test]
fn each_call_may_fail_without_leaks() {
    let warnings = Warnings::listen();
    let world = World::new();
    let before = world.recording.failable();
    scenario(&world).unwrap();
    let calls = world.recording.failable() - before;
    assert!(calls > 20, "{calls}");
    world.end();

    for failure in [Failure::documented(libc::ENOMEM), Failure::minus_one(libc::ENOMEM)] {
        for index in 0..calls {
            let world = World::new();
            world.recording.fail_any(index, failure);
            let result = scenario(&world);
            let log = world.recording.calls();
            let failed = log.iter().find(|call| call.failed.is_some()).unwrap().verb;
            assert_eq!(world.recording.violations(), [""; 0], "{failed}");
            let lines = warnings.take();
            if ["destroy", "dealloc", "dereg", "free"].iter().any(|word| failed.starts_with(word)) {
                result.unwrap();
                assert!(!lines.is_empty() && lines.iter().all(|line| line.contains("leaked")), "{failed}: {lines:?}");
                // The parents are leaked too; dropping the object logs this.
                drop(world);
                warnings.take();
                continue;
            }
            assert_eq!(lines, [""; 0], "{failed}");
            let error = result.unwrap_err();
            assert_eq!(
                (error.verb(), error.errno().raw()),
                (format!("ibv_{failed}").as_str(), libc::ENOMEM),
                "{index}"
            );
            world.end();
        }
    }
}
