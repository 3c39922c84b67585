use std::sync::Arc;

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{MemoryRegion, RemoteKey, SurvivingRegion};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindow, MemoryWindowType};
use sideway::ibverbs::queue_pair::QueuePairState;
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::recording::{Failure, Kind, Recording, Warnings, World};

use crate::memory::regions::{expect, only};

const BINDABLE: AccessFlags = AccessFlags::LocalWrite.union(AccessFlags::MemoryWindowBind);

fn window(world: &World) -> MemoryWindow {
    let window = world.pd.alloc_mw(MemoryWindowType::Type1).unwrap();
    world.recording.calls();
    window
}

#[test]
fn window_has_its_type_and_is_dropped_before_its_domain() {
    let world = World::new();
    for (window_type, raw) in
        [(MemoryWindowType::Type1, 1), (MemoryWindowType::Type2, 2), (MemoryWindowType::from_raw(9), 9)]
    {
        let window = world.pd.alloc_mw(window_type).unwrap();
        expect(&only(&world.recording), "alloc_mw", &[("type_", raw)]);
        assert_eq!((window.window_type(), window.rkey().raw() & 0xff), (window_type, 0xff));
        assert!(Arc::ptr_eq(window.protection_domain(), &world.pd));
        window.close().unwrap();
        assert_eq!(world.recording.verbs(), ["dealloc_mw"]);
    }
    let window = window(&world);
    let World { send_cq, recv_cq, pd, context, recording } = world;
    drop((pd, context));
    assert_eq!(recording.verbs(), [""; 0]);
    drop(window);
    assert_eq!(recording.verbs(), ["dealloc_mw", "dealloc_pd"]);
    drop((send_cq, recv_cq));
}

#[test]
fn driver_without_a_window_function_is_an_error_at_once() {
    for missing in ["alloc_mw", "dealloc_mw", "bind_mw"] {
        let recording = Recording::new();
        recording.without(missing);
        let pd = recording.open().alloc_pd().unwrap();
        recording.calls();
        let error = pd.alloc_mw(MemoryWindowType::Type1).unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_alloc_mw", libc::EOPNOTSUPP));
        assert!(error.to_string().contains(missing), "{error}");
        assert_eq!(recording.verbs(), [""; 0]);
        // A window of type 2 is bound by a request.
        assert_eq!(pd.alloc_mw(MemoryWindowType::Type2).is_ok(), missing == "bind_mw");
    }
}

#[test]
fn bind_posts_its_arguments_and_returns_the_new_key() {
    let world = World::new();
    let region = world.pd.reg_owned_mr(4096, BINDABLE).unwrap();
    for mut qp in world.queue_pairs() {
        let mut window = window(&world);
        let old = window.rkey();
        let access = AccessFlags::RemoteWrite | AccessFlags::ZeroBased;
        let part = BindInformation::new(region.region(), region.addr() + 64, 128, access);
        assert_eq!(
            (part.addr(), part.length(), part.access(), part.is_unbind()),
            (region.addr() + 64, 128, access, false)
        );
        let flags = WorkRequestFlags::Signaled | WorkRequestFlags::Fence | WorkRequestFlags::Inline;
        let rkey = window.bind_mw(qp.queues().0, 7, flags, &part).unwrap();
        let call = only(&world.recording);
        let arguments =
            [("wr_id", 7), ("flags", 0b11), ("addr", region.addr() + 64), ("length", 128), ("access", 2 | 1 << 5)];
        expect(&call, "bind_mw", &arguments);
        assert_ne!(call.argument("mr"), 0);
        assert_eq!((rkey, window.rkey()), (old.inc_rkey(), rkey));

        // The completion reported the failure.
        window.set_rkey(old).unwrap();
        assert_eq!(window.rkey(), old);

        window.bind_mw(qp.queues().0, 8, WorkRequestFlags::empty(), &BindInformation::unbind()).unwrap();
        let call = only(&world.recording);
        expect(&call, "bind_mw", &[("wr_id", 8), ("flags", 0), ("mr", 0), ("addr", 0), ("length", 0), ("access", 0)]);
    }
    drop(region);
    world.end();
}

