use std::mem::zeroed;
use std::ptr;

use rdma_mummy_sys::{ibv_event_type, ibv_recv_wr, ibv_sge};

use super::*;
use crate::verbs::async_event::{AsyncEvent, Element};
use crate::verbs::protection_domain::{alloc_pd, dealloc_pd};
use crate::verbs::{context::close_device, open::open_device};
use crate::wire::limits::{MAX_SGE, MAX_SRQ_WR};

/// An open device with a protection domain.
struct World {
    context: *mut ibv_context,
    pd: *mut ibv_pd,
}

impl World {
    fn new() -> Self {
        // SAFETY: `open_device` does not dereference the device.
        unsafe {
            let context = open_device(ptr::null_mut());
            Self { context, pd: alloc_pd(context) }
        }
    }

    fn event(&self) -> Option<AsyncEvent> {
        let mut last = None;
        // SAFETY: the context is open until `self` is dropped.
        let context = unsafe { Context::of(self.context) };
        context.events.remove(|event| {
            last = Some(event.clone());
            true
        });
        last
    }

    fn create(&self, max_wr: u32, max_sge: u32) -> *mut ibv_srq {
        let mut init = ibv_srq_init_attr { srq_context: self.pd.cast(), attr: attr(max_wr, max_sge, 77) };
        // SAFETY: the domain and the attributes are alive.
        unsafe { create_srq(self.pd, &raw mut init) }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // SAFETY: the domain and the context are no longer used.
        assert_eq!(unsafe { (dealloc_pd(self.pd), close_device(self.context)) }, (0, 0), "an object is left");
    }
}

fn attr(max_wr: u32, max_sge: u32, srq_limit: u32) -> ibv_srq_attr {
    ibv_srq_attr { max_wr, max_sge, srq_limit }
}

fn query(srq: *mut ibv_srq) -> (u32, u32, u32) {
    let mut found = attr(0, 0, 0);
    // SAFETY: the queue and the attributes are alive.
    assert_eq!(unsafe { query_srq(srq, &raw mut found) }, 0);
    (found.max_wr, found.max_sge, found.srq_limit)
}

fn modify(srq: *mut ibv_srq, mask: c_int, max_wr: u32, limit: u32) -> c_int {
    // SAFETY: the queue and the attributes are alive.
    unsafe { modify_srq(srq, &mut attr(max_wr, 0, limit), mask) }
}

fn queue<'q>(srq: *mut ibv_srq) -> &'q ReceiveQueue {
    // SAFETY: the tests destroy the queue last.
    &unsafe { SharedReceiveQueue::of(srq) }.queue
}

fn destroy(srq: *mut ibv_srq) -> c_int {
    // SAFETY: the tests do not use the queue after this succeeds.
    unsafe { destroy_srq(srq) }
}

#[test]
fn srq_has_the_requested_attributes() {
    let world = World::new();
    let srq = world.create(10, 0);
    assert_eq!(query(srq), (10, 1, 0));
    // SAFETY: the queue is alive.
    let c = unsafe { &*srq };
    assert_eq!((c.context, c.pd, c.srq_context), (world.context, world.pd, world.pd.cast()));
    // SAFETY: the domain is alive.
    assert_eq!(unsafe { dealloc_pd(world.pd) }, libc::EBUSY);
    let mut number = 0;
    // SAFETY: the queue is alive, and the number is writable.
    assert_eq!(unsafe { get_srq_num(srq, &raw mut number) }, libc::EOPNOTSUPP);
    assert_eq!(destroy(srq), 0);
}

#[test]
fn sizes_beyond_the_limits_are_refused() {
    let world = World::new();
    for (max_wr, max_sge) in [(0, 1), (MAX_SRQ_WR + 1, 1), (1, MAX_SGE + 1), (u32::MAX, u32::MAX)] {
        assert!(world.create(max_wr, max_sge).is_null(), "{max_wr} {max_sge}");
    }
    let srq = world.create(MAX_SRQ_WR, MAX_SGE);
    assert_eq!(query(srq), (MAX_SRQ_WR, MAX_SGE, 0));
    assert_eq!(destroy(srq), 0);
}

#[test]
fn size_and_limit_change_atomically() {
    let world = World::new();
    let srq = world.create(10, 2);
    assert_eq!(modify(srq, 1, 20, 99), 0);
    assert_eq!(query(srq), (20, 2, 0));
    assert_eq!(modify(srq, 2, 99, 5), 0);
    assert_eq!(query(srq), (20, 2, 5));
    assert_eq!(modify(srq, 3, 4, 8), libc::EINVAL);
    assert_eq!(modify(srq, 4, 4, 4), libc::EINVAL);
    assert_eq!(query(srq), (20, 2, 5));
    assert_eq!(modify(srq, 3, 8, 8), 0);
    assert_eq!(query(srq), (8, 2, 8));
    assert_eq!(destroy(srq), 0);
}

