//! The event of a completion that was held back: it is raised when the completion is due, long after that of the device.
//! A queue pair in the error state raises it: a receive that is posted to it is flushed to a completion queue of its own,
//! which has the channel of the program. So the descriptor of the channel becomes readable on any device.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{mem, thread};

use rdma_mummy_sys::load::front;
use rdma_mummy_sys::*;

use super::adopt::context_of;
use super::context::{Context, Notify, Poll, PostReceive};
use super::outcome::{errno, failure_text};

/// Objects of a device that raise events on a channel.
#[derive(Debug)]
pub(super) struct Waker {
    objects: Mutex<Objects>,
    cq: usize,
    /// Events that the program has got and not acknowledged.
    unacknowledged: AtomicU32,
}

#[derive(Debug)]
struct Objects {
    pd: *mut ibv_pd,
    cq: *mut ibv_cq,
    qp: *mut ibv_qp,
    functions: Functions,
    /// An event was raised that the program has not got.
    is_raised: bool,
}

// SAFETY: the objects of verbs may be used by any thread.
unsafe impl Send for Objects {}

/// The driver's functions.
#[derive(Clone, Copy, Debug)]
struct Functions {
    poll: Poll,
    notify: Notify,
    receive: PostReceive,
}

/// How long the device may take to flush a receive.
const FLUSHED: Duration = Duration::from_secs(1);

impl Functions {
    fn of(context: &Context) -> Option<Self> {
        let (poll, notify, receive) = (context.poll.get()?, context.notify.get()?, context.post_receive.get()?);
        Some(Self { poll, notify, receive })
    }
}

