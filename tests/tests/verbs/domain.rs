//! Parent domains, with an allocator or with a thread domain, and single-threaded queues.

use std::alloc::{Layout, alloc, dealloc};
use std::error::Error;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::{
    CompletionModeration, CompletionQueue, CreateCompletionQueueWorkCompletionFlags as Fields, WorkCompletionSource,
};
use sideway::ibverbs::parent_domain::{Allocation, AllocationRequest, DomainAllocator};
use sideway::ibverbs::queue_pair::{
    PostSendGuard, QueuePairAttribute, QueuePairAttributeMask, QueuePairState, QueuePairType,
};
use sideway::ibverbs::single_threaded::SingleThreadedDomain;
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_tests::recording::{Failure, Kind, Recording, World};

/// The answer of an allocator.
#[derive(Debug, Clone, Copy)]
enum Answer {
    Memory,
    Default,
    Failed,
    Panic,
}

/// Counts its allocations and deallocations.
#[derive(Debug)]
struct Counting {
    answer: Answer,
    given: AtomicU32,
    taken: AtomicU32,
}

const LAYOUT: Layout = match Layout::from_size_align(4096, 256) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

// SAFETY: the allocated memory has the requested size and alignment (only one is requested, which is checked), and is
// freed once.
unsafe impl DomainAllocator for Counting {
    fn allocate(&self, request: &AllocationRequest) -> Allocation {
        assert_eq!((request.size, request.alignment), (LAYOUT.size(), LAYOUT.align()));
        assert_eq!(request.resource_type, 0x7_0000_0001);
        self.given.fetch_add(1, Ordering::Relaxed);
        match self.answer {
            // SAFETY: the size is not zero.
            Answer::Memory => NonNull::new(unsafe { alloc(LAYOUT) }).map_or(Allocation::Failed, Allocation::Memory),
            Answer::Default => Allocation::Default,
            Answer::Failed => Allocation::Failed,
            Answer::Panic => panic!("a panic in the allocator"),
        }
    }

