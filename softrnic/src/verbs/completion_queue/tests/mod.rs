mod events;

use std::mem::{MaybeUninit, zeroed};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::thread;

use rdma_mummy_sys::{
    ibv_async_event, ibv_cq_init_attr_ex, ibv_cq_init_attr_mask as Mask, ibv_create_cq_attr_flags as Flag,
    ibv_event_type, ibv_poll_cq_attr, ibv_wc, ibv_wc_flags, ibv_wc_opcode, ibv_wc_status,
};

use super::*;
use crate::cq::{Completion, Slots};
use crate::verbs::async_event_verbs::{ack_async_event, get_async_event};
use crate::verbs::completion_channel::{create_comp_channel, destroy_comp_channel};
use crate::verbs::completion_event::{ack_cq_events, get_cq_event};
use crate::verbs::protection_domain::{alloc_pd, dealloc_pd};
use crate::verbs::{context::close_device, open::open_device};

const STANDARD: u64 = 127;
/// An open device with a completion channel. Both are in nonblocking mode.
struct World {
    context: *mut ibv_context,
    channel: *mut ibv_comp_channel,
}

impl World {
    fn new() -> Self {
        // SAFETY: `open_device` does not dereference the device; the other objects were just created.
        unsafe {
            let context = open_device(ptr::null_mut());
            let channel = create_comp_channel(context);
            for fd in [(*context).async_fd, (*channel).fd] {
                if !cfg!(miri) {
                    libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
                }
            }
            Self { context, channel }
        }
    }

    fn basic(&self, cqe: c_int) -> *mut ibv_cq {
        // SAFETY: the context and the channel are alive.
        let cq = unsafe { create_cq(self.context, cqe, ptr::without_provenance_mut(0x77), self.channel, 0) };
        assert!(!cq.is_null());
        cq
    }

    fn attr(&self, wc_flags: u64) -> ibv_cq_init_attr_ex {
        ibv_cq_init_attr_ex {
            cqe: 8,
            cq_context: ptr::null_mut(),
            channel: ptr::null_mut(),
            comp_vector: 0,
            wc_flags,
            comp_mask: 0,
            flags: 0,
            parent_domain: ptr::null_mut(),
        }
    }

    fn extended(&self, mut attr: ibv_cq_init_attr_ex) -> Result<*mut ibv_cq_ex, c_int> {
        // SAFETY: the context and the objects of the attributes are alive.
        let cq = unsafe { create_cq_ex(self.context, &raw mut attr) };
        if cq.is_null() { Err(errno()) } else { Ok(cq) }
    }

    /// Takes the next completion event, and returns its queue and the context of the queue.
    fn event(&self) -> Option<(*mut ibv_cq, usize)> {
        let (mut cq, mut cq_context) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive, and both are writable.
        let taken = unsafe { get_cq_event(self.channel, &raw mut cq, &raw mut cq_context) };
        if taken != 0 {
            assert_eq!((taken, errno()), (-1, libc::EAGAIN));
            return None;
        }
        Some((cq, cq_context.addr()))
    }

    fn async_event(&self) -> Option<ibv_async_event> {
        let mut event = MaybeUninit::uninit();
        // SAFETY: the context is alive, and the event is writable.
        unsafe {
            if get_async_event(self.context, event.as_mut_ptr()) != 0 {
                assert_eq!(errno(), libc::EAGAIN);
                return None;
            }
            Some(event.assume_init())
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if thread::panicking() {
            return;
        }
        // SAFETY: the channel and the context are no longer used.
        let left = unsafe { (destroy_comp_channel(self.channel), close_device(self.context)) };
        assert_eq!(left, (0, 0), "an object is left");
    }
}

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().expect("an error number of the system")
}

fn queue<'q>(cq: *mut ibv_cq) -> &'q CompletionQueue {
    // SAFETY: the tests destroy the queue last.
    &unsafe { Queue::of(cq) }.queue
}