impl Waker {
    /// # Errors
    ///
    /// Why the device cannot raise events this way.
    ///
    /// # Safety
    ///
    /// The context and its channel are live.
    pub(super) unsafe fn new(context: *mut ibv_context, channel: *mut ibv_comp_channel) -> Result<Self, String> {
        let functions = context_of(context).and_then(Functions::of);
        let functions = functions.ok_or("its device was opened before the lens was installed")?;
        let mut objects =
            Objects { pd: ptr::null_mut(), cq: ptr::null_mut(), qp: ptr::null_mut(), functions, is_raised: false };
        // SAFETY: guaranteed by the caller.
        match front::pass(|| unsafe { objects.make(context, channel) }) {
            Ok(()) => Ok(Self {
                cq: objects.cq.expose_provenance(),
                objects: Mutex::new(objects),
                unacknowledged: AtomicU32::new(0),
            }),
            Err(reason) => {
                objects.destroy();
                Err(format!("the device cannot raise the event of a completion that is held back: {reason}"))
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Objects> {
        self.objects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether events of this completion queue are those of the waker.
    pub(super) fn is_queue(&self, cq: *const ibv_cq) -> bool {
        self.cq == cq.addr()
    }

    /// Raises an event, unless the last one was not taken.
    pub(super) fn raise(&self) {
        let mut objects = self.lock();
        if !objects.is_raised && !objects.qp.is_null() {
            objects.is_raised = objects.post().is_ok();
        }
    }

    /// The program has got an event.
    pub(super) fn taken(&self) {
        self.unacknowledged.fetch_add(1, Ordering::SeqCst);
        let mut objects = self.lock();
        objects.is_raised = false;
        objects.drain();
    }

    /// Acknowledges at most `count` events, and returns how many of them were not those of the waker.
    pub(super) fn acknowledge(&self, count: u32) -> u32 {
        let take = |left: u32| Some(left.saturating_sub(count));
        let before = self.unacknowledged.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).unwrap_or(0);
        let own = before.min(count);
        if own > 0 {
            // SAFETY: the queue lives until its events are acknowledged.
            front::pass(|| unsafe { ibv_ack_cq_events(ptr::with_exposed_provenance_mut(self.cq), own) });
        }
        count - own
    }

    /// Destroys the objects. Waits until all events are acknowledged. Returns whether the program has not got an event.
    pub(super) fn destroy(&self) -> bool {
        let mut objects = {
            let mut found = self.lock();
            let functions = found.functions;
            let none =
                Objects { pd: ptr::null_mut(), cq: ptr::null_mut(), qp: ptr::null_mut(), functions, is_raised: false };
            // A thread that has just got an event drains the queue.
            mem::replace(&mut *found, none)
        };
        objects.destroy();
        objects.is_raised
    }
}

impl Objects {
    /// # Safety
    ///
    /// The context and its channel are live.
    unsafe fn make(&mut self, context: *mut ibv_context, channel: *mut ibv_comp_channel) -> Result<(), String> {
        let made = |is_made: bool, verb: &str| {
            if is_made { Ok(()) } else { Err(format!("{verb}: {}", failure_text(errno()))) }
        };
        // SAFETY: guaranteed by the caller; the attributes are plain numbers and pointers to live objects.
        unsafe {
            self.pd = ibv_alloc_pd(context);
            made(!self.pd.is_null(), "ibv_alloc_pd")?;
            self.cq = ibv_create_cq(context, 4, ptr::null_mut(), channel, 0);
            made(!self.cq.is_null(), "ibv_create_cq")?;
            let mut attr: ibv_qp_init_attr = mem::zeroed();
            (attr.send_cq, attr.recv_cq, attr.qp_type) = (self.cq, self.cq, ibv_qp_type::IBV_QPT_RC);
            (attr.cap.max_send_wr, attr.cap.max_recv_wr) = (1, 4);
            (attr.cap.max_send_sge, attr.cap.max_recv_sge) = (1, 1);
            self.qp = ibv_create_qp(self.pd, &raw mut attr);
            made(!self.qp.is_null(), "ibv_create_qp")?;
            self.fail()?;
            // The device must flush a receive that is posted now.
            self.post().map_err(|code| format!("ibv_post_recv in the error state: {}", failure_text(code)))?;
            let start = Instant::now();
            while self.poll() == 0 {
                if start.elapsed() >= FLUSHED {
                    return Err("it does not flush receives that are posted in the error state".to_owned());
                }
                thread::yield_now();
            }
            self.drain();
        }
        Ok(())
    }

    /// Moves the queue pair to the error state, by way of INIT.
    unsafe fn fail(&self) -> Result<(), String> {
        type Mask = ibv_qp_attr_mask;
        // SAFETY: the queue pair is live, and the attributes are plain numbers.
        unsafe {
            let mut attr: ibv_qp_attr = mem::zeroed();
            (attr.qp_state, attr.port_num) = (ibv_qp_state::IBV_QPS_INIT, 1);
            let init =
                Mask::IBV_QP_STATE.0 | Mask::IBV_QP_PKEY_INDEX.0 | Mask::IBV_QP_PORT.0 | Mask::IBV_QP_ACCESS_FLAGS.0;
            // An iWARP device has no RESET, so that a new queue pair may be in INIT.
            _ = ibv_modify_qp(self.qp, &raw mut attr, init.cast_signed());
            attr.qp_state = ibv_qp_state::IBV_QPS_ERR;
            match ibv_modify_qp(self.qp, &raw mut attr, Mask::IBV_QP_STATE.0.cast_signed()) {
                0 => Ok(()),
                code => Err(format!("ibv_modify_qp(ERR): {}", failure_text(code))),
            }
        }
    }

    fn post(&self) -> Result<(), i32> {
        // SAFETY: the queue pair is live, and the request has no memory.
        unsafe {
            let mut request: ibv_recv_wr = mem::zeroed();
            let mut bad = ptr::null_mut();
            match (self.functions.receive)(self.qp, &raw mut request, &raw mut bad) {
                0 => Ok(()),
                code => Err(code),
            }
        }
    }

    fn poll(&self) -> i32 {
        // SAFETY: the queue is live, and the completion is writable; its fields are numbers.
        unsafe {
            let mut wc: ibv_wc = mem::zeroed();
            (self.functions.poll)(self.cq, 1, &raw mut wc)
        }
    }

    /// Empties the queue, which then raises an event for the next completion.
    fn drain(&self) {
        if self.cq.is_null() {
            return;
        }
        // SAFETY: the queue is live.
        unsafe {
            while self.poll() > 0 {}
            (self.functions.notify)(self.cq, 0);
        }
    }

    fn destroy(&mut self) {
        // SAFETY: the objects are live, and no other thread uses them.
        front::pass(|| unsafe {
            if !self.qp.is_null() {
                ibv_destroy_qp(self.qp);
            }
            if !self.cq.is_null() {
                ibv_destroy_cq(self.cq);
            }
            if !self.pd.is_null() {
                ibv_dealloc_pd(self.pd);
            }
        });
    }
}