    unsafe fn free(&self, memory: NonNull<u8>, resource_type: u64) {
        assert_eq!(resource_type, 0x7_0000_0001);
        self.taken.fetch_add(1, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { dealloc(memory.as_ptr(), LAYOUT) };
    }
}

fn allocator(answer: Answer) -> Arc<Counting> {
    Arc::new(Counting { answer, given: AtomicU32::new(0), taken: AtomicU32::new(0) })
}

fn counts(allocator: &Counting) -> (u32, u32) {
    (allocator.given.load(Ordering::Relaxed), allocator.taken.load(Ordering::Relaxed))
}

#[test]
fn parent_domain_works_like_its_protection_domain() {
    let world = World::new();
    let parent = world.pd.create_parent_domain_builder().build().unwrap();
    let call = world.recording.calls().remove(0);
    assert_eq!((call.verb, call.argument("td"), call.argument("comp_mask")), ("alloc_parent_domain", 0, 0));
    // SAFETY: only the address is read.
    assert_eq!(call.argument("pd"), unsafe { world.pd.pd() }.addr().get() as u64);
    assert!(parent.is_parent_domain() && !world.pd.is_parent_domain());
    assert!(Arc::ptr_eq(parent.plain(), &world.pd) && Arc::ptr_eq(world.pd.plain(), &world.pd));
    let mut builder = parent.create_qp_builder();
    let qp = builder.setup_send_cq(&world.send_cq).setup_recv_cq(&world.recv_cq).build().unwrap();
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh_src_gid_index(0);
    let ah = parent.create_ah(&way).unwrap();
    let mut memory = [0_u8; 8];
    // SAFETY: the array outlives the region, and is not accessed until then.
    let mr = unsafe { parent.reg_mr(memory.as_mut_ptr().addr(), 8, AccessFlags::LocalWrite) }.unwrap();
    let recording = &world.recording;
    drop((builder, parent));
    let domains = recording.live().iter().filter(|&&kind| kind == Kind::ProtectionDomain).count();
    assert_eq!(domains, 2, "objects in the domain keep it alive");
    recording.calls();
    drop((mr, ah, qp));
    assert_eq!(recording.verbs(), ["dereg_mr", "destroy_ah", "destroy_qp", "dealloc_pd"]);
    world.end();
}

#[test]
fn parent_domain_is_dropped_before_its_parts() {
    let recording = Recording::new();
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    let parent = pd.create_parent_domain_builder().build().unwrap();
    recording.calls();
    drop((pd, context));
    assert_eq!(recording.verbs(), [""; 0]);
    Arc::into_inner(parent).unwrap().close().unwrap();
    assert_eq!(recording.verbs(), ["dealloc_pd", "dealloc_pd", "close_device"]);
    assert_eq!(recording.live(), []);
}

#[test]
fn failed_parent_domain_is_explained() {
    let world = World::new();
    let mut builder = world.pd.create_parent_domain_builder();
    let no = Failure::documented(libc::EOPNOTSUPP);
    world.recording.fail("alloc_parent_domain", 0, no);
    assert_eq!(
        builder.build().unwrap_err().to_string(),
        "ibv_alloc_parent_domain: EOPNOTSUPP (Operation not supported): the driver does not support parent domains"
    );
    let allocator = allocator(Answer::Memory);
    builder.setup_allocator(allocator.clone());
    world.recording.fail("alloc_parent_domain", 0, no);
    assert!(builder.build().unwrap_err().hint().unwrap().contains("or allocators"));
    drop(builder);
    assert_eq!(Arc::strong_count(&allocator), 1, "a domain that was not made holds nothing");
    let parent = world.pd.create_parent_domain_builder().build().unwrap();
    let error = parent.create_parent_domain_builder().build().unwrap_err();
    assert!(error.hint().unwrap().contains("build from a plain one"), "{error}");
    drop(parent);
    world.recording.without("alloc_parent_domain");
    let context = world.recording.open();
    let error = context.alloc_pd().unwrap().create_parent_domain_builder().build().unwrap_err();
    assert_eq!(error.errno().raw(), libc::EOPNOTSUPP);
    drop(context);
    world.end();
}

#[test]
fn queues_live_in_memory_of_the_allocator() {
    let world = World::new();
    let allocator = allocator(Answer::Memory);
    let parent = world.pd.create_parent_domain_builder().setup_allocator(allocator.clone()).build().unwrap();
    assert_eq!(world.recording.calls().remove(0).argument("comp_mask"), 3);
    let cq = world.context.create_cq_builder().setup_parent_domain(&parent).build_ex().unwrap();
    let calls = world.recording.calls();
    assert_eq!((calls[0].argument("comp_mask"), calls[0].argument("flags")), (2, 0));
    // SAFETY: only the address is read.
    assert_eq!(calls[0].argument("parent_domain"), unsafe { parent.pd() }.addr().get() as u64);
    assert_eq!(counts(&allocator), (1, 0));
    // The queue keeps the domain alive, which keeps the allocator alive.
    drop(parent);
    assert_eq!(Arc::strong_count(&allocator), 2);
    cq.close().unwrap();
    assert_eq!(counts(&allocator), (1, 1));
    assert_eq!(Arc::strong_count(&allocator), 1);
    world.end();
}

#[test]
fn allocator_may_decline_or_fail() {
    for (answer, works) in [(Answer::Default, true), (Answer::Failed, false), (Answer::Panic, false)] {
        let world = World::new();
        let allocator = allocator(answer);
        let parent = world.pd.create_parent_domain_builder().setup_allocator(allocator.clone()).build().unwrap();
        let result = world.context.create_cq_builder().setup_parent_domain(&parent).build_ex();
        assert_eq!(result.as_ref().err().map(|error| error.errno().raw()), (!works).then_some(libc::ENOMEM));
        drop((result, parent));
        assert_eq!(counts(&allocator), (1, 0), "{answer:?}");
        world.end();
    }
}

#[test]
fn allocator_outlives_an_object_that_could_not_be_destroyed() {
    let world = World::new();
    let allocator = allocator(Answer::Memory);
    let parent = world.pd.create_parent_domain_builder().setup_allocator(allocator.clone()).build().unwrap();
    let cq = world.context.create_cq_builder().setup_parent_domain(&parent).build_ex().unwrap();
    drop(parent);
    world.recording.fail("destroy_cq", 0, Failure::documented(libc::EIO));
    drop(cq);
    // The device may still write to the allocated memory.
    assert_eq!((counts(&allocator), Arc::strong_count(&allocator)), ((1, 0), 2));

    let parent = world.pd.create_parent_domain_builder().setup_allocator(allocator.clone()).build().unwrap();
    world.recording.fail("dealloc_pd", 0, Failure::documented(libc::EBUSY));
    assert_eq!(Arc::into_inner(parent).unwrap().close().unwrap_err().errno().raw(), libc::EBUSY);
    assert_eq!(Arc::strong_count(&allocator), 3);
}

#[test]
fn completion_queue_refuses_a_foreign_domain() {
    let world = World::new();
    let error = world.context.create_cq_builder().setup_parent_domain(&world.pd).build_ex().unwrap_err();
    assert!(error.hint().unwrap().contains("not a plain protection domain"), "{error}");
    let other = world.recording.open();
    let parent = other.alloc_pd().unwrap().create_parent_domain_builder().build().unwrap();
    let mut builder = world.context.create_cq_builder();
    builder.setup_parent_domain(&parent);
    let error = builder.build_ex().unwrap_err();
    assert!(error.hint().unwrap().contains("another device context"), "{error}");
    let error = builder.build().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_create_cq", libc::EINVAL));
    drop((builder, parent, other));
    world.end();
}

#[test]
fn thread_domain_is_created_and_destroyed() {
    let recording = Recording::new();
    let context = recording.open();
    let pd = context.alloc_pd().unwrap();
    recording.calls();
    let td = context.alloc_td().unwrap();
    let call = recording.calls().remove(0);
    assert_eq!((call.verb, call.argument("comp_mask")), ("alloc_td", 0));
    let domain = pd.create_parent_domain_builder().build_single_threaded(&td).unwrap();
    let call = recording.calls().remove(0);
    // SAFETY: only the address is read.
    assert_eq!(call.argument("td"), unsafe { td.td() }.addr().get() as u64);
    let error = td.close().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_dealloc_td", libc::EBUSY));
    assert_eq!(recording.verbs(), [""; 0], "the driver was called");
    drop(domain);
    assert_eq!(recording.verbs(), ["dealloc_pd", "dealloc_td"]);
    let td = context.alloc_td().unwrap();
    td.close().unwrap();
    let td = context.alloc_td().unwrap();
    recording.fail("dealloc_td", 0, Failure::documented(libc::EIO));
    assert_eq!(td.close().unwrap_err().errno().raw(), libc::EIO);
    recording.fail("alloc_td", 0, Failure::documented(libc::EOPNOTSUPP));
    assert!(context.alloc_td().unwrap_err().hint().unwrap().contains("does not support thread domains"));
}

#[test]
fn thread_domain_of_another_context_is_refused() {
    let world = World::new();
    let other = world.recording.open();
    let td = other.alloc_td().unwrap();
    let error = world.pd.create_parent_domain_builder().build_single_threaded(&td).unwrap_err();
    assert!(error.hint().unwrap().contains("another device context"), "{error}");
    drop((td, other));
    world.end();
}

fn to(state: QueuePairState) -> QueuePairAttribute {
    let mut attribute = QueuePairAttribute::new();
    attribute.setup_state(state);
    attribute
}

#[test]
fn single_threaded_queues_send_and_receive() {
    let world = World::new();
    let td = world.context.alloc_td().unwrap();
    let in_thread = world.pd.create_parent_domain_builder().build_single_threaded(&td).unwrap();
    for domain in [in_thread, SingleThreadedDomain::new(&world.pd)] {
        assert!(Arc::ptr_eq(domain.protection_domain(), &world.pd));
        assert!(Arc::ptr_eq(domain.device_context(), &world.context));
        world.recording.calls();
        let mut builder = domain.create_cq_builder();
        let mut cq = builder.setup_cqe(32).setup_wc_flags(Fields::FlowTag).setup_ignore_overrun(true).build().unwrap();
        let call = world.recording.calls().remove(0);
        assert_eq!((call.verb, call.argument("flags"), call.argument("cqe")), ("create_cq_ex", 3, 32));
        assert_eq!((call.argument("comp_mask"), call.argument("channel")), (1, 0), "no domain without an allocator");
        assert!(cq.wc_flags().contains(Fields::FlowTag));
        let mut builder = domain.create_qp_builder();
        builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(16).setup_max_send_wr(4);
        builder.setup_qp_type(QueuePairType::ReliableConnection).setup_sq_sig_all(true);
        let mut basic = builder.build().unwrap();
        let mut extended = builder.build_ex().unwrap();
        let generic = builder.build_generic().unwrap();
        assert_eq!(generic.qp_type(), QueuePairType::ReliableConnection);
        macro_rules! exercise {
            ($qp:ident) => {
                $qp.modify(&to(QueuePairState::Init)).unwrap();
                assert_eq!($qp.state(), QueuePairState::Init);
                assert_eq!($qp.query(QueuePairAttributeMask::State).unwrap().0.state(), QueuePairState::Init);
                let mut guard = $qp.start_post_recv();
                guard.construct_wr(1).setup_no_data();
                guard.post().unwrap();
                let mut guard = $qp.start_post_send();
                guard.construct_wr(2, WorkRequestFlags::empty()).setup_send().setup_inline_data(b"ping");
                guard.post().unwrap();
                let mut taken = Vec::new();
                let mut poller = cq.start_poll().unwrap();
                while let Some(wc) = poller.next().unwrap() {
                    assert_eq!((wc.qp_num(), wc.flow_tag()), ($qp.qp_number(), Ok(0)));
                    taken.push(wc.wr_id());
                }
                drop(poller);
                taken.sort();
                assert_eq!(taken, [1, 2]);
            };
        }
        exercise!(basic);
        exercise!(extended);
        cq.resize(64).unwrap();
        assert_eq!(cq.cqe(), 64);
        cq.modify(Default::default()).unwrap();
        let error = cq.close().unwrap_err();
        assert_eq!(error.errno().raw(), libc::EBUSY);
        world.recording.fail("destroy_qp", 0, Failure::documented(libc::ENOMEM));
        assert_eq!(generic.close().unwrap_err().errno().raw(), libc::ENOMEM);
        basic.close().unwrap();
        drop(extended);
    }
    drop(td);
    // Objects that were not destroyed are leaked, twice, with their parents.
    assert_eq!(world.recording.live().iter().filter(|&&kind| kind == Kind::QueuePair).count(), 2);
}

/// Drivers read the queue pair of the last completion at the next one, and no lock prevents its destruction.
#[test]
fn queue_pair_dropped_during_a_poll_is_destroyed_at_its_end() {
    let world = World::new();
    let domain = SingleThreadedDomain::new(&world.pd);
    let (mut send_cq, mut recv_cq) =
        (domain.create_cq_builder().build().unwrap(), domain.create_cq_builder().build().unwrap());
    let mut builder = domain.create_qp_builder();
    builder.setup_send_cq(&send_cq).setup_recv_cq(&recv_cq);
    let build = || {
        let mut qp = builder.build_ex().unwrap();
        qp.modify(&to(QueuePairState::Init)).unwrap();
        let mut guard = qp.start_post_recv();
        guard.construct_wr(1).setup_no_data();
        guard.post().unwrap();
        let mut guard = qp.start_post_send();
        guard.construct_wr(2, WorkRequestFlags::Signaled).setup_send().setup_inline_data(b"");
        guard.post().unwrap();
        world.recording.calls();
        qp
    };
    let qp = build();
    let mut sends = send_cq.start_poll().unwrap();
    let mut receives = recv_cq.start_poll().unwrap();
    assert!(sends.next().unwrap().is_some() && receives.next().unwrap().is_some());
    let error = qp.modify(&to(QueuePairState::Reset)).unwrap_err();
    assert!(error.to_string().contains("EBUSY") && error.to_string().contains("drop the poller first"), "{error}");
    drop(qp);
    assert!(sends.next().unwrap().is_none());
    drop(sends);
    assert!(receives.next().unwrap().is_none());
    drop(receives);
    let polls = ["start_poll", "start_poll", "next_poll", "end_poll", "next_poll", "end_poll", "destroy_qp"];
    assert_eq!(world.recording.verbs(), polls);
    // The destruction also waits after an error.
    let qp = build();
    let poller = recv_cq.start_poll().unwrap();
    let error = qp.close().unwrap_err();
    assert_eq!((error.verb(), error.errno().raw()), ("ibv_destroy_qp", libc::EBUSY));
    assert_eq!(world.recording.verbs(), ["start_poll"]);
    drop(poller);
    assert_eq!(world.recording.verbs(), ["end_poll", "destroy_qp"]);
    drop((send_cq, recv_cq, builder));
    drop(domain);
    world.end();
}

#[test]
fn single_threaded_queue_allocates_from_its_domain() {
    let world = World::new();
    let td = world.context.alloc_td().unwrap();
    let allocator = allocator(Answer::Memory);
    let mut builder = world.pd.create_parent_domain_builder();
    let domain = builder.setup_allocator(allocator.clone()).build_single_threaded(&td).unwrap();
    drop(builder);
    world.recording.calls();
    let cq = domain.create_cq_builder().build().unwrap();
    let call = world.recording.calls().remove(0);
    assert_eq!((call.argument("comp_mask"), call.argument("flags")), (3, 1));
    drop((domain, td));
    assert_eq!(counts(&allocator), (1, 0));
    cq.close().unwrap();
    assert_eq!(counts(&allocator), (1, 1));
    world.end();
}

#[test]
fn unsupported_single_threaded_object_is_an_error() {
    let world = World::new();
    let domain = SingleThreadedDomain::new(&world.pd);
    world.recording.fail_always("create_cq_ex", Failure::documented(libc::EOPNOTSUPP));
    let error = domain.create_cq_builder().build().unwrap_err();
    assert!(error.hint().unwrap().contains("or single-threaded queues"), "{error}");
    let error = domain.create_qp_builder().build().unwrap_err();
    assert!(error.hint().unwrap().contains("setup_send_cq"), "{error}");
    drop(domain);
    world.end();
}

/// Creates one object of each kind, and drops all.
fn one_of_each(world: &World, allocator: &Arc<Counting>) -> Result<(), Box<dyn Error>> {
    let mut builder = world.pd.create_parent_domain_builder();
    builder.setup_allocator(allocator.clone());
    let parent = builder.build()?;
    let mut shared = world.context.create_cq_builder().setup_parent_domain(&parent).build_ex()?;
    shared.resize(64)?;
    shared.modify(CompletionModeration::default())?;
    let td = world.context.alloc_td()?;
    let domain = builder.build_single_threaded(&td)?;
    let cq = domain.create_cq_builder().build()?;
    let qp = domain.create_qp_builder().setup_send_cq(&cq).setup_recv_cq(&cq).build_ex()?;
    qp.modify(&to(QueuePairState::Init))?;
    let mut way = AddressHandleAttribute::new();
    way.setup_port(1).setup_grh_src_gid_index(0);
    world.context.resolve_eth_l2_from_gid(&way)?;
    let ah = parent.create_ah(&way)?;
    let back = parent.create_ah_from_wc(1, &WorkCompletionSource::default(), None)?;
    drop((ah, back));
    Ok(())
}

#[test]
fn each_call_fails_once_without_leaks() {
    let world = World::new();
    let before = world.recording.failable();
    one_of_each(&world, &allocator(Answer::Memory)).unwrap();
    let calls = world.recording.failable() - before;
    assert!(calls > 20, "{calls}");
    world.end();
    for errno in [libc::ENOMEM, libc::EIO] {
        for index in 0..calls {
            let world = World::new();
            let allocator = allocator(Answer::Memory);
            world.recording.fail_any(index, Failure::documented(errno));
            let result = one_of_each(&world, &allocator);
            let log = world.recording.calls();
            let failed = log.iter().find(|call| call.failed.is_some()).unwrap().verb;
            if failed.starts_with("destroy") || failed.starts_with("dealloc") {
                // The object is leaked with its parents, and a message is logged.
                assert!(result.is_ok(), "{failed}: {result:?}");
                assert_ne!(world.recording.live(), [], "{failed}");
                continue;
            }
            let error = result.expect_err(failed).to_string();
            assert!(error.contains(failed), "{failed}: {error}");
            let (given, taken) = counts(&allocator);
            assert_eq!((given, Arc::strong_count(&allocator)), (taken, 1), "{failed}");
            world.end();
        }
    }
}