fn completion(wr_id: u64) -> Completion {
    Completion {
        wr_id,
        status: ibv_wc_status::IBV_WC_SUCCESS,
        opcode: ibv_wc_opcode::IBV_WC_RECV,
        byte_len: 64,
        flags: ibv_wc_flags::IBV_WC_WITH_IMM.0 | ibv_wc_flags::IBV_WC_GRH.0,
        immediate: 0x0102_0304,
        number: 7,
        source_number: 9,
        service_level: 3,
        timestamp: 0,
        wall_clock: 0,
        slots: None,
    }
}

fn push(cq: *mut ibv_cq, wr_ids: impl IntoIterator<Item = u64>) {
    for wr_id in wr_ids {
        queue(cq).push(completion(wr_id), false);
    }
}

/// Returns the completions that one call of `ibv_poll_cq` polls.
fn poll(cq: *mut ibv_cq, most: c_int) -> Vec<ibv_wc> {
    // SAFETY: the type has only numbers, for which zero is valid.
    let mut wc: [ibv_wc; 16] = unsafe { zeroed() };
    // SAFETY: the queue is alive, and `most` is within the array.
    let taken = unsafe { poll_cq(cq, most, wc.as_mut_ptr()) };
    wc[..taken as usize].to_vec()
}

fn destroy(cq: *mut ibv_cq) {
    // SAFETY: the CQ is no longer used.
    assert_eq!(unsafe { destroy_cq(cq) }, 0);
}

#[test]
fn sizes_beyond_the_limits_are_refused() {
    let world = World::new();
    let most = limits::MAX_CQE as c_int;
    // SAFETY: the context is alive.
    let create = |cqe, vector| unsafe { create_cq(world.context, cqe, ptr::null_mut(), ptr::null_mut(), vector) };
    for (cqe, vector) in [(0, 0), (-1, 0), (most + 1, 0), (1, -1), (1, limits::COMP_VECTORS as c_int)] {
        assert!(create(cqe, vector).is_null(), "{cqe} entries, vector {vector}");
        assert_eq!(errno(), libc::EINVAL);
    }
    for (cqe, vector) in [(1, 0), (most, limits::COMP_VECTORS as c_int - 1)] {
        let cq = create(cqe, vector);
        // SAFETY: the CQ is alive.
        unsafe {
            assert_eq!(((*cq).cqe, (*cq).context, (*cq).channel), (cqe, world.context, ptr::null_mut()));
        }
        assert_eq!(queue(cq).capacity(), cqe as u32);
        destroy(cq);
    }
}

#[test]
fn completions_are_copied_completely() {
    let world = World::new();
    let cq = world.basic(8);
    assert!(poll(cq, 8).is_empty());
    push(cq, 0..5);
    let failed = Completion { status: ibv_wc_status::IBV_WC_WR_FLUSH_ERR, ..completion(5) };
    queue(cq).push(failed, false);
    assert!(poll(cq, 0).is_empty() && poll(cq, -1).is_empty());
    let wr_ids = |found: &[ibv_wc]| found.iter().map(|wc| wc.wr_id).collect::<Vec<_>>();
    let found = poll(cq, 4);
    assert_eq!(wr_ids(&found), [0, 1, 2, 3]);
    let wc = found[0];
    assert_eq!((wc.status, wc.opcode), (ibv_wc_status::IBV_WC_SUCCESS, ibv_wc_opcode::IBV_WC_RECV));
    assert_eq!((wc.byte_len, wc.wc_flags, wc.qp_num, wc.src_qp, wc.sl), (64, 3, 7, 9, 3));
    assert_eq!((wc.vendor_err, wc.pkey_index, wc.slid, wc.dlid_path_bits), (0, 0, 0, 0));
    // SAFETY: both members of the union are numbers of the same size.
    let either = unsafe { (wc.__bindgen_anon_1.imm_data, wc.__bindgen_anon_1.invalidated_rkey) };
    assert_eq!(either, (0x0102_0304, 0x0102_0304));
    let rest = poll(cq, 16);
    assert_eq!((wr_ids(&rest), rest[1].status), (vec![4, 5], ibv_wc_status::IBV_WC_WR_FLUSH_ERR));
    destroy(cq);
}