#[test]
fn region_with_a_bound_window_is_not_deregistered() {
    let world = World::new();
    let warnings = Warnings::listen();
    let [mut qp, _] = world.queue_pairs();
    let mut window = window(&world);
    let region = world.pd.reg_owned_mr(4096, BINDABLE).unwrap();
    let all = BindInformation::new(region.region(), region.addr(), 4096, AccessFlags::RemoteRead);
    window.bind_mw(qp.queues().0, 1, WorkRequestFlags::empty(), &all).unwrap();
    let at = region.as_ptr();
    world.recording.calls();
    drop(region);
    let lines = warnings.take();
    assert!(lines.len() == 1 && lines[0].starts_with("WARN: ibv_dereg_mr: EBUSY"), "{lines:?}");
    // SAFETY: the pages were leaked, and are mapped.
    unsafe { at.write(1) };
    drop((window, qp));
    assert!(world.recording.live().contains(&Kind::MemoryRegion));
}

#[test]
fn mismatched_objects_are_refused_before_the_call() {
    let world = World::new();
    let [mut qp, _] = world.queue_pairs();
    let mut window = window(&world);
    let region = world.pd.reg_owned_mr(4096, BINDABLE).unwrap();
    let elsewhere = world.context.alloc_pd().unwrap().reg_owned_mr(4096, BINDABLE).unwrap();
    let null = world.pd.alloc_null_mr().unwrap();
    let mut type_2 = world.pd.alloc_mw(MemoryWindowType::Type2).unwrap();
    let mut foreign = world.recording.open().alloc_pd().unwrap().alloc_mw(MemoryWindowType::Type1).unwrap();
    let mut raw_packets = {
        let mut builder = world.pd.create_raw_packet_qp_builder();
        builder.setup_send_cq(&world.send_cq).setup_recv_cq(&world.recv_cq).build().unwrap()
    };
    world.recording.calls();

    let none = WorkRequestFlags::empty();
    let of = |region, addr| BindInformation::new(region, addr, 64, AccessFlags::RemoteRead);
    let good = of(region.region(), region.addr());
    let errors = [
        (type_2.bind_mw(qp.queues().0, 1, none, &good), "post a bind request for type 2"),
        (foreign.bind_mw(qp.queues().0, 1, none, &BindInformation::unbind()), "another device context"),
        (window.bind_mw(raw_packets.queues().0, 1, none, &good), "RawPacket do not support windows"),
        (window.bind_mw(qp.queues().0, 1, none, &of(&null, 0)), "null region"),
        (
            window.bind_mw(qp.queues().0, 1, none, &of(elsewhere.region(), elsewhere.addr())),
            "another protection domain",
        ),
    ];
    for (result, words) in errors {
        let error = result.unwrap_err();
        assert_eq!((error.verb(), error.errno().raw()), ("ibv_bind_mw", libc::EINVAL));
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(world.recording.verbs(), [""; 0]);

    let old = window.rkey();
    for failure in
        [Failure::documented(libc::EINVAL), Failure::negative(libc::EINVAL), Failure::minus_one(libc::EINVAL)]
    {
        world.recording.fail("bind_mw", 0, failure);
        let error = window.bind_mw(qp.queues().0, 1, none, &good).unwrap_err();
        assert!(error.to_string().contains("the driver rejects this range or access"), "{error}");
        assert_eq!(window.rkey(), old);
    }
    assert_eq!(qp.queues().0.state(), QueuePairState::Reset);
    drop((window, type_2, foreign, raw_packets, qp, null, elsewhere, region));
    world.end();
}

/// mlx5's driver, among others, checks neither the region's access rights nor its range.
#[test]
fn window_cannot_exceed_its_regions_access() {
    let world = World::new();
    let mut window = window(&world);
    for mut qp in world.queue_pairs() {
        for (access, asked, words) in [
            (AccessFlags::LocalWrite, AccessFlags::RemoteWrite, "add it to the access flags"),
            (AccessFlags::LocalWrite | AccessFlags::RemoteWrite, AccessFlags::RemoteRead, "without MemoryWindowBind"),
            (AccessFlags::MemoryWindowBind, AccessFlags::RemoteWrite, "needs a region with LocalWrite"),
            (AccessFlags::MemoryWindowBind, AccessFlags::RemoteAtomic, "needs a region with LocalWrite"),
        ] {
            let mut region = world.pd.reg_owned_mr(4096, access).unwrap();
            world.recording.calls();
            let bind = BindInformation::new(region.region(), region.addr(), 4096, asked);
            let error = window.bind_mw(qp.queues().0, 1, WorkRequestFlags::empty(), &bind).unwrap_err();
            assert!(error.to_string().contains(words), "{error}");
            assert_eq!(world.recording.verbs(), [""; 0]);
            assert_eq!(region.as_mut_slice().is_ok(), access == AccessFlags::LocalWrite);
        }
        let region = world.pd.reg_owned_mr(4096, BINDABLE).unwrap();
        let end = region.addr() + 4096;
        for (addr, length) in [(region.addr() - 1, 2), (region.addr(), 4097), (end - 1, 2), (0, 1), (end, u64::MAX)] {
            world.recording.calls();
            let bind = BindInformation::new(region.region(), addr, length, AccessFlags::RemoteRead);
            let error = window.bind_mw(qp.queues().0, 1, WorkRequestFlags::empty(), &bind).unwrap_err();
            assert!(error.to_string().contains("the range exceeds the region"), "{error}");
            assert_eq!(world.recording.verbs(), [""; 0]);
        }
    }
    drop(window);
    world.end();
}

#[test]
fn region_access_is_that_of_its_last_registration() {
    let world = World::new();
    let mut window = window(&world);
    let [mut qp, _] = world.queue_pairs();
    let owned = world.pd.reg_owned_mr(4096, AccessFlags::LocalWrite).unwrap();
    let addr = owned.addr();
    let mut region = Arc::clone(owned.region());
    drop(owned);
    let mut bind = |region: &MemoryRegion, length| {
        let bind = BindInformation::new(region, addr, length, AccessFlags::RemoteWrite);
        let bound = window.bind_mw(qp.queues().0, 1, WorkRequestFlags::empty(), &bind);
        // The window is dropped, so that the region can be reregistered.
        if bound.is_ok() {
            window.bind_mw(qp.queues().0, 1, WorkRequestFlags::empty(), &BindInformation::unbind()).unwrap();
        }
        bound.map_err(|error| error.to_string())
    };
    assert!(bind(&region, 4096).unwrap_err().contains("without MemoryWindowBind"));

    let anew = Arc::get_mut(&mut region).unwrap();
    // SAFETY: no request names the region, no window is bound to it, and its pages have no references.
    unsafe { anew.rereg_mr(None, None, Some(BINDABLE)) }.unwrap();
    bind(anew, 4096).unwrap();
    // SAFETY: as above; it is a part of the pages.
    unsafe { anew.rereg_mr(None, Some((addr as usize, 64)), None) }.unwrap();
    bind(anew, 64).unwrap();
    assert!(bind(anew, 65).unwrap_err().contains("the range exceeds"));
    // SAFETY: as above.
    unsafe { anew.rereg_mr(None, None, Some(AccessFlags::LocalWrite)) }.unwrap();
    assert!(bind(anew, 64).unwrap_err().contains("without MemoryWindowBind"));

    // A reregistration that failed halfway leaves the access unknown. SAFETY: as above.
    unsafe { anew.rereg_mr(None, None, Some(BINDABLE)) }.unwrap();
    bind(anew, 64).unwrap();
    world.recording.fail_rereg(-4, libc::EIO);
    // SAFETY: as above.
    let error = unsafe { anew.rereg_mr(None, None, Some(BINDABLE)) }.unwrap_err();
    assert_eq!(error.region(), SurvivingRegion::Neither);
    assert!(bind(anew, 64).unwrap_err().contains("access flags are unknown"));

    // SAFETY: this test registered the region, and its keys are not in use.
    let imported = unsafe { world.pd.import_mr(region.handle()) }.unwrap();
    assert!(bind(&imported, 64).unwrap_err().contains("access flags are unknown"));
    drop((imported, region, window, qp));
    world.end();
}

/// A driver derives the object that a binding changes from the window's key.
#[test]
fn window_refuses_foreign_keys() {
    let world = World::new();
    let (mut window, other) = (window(&world), window(&world));
    let region = world.pd.reg_owned_mr(64, AccessFlags::LocalWrite).unwrap();
    let own = window.rkey();
    for rkey in [other.rkey(), region.rkey(), RemoteKey::from_raw(own.raw() ^ 0x100), RemoteKey::from_raw(!own.raw())] {
        let error = window.set_rkey(rkey).unwrap_err();
        assert_eq!(error.errno().raw(), libc::EINVAL);
        assert!(error.to_string().contains(&format!("the key {rkey} does not belong to this window")), "{error}");
        assert_eq!(window.rkey(), own);
    }
    for tag in 0..=255 {
        let rkey = RemoteKey::from_raw(own.raw() & !0xff | tag);
        window.set_rkey(rkey).unwrap();
        assert_eq!(window.rkey(), rkey);
    }
    drop((region, other, window));
    world.end();
}