#[test]
fn extended_verb_requires_the_objects_of_its_type() {
    let world = World::new();
    // SAFETY: the type has only numbers and nullable pointers, for which zero is valid.
    let mut init: ibv_srq_init_attr_ex = unsafe { zeroed() };
    init.attr = attr(4, 4, 0);
    init.pd = world.pd;
    // SAFETY: the context is open, and the objects of the mask are alive.
    let mut made = |mask: u32, kind: ibv_srq_type| unsafe {
        (init.comp_mask, init.srq_type) = (mask, kind);
        let srq = create_srq_ex(world.context, &raw mut init);
        if srq.is_null() {
            return *libc::__errno_location();
        }
        destroy(srq)
    };
    assert_eq!(made(2, ibv_srq_type::IBV_SRQT_XRC), 0, "the type is not in the mask");
    assert_eq!(made(3, ibv_srq_type::IBV_SRQT_BASIC), 0);
    assert_eq!(made(1, ibv_srq_type::IBV_SRQT_BASIC), libc::EINVAL, "no domain");
    assert_eq!(made(3, ibv_srq_type::IBV_SRQT_XRC), libc::EINVAL, "no XRC domain and no completion queue");
    assert_eq!(made(0x20 | 3, ibv_srq_type::IBV_SRQT_BASIC), libc::EINVAL);
    assert_eq!(made(3, ibv_srq_type::IBV_SRQT_TM), libc::EOPNOTSUPP);
    assert_eq!(made(3, ibv_srq_type(9)), libc::EOPNOTSUPP);
}

#[test]
fn srq_in_use_is_not_destroyed() {
    let world = World::new();
    let srq = world.create(1, 1);
    // SAFETY: the queue is alive.
    let used = unsafe { SharedReceiveQueue::of(srq) }.usage.begin();
    assert_eq!(destroy(srq), libc::EBUSY);
    drop(used);
    assert_eq!(destroy(srq), 0);
}

#[test]
fn limit_raises_an_event() {
    let world = World::new();
    let srq = world.create(4, 1);
    let mut wr = ibv_recv_wr { wr_id: 1, next: ptr::null_mut(), sg_list: ptr::null_mut(), num_sge: 0 };
    // SAFETY: the queue and the request, which has no pieces, are alive.
    let mut post = || unsafe { post_srq_recv(srq, &raw mut wr, &mut ptr::null_mut()) };
    assert_eq!((post(), post()), (0, 0));
    assert_eq!(modify(srq, 2, 0, 2), 0);
    assert!(world.event().is_none());
    assert!(queue(srq).take().is_some());
    let event = world.event().unwrap();
    assert_eq!((event.kind, event.element), (ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED, Element::Shared(srq)));
    assert_eq!(query(srq), (4, 1, 0));
    assert_eq!(modify(srq, 2, 0, 1), 0);
    assert!(queue(srq).take().is_some());
    assert_eq!(destroy(srq), 0);
    assert!(world.event().is_none(), "an event of a destroyed queue");
}

#[test]
fn receives_before_a_refused_one_are_posted() {
    let world = World::new();
    let srq = world.create(3, 2);
    let mut pieces = [
        ibv_sge { addr: 1, length: 2, lkey: 3 },
        ibv_sge { addr: 4, length: 5, lkey: 6 },
        ibv_sge { addr: 7, length: 8, lkey: 9 },
    ];
    let pieces = pieces.as_mut_ptr();
    let chain = |counts: &[c_int]| {
        let request = |(wr_id, &num_sge): (u64, &c_int)| ibv_recv_wr {
            wr_id,
            next: ptr::null_mut(),
            sg_list: if num_sge == 0 { ptr::null_mut() } else { pieces },
            num_sge,
        };
        let mut requests: Vec<_> = (0..).zip(counts).map(request).collect();
        let start = requests.as_mut_ptr();
        // SAFETY: both indices are within the vector.
        (1..counts.len()).for_each(|at| unsafe { (*start.add(at - 1)).next = start.add(at) });
        let mut bad = ptr::null_mut();
        // SAFETY: the queue is alive, and so is the list with its pieces.
        let code = unsafe { post_srq_recv(srq, start, &raw mut bad) };
        // SAFETY: if a request was refused, both pointers are elements of the list.
        (code, (code != 0).then(|| unsafe { bad.offset_from(start) }))
    };
    assert_eq!(chain(&[2, 3, 1]), (libc::EINVAL, Some(1)));
    assert_eq!(chain(&[-1]), (libc::EINVAL, Some(0)));
    assert_eq!(chain(&[0, 1]), (0, None));
    assert_eq!(chain(&[1, 1]), (libc::ENOMEM, Some(0)));
    let mut taken = Vec::new();
    queue(srq).drain(|work| taken.push((work.wr_id, work.pieces.iter().map(|piece| piece.lkey).collect::<Vec<_>>())));
    assert_eq!(taken, [(0, vec![3, 6]), (0, vec![]), (1, vec![3])]);
    assert_eq!(destroy(srq), 0);
}