#[test]
fn requested_fields_can_be_read() {
    let world = World::new();
    let clocks = Field::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP.0 | Field::IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK.0;
    let cq = world.extended(world.attr(STANDARD | u64::from(clocks))).expect("known fields");
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: the queue is alive and has these functions; one thread uses it.
    unsafe {
        let (start, next, end) = ((*cq).start_poll.unwrap(), (*cq).next_poll.unwrap(), (*cq).end_poll.unwrap());
        assert_eq!(start(cq, &raw mut attr), libc::ENOENT);
        push(cq.cast(), [10, 11]);
        assert_eq!(start(cq, &mut ibv_poll_cq_attr { comp_mask: 1 }), libc::EINVAL);
        assert_eq!(start(cq, &raw mut attr), 0);
        assert_eq!(((*cq).wr_id, (*cq).status), (10, ibv_wc_status::IBV_WC_SUCCESS));
        assert_eq!((*cq).read_opcode.unwrap()(cq), ibv_wc_opcode::IBV_WC_RECV);
        assert_eq!((*cq).read_vendor_err.unwrap()(cq), 0);
        assert_eq!((*cq).read_wc_flags.unwrap()(cq), 3);
        assert_eq!((*cq).read_byte_len.unwrap()(cq), 64);
        assert_eq!((*cq).read_imm_data.unwrap()(cq), 0x0102_0304);
        assert_eq!(((*cq).read_qp_num.unwrap()(cq), (*cq).read_src_qp.unwrap()(cq)), (7, 9));
        assert_eq!(((*cq).read_slid.unwrap()(cq), (*cq).read_dlid_path_bits.unwrap()(cq)), (0, 0));
        assert_eq!((*cq).read_sl.unwrap()(cq), 3);
        let first = (*cq).read_completion_ts.unwrap()(cq);
        let wall = (*cq).read_completion_wallclock_ns.unwrap()(cq);
        // The clock of Miri may be zero.
        assert!(cfg!(miri) || first > 0 && wall > 1_600_000_000_000_000_000, "{first}, {wall}");
        assert!((*cq).read_cvlan.is_none() && (*cq).read_flow_tag.is_none() && (*cq).read_tm_info.is_none());
        assert_eq!(next(cq), 0);
        assert_eq!((*cq).wr_id, 11);
        assert!((*cq).read_completion_ts.unwrap()(cq) >= first);
        assert_eq!(next(cq), libc::ENOENT);
        assert_eq!((*cq).read_byte_len.unwrap()(cq), 0, "no completion is current");
        end(cq);
        assert_eq!(start(cq, ptr::null_mut()), libc::ENOENT);
    }
    destroy(cq.cast());
}

#[test]
fn other_readers_are_null_and_other_flags_are_refused() {
    let world = World::new();
    let cq = world.extended(world.attr(Field::IBV_WC_EX_WITH_QP_NUM.0.into())).expect("a known field");
    // SAFETY: the queue is alive.
    unsafe {
        assert!((*cq).read_qp_num.is_some() && (*cq).read_opcode.is_some() && (*cq).start_poll.is_some());
        assert!((*cq).read_byte_len.is_none() && (*cq).read_imm_data.is_none() && (*cq).read_src_qp.is_none());
        assert!((*cq).read_completion_ts.is_none() && (*cq).read_completion_wallclock_ns.is_none());
    }
    destroy(cq.cast());
    for field in [Field::IBV_WC_EX_WITH_CVLAN, Field::IBV_WC_EX_WITH_FLOW_TAG, Field::IBV_WC_EX_WITH_TM_INFO] {
        assert_eq!(world.extended(world.attr(STANDARD | u64::from(field.0))), Err(libc::EOPNOTSUPP));
    }
    let refused = [
        ibv_cq_init_attr_ex { comp_mask: 4, ..world.attr(0) },
        ibv_cq_init_attr_ex { comp_mask: Mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0, flags: 4, ..world.attr(0) },
        ibv_cq_init_attr_ex { comp_mask: Mask::IBV_CQ_INIT_ATTR_MASK_PD.0, ..world.attr(0) },
        ibv_cq_init_attr_ex { cqe: 0, ..world.attr(0) },
        ibv_cq_init_attr_ex { cqe: u32::MAX, ..world.attr(0) },
        ibv_cq_init_attr_ex { comp_vector: limits::COMP_VECTORS, ..world.attr(0) },
    ];
    for attr in refused {
        assert_eq!(world.extended(attr), Err(libc::EINVAL));
    }
    // The other fields are ignored, because their mask bits are not set.
    let attr = ibv_cq_init_attr_ex { flags: !0, parent_domain: ptr::dangling_mut(), ..world.attr(0) };
    destroy(world.extended(attr).expect("fields outside of the mask are ignored").cast());
}

