//! Tests of signals that arrive while a thread waits for an event. As with `read(2)`, the flags of the handler
//! determine whether the wait continues.

use std::mem::zeroed;
use std::os::unix::thread::JoinHandleExt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::{Setup, Side, open};
use rdma_mummy_sys::*;

/// How often the signal handler was called.
static HANDLED: AtomicUsize = AtomicUsize::new(0);

extern "C" fn handle(_signal: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn set_handler(flags: libc::c_int) {
    // SAFETY: zeros are valid for the action; the handler only increments a number.
    unsafe {
        let mut action: libc::sigaction = zeroed();
        action.sa_sigaction = handle as extern "C" fn(libc::c_int) as libc::sighandler_t;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
    }
}

/// A C object that another thread uses.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: the verbs may be called from any thread.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    fn get(self) -> *mut T {
        self.0
    }
}

/// Starts a thread that calls `wait`. The result is zero or an errno value.
fn waiter(wait: impl FnOnce() -> i32 + Send + 'static) -> JoinHandle<i32> {
    thread::spawn(move || if wait() == 0 { 0 } else { std::io::Error::last_os_error().raw_os_error().unwrap_or(-1) })
}

/// Sends a signal to the thread up to `times` times, until the thread has ended. After each signal, waits until the
/// handler has run.
fn signal(waiter: &JoinHandle<i32>, times: usize) {
    for _ in 0..times {
        let before = HANDLED.load(Ordering::Relaxed);
        if waiter.is_finished() {
            return;
        }
        // SAFETY: the thread is not joined yet.
        unsafe { libc::pthread_kill(waiter.as_pthread_t(), libc::SIGUSR1) };
        while HANDLED.load(Ordering::Relaxed) == before && !waiter.is_finished() {
            thread::yield_now();
        }
        // The thread resumes its wait.
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn handler_flags_decide_whether_a_wait_continues() {
    let context = open(c"soft0");
    // SAFETY: all objects are created here and destroyed at the end in order.
    unsafe {
        let channel = Shared(ibv_create_comp_channel(context));
        let waits_for_completions = move || {
            let (mut cq, mut of) = (ptr::null_mut(), ptr::null_mut());
            let result = ibv_get_cq_event(channel.get(), &raw mut cq, &raw mut of);
            if result == 0 {
                ibv_ack_cq_events(cq, 1);
            }
            result
        };
        let own = Shared(context);
        let waits_for_events = move || ibv_get_async_event(own.get(), &mut zeroed());

        set_handler(0);
        for waiter in [waiter(waits_for_completions), waiter(waits_for_events)] {
            signal(&waiter, usize::MAX);
            assert_eq!(waiter.join().expect("the thread does not panic"), libc::EINTR);
        }

        set_handler(libc::SA_RESTART);
        let side = Side::new(context, Setup::default());
        let cq = ibv_create_cq(context, 4, ptr::null_mut(), channel.get(), 0);
        assert_eq!(ibv_req_notify_cq(cq, 0), 0);
        let waiter = waiter(waits_for_completions);
        signal(&waiter, 50);
        assert!(!waiter.is_finished(), "the wait continues");
        // A QP in the error state completes posted receives.
        let mut attr: ibv_qp_init_attr = zeroed();
        (attr.send_cq, attr.recv_cq, attr.qp_type) = (cq, cq, ibv_qp_type::IBV_QPT_RC);
        (attr.cap.max_recv_wr, attr.cap.max_recv_sge) = (1, 1);
        let qp = ibv_create_qp(side.pd, &raw mut attr);
        let mut change: ibv_qp_attr = zeroed();
        (change.qp_state, change.port_num) = (ibv_qp_state::IBV_QPS_INIT, 1);
        assert_eq!(ibv_modify_qp(qp, &raw mut change, 0x39), 0);
        change.qp_state = ibv_qp_state::IBV_QPS_ERR;
        assert_eq!(ibv_modify_qp(qp, &raw mut change, 1), 0);
        let (mut wr, mut bad): (ibv_recv_wr, _) = (zeroed(), ptr::null_mut());
        assert_eq!(ibv_post_recv(qp, &raw mut wr, &raw mut bad), 0);
        assert_eq!(waiter.join().expect("the thread does not panic"), 0);

        assert_eq!((ibv_destroy_qp(qp), ibv_destroy_cq(cq)), (0, 0));
        assert_eq!(ibv_destroy_comp_channel(channel.get()), 0);
        side.close();
        assert_eq!(ibv_close_device(context), 0);
    }
}