#[test]
fn flags_and_parent_domain_take_effect() {
    let world = World::new();
    // SAFETY: the context is open.
    let pd = unsafe { alloc_pd(world.context) };
    let attr = ibv_cq_init_attr_ex {
        cqe: 1,
        comp_mask: Mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0 | Mask::IBV_CQ_INIT_ATTR_MASK_PD.0,
        flags: Flag::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0 | Flag::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0,
        parent_domain: pd,
        ..world.attr(0)
    };
    let cq = world.extended(attr).expect("known flags");
    push(cq.cast(), [1, 2]);
    assert!(world.async_event().is_none(), "overruns are ignored");
    // SAFETY: the objects are alive, and only this thread uses them.
    unsafe {
        assert_eq!(dealloc_pd(pd), libc::EBUSY);
        let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
        // No lock is held, so an unfinished poll does not block the next one.
        assert_eq!((*cq).start_poll.unwrap()(cq, &raw mut attr), 0);
        assert_eq!((*cq).wr_id, 2);
        push(cq.cast(), [3]);
        assert_eq!((*cq).start_poll.unwrap()(cq, &raw mut attr), 0);
        assert_eq!((*cq).wr_id, 3);
        (*cq).end_poll.unwrap()(cq);
        destroy(cq.cast());
        assert_eq!(dealloc_pd(pd), 0);
    }
}

#[test]
fn start_poll_within_a_poll_fails() {
    let world = World::new();
    let cq = world.extended(world.attr(0)).expect("known flags");
    push(cq.cast(), [1, 2]);
    // SAFETY: the queue is alive, and one thread uses it.
    unsafe {
        let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
        let (start, end) = ((*cq).start_poll.unwrap(), (*cq).end_poll.unwrap());
        assert_eq!(start(cq, &raw mut attr), 0);
        assert_eq!(start(cq, &raw mut attr), libc::EBUSY);
        end(cq);
        assert_eq!(start(cq, &raw mut attr), 0);
        assert_eq!((*cq).wr_id, 2);
        end(cq);
        destroy(cq.cast());
    }
}

/// A pointer shared by threads.
struct Shared<T>(*mut T);
// SAFETY: the functions that receive the pointer may be called from several threads.
unsafe impl<T> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shared<T> {}

#[test]
fn threads_use_the_cursor_in_turns() {
    const COUNT: u64 = if cfg!(miri) { 60 } else { 4_000 };
    let world = World::new();
    let attr = ibv_cq_init_attr_ex { cqe: COUNT as u32, ..world.attr(Field::IBV_WC_EX_WITH_IMM.0.into()) };
    let shared = Shared(world.extended(attr).expect("a known field"));
    let is_over = AtomicBool::new(false);
    let mut seen: Vec<u64> = thread::scope(|scope| {
        let (shared, is_over) = (&shared, &is_over);
        let pollers = [0; 3].map(|_| {
            scope.spawn(move || {
                let (cq, mut mine) = (shared.0, Vec::new());
                loop {
                    let was_over = is_over.load(Ordering::Acquire);
                    // SAFETY: the queue is alive, and polled as C requires.
                    unsafe {
                        if (*cq).start_poll.unwrap()(cq, &mut ibv_poll_cq_attr { comp_mask: 0 }) != 0 {
                            if was_over {
                                return mine;
                            }
                            thread::yield_now();
                            continue;
                        }
                        loop {
                            let wr_id = (*cq).wr_id;
                            thread::yield_now();
                            assert_eq!(
                                u64::from((*cq).read_imm_data.unwrap()(cq)),
                                wr_id,
                                "no other thread has moved the cursor"
                            );
                            mine.push(wr_id);
                            if mine.len() % 5 == 0 || (*cq).next_poll.unwrap()(cq) != 0 {
                                break;
                            }
                        }
                        (*cq).end_poll.unwrap()(cq);
                    }
                }
            })
        });
        for wr_id in 0..COUNT {
            queue(shared.0.cast()).push(Completion { immediate: wr_id as u32, ..completion(wr_id) }, false);
        }
        is_over.store(true, Ordering::Release);
        pollers.into_iter().flat_map(|poller| poller.join().expect("a poller")).collect()
    });
    seen.sort_unstable();
    assert_eq!(seen, (0..COUNT).collect::<Vec<_>>());
    destroy(shared.0.cast());
}

#[test]
fn polling_an_overrun_queue_fails_once_it_is_empty() {
    let world = World::new();
    let basic = world.basic(1);
    let extended = world.extended(ibv_cq_init_attr_ex { cqe: 1, ..world.attr(0) }).expect("a queue");
    push(basic, [1, 2]);
    push(extended.cast(), [1, 2]);
    // SAFETY: the queue is alive, and nothing is written.
    assert_eq!(unsafe { poll_cq(basic, 0, ptr::null_mut()) }, 0, "one completion is left");
    assert_eq!(poll(basic, 4).len(), 1);
    // SAFETY: the objects are alive; only numbers are written.
    unsafe {
        let mut wc: ibv_wc = zeroed();
        let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
        assert_eq!([poll_cq(basic, 1, &raw mut wc), poll_cq(basic, 0, &raw mut wc)], [-1; 2]);
        let (start, next) = ((*extended).start_poll.unwrap(), (*extended).next_poll.unwrap());
        assert_eq!((start(extended, &raw mut attr), next(extended)), (0, libc::ENOENT));
        (*extended).end_poll.unwrap()(extended);
        assert_eq!([start(extended, &raw mut attr), start(extended, &raw mut attr)], [libc::EIO; 2]);
    }
    [basic, extended.cast()].into_iter().for_each(destroy);
}

#[test]
fn queue_in_use_is_not_destroyed() {
    let world = World::new();
    let cq = world.basic(2);
    // SAFETY: the queue is alive.
    let of_a_queue_pair = unsafe { Queue::of(cq) }.usage.begin();
    // SAFETY: as above; the context is alive.
    unsafe { assert_eq!((destroy_cq(cq), close_device(world.context)), (libc::EBUSY, -1)) };
    let used = Arc::new(AtomicU32::new(1));
    queue(cq).push(Completion { slots: Some(Slots { used: Arc::clone(&used), back: 1 }), ..completion(1) }, false);
    assert_eq!((poll(cq, 1).len(), used.load(Ordering::Relaxed)), (1, 0));
    drop(of_a_queue_pair);
    destroy(cq);
}

#[test]
fn queue_is_resized_and_accepts_moderation() {
    let world = World::new();
    let cq = world.basic(2);
    push(cq, [0, 1]);
    let moderate = rdma_mummy_sys::ibv_moderate_cq { cq_count: u16::MAX, cq_period: u16::MAX };
    // SAFETY: the queue and the arguments are alive.
    unsafe {
        for refused in [-1, 0, 1, c_int::MAX] {
            assert_eq!((resize_cq(cq, refused), (*cq).cqe), (libc::EINVAL, 2), "{refused}");
        }
        assert_eq!((resize_cq(cq, 3), (*cq).cqe), (0, 3));
        push(cq, [2]);
        assert_eq!(poll(cq, 8).len(), 3);
        assert_eq!(modify_cq(cq, &mut ibv_modify_cq_attr { attr_mask: 1, moderate }), 0);
        assert_eq!(modify_cq(cq, &mut ibv_modify_cq_attr { attr_mask: 3, moderate }), libc::EINVAL);
        // No event is delayed.
        assert_eq!(req_notify_cq(cq, 0), 0);
        push(cq, [3]);
        assert_eq!(world.event(), Some((cq, 0x77)));
        ack_cq_events(cq, 1);
    }
    assert!(world.async_event().is_none());
    destroy(cq);
}
