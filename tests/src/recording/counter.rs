//! Completion counters, from a later library than the bindings.

use libc::c_int;
use rdma_mummy_sys as ffi;
use rdma_mummy_sys::since_v44::IbverbsSinceV44;

use super::calls::Kind;
use super::device::state_of;
use super::objects::{destroy_object, forever};

pub(super) fn fill_in(table: IbverbsSinceV44) -> IbverbsSinceV44 {
    IbverbsSinceV44 {
        _ibv_query_comp_cntr_caps: Some(query_comp_cntr_caps),
        ibv_create_comp_cntr: Some(create_comp_cntr),
        ibv_destroy_comp_cntr: Some(destroy_comp_cntr),
        ibv_set_comp_cntr: Some(set_comp_cntr),
        ibv_set_err_comp_cntr: Some(set_err_comp_cntr),
        ibv_inc_comp_cntr: Some(inc_comp_cntr),
        ibv_inc_err_comp_cntr: Some(inc_err_comp_cntr),
        ibv_read_comp_cntr: Some(read_comp_cntr),
        ibv_read_err_comp_cntr: Some(read_err_comp_cntr),
        ibv_qp_attach_comp_cntr: Some(qp_attach_comp_cntr),
        ..table
    }
}

unsafe extern "C" fn query_comp_cntr_caps(
    context: *mut ffi::ibv_context,
    caps: *mut ffi::ibv_comp_cntr_caps,
    size: usize,
) -> c_int {
    assert_eq!(size, size_of::<ffi::ibv_comp_cntr_caps>());
    // SAFETY: the context is one of this provider's, and the capabilities can be written.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("query_comp_cntr_caps", &[]);
        if let Some(failure) = failure {
            return failure.code();
        }
        caps.write(ffi::ibv_comp_cntr_caps { max_value: 1 << 40, max_counters: 8, supported_qp_attach_ops: 3 });
        inner.output("query_comp_cntr_caps", caps);
    }
    0
}

unsafe extern "C" fn create_comp_cntr(
    context: *mut ffi::ibv_context,
    attr: *mut ffi::ibv_comp_cntr_init_attr,
) -> *mut ffi::ibv_comp_cntr {
    // SAFETY: the context is one of this provider's, the attributes can be read, and the counter is new.
    unsafe {
        let (mut inner, failure) = state_of(context).enter("create_comp_cntr", &[("type", (*attr).type_.into())]);
        if let Some(failure) = failure {
            return failure.null();
        }
        let counter = forever::<ffi::ibv_comp_cntr>();
        (*counter).context = context;
        inner.made(Kind::CompletionCounter, counter, &[context.addr()]);
        inner.counters.insert(counter.addr(), [0; 2]);
        counter
    }
}

unsafe extern "C" fn destroy_comp_cntr(counter: *mut ffi::ibv_comp_cntr) -> c_int {
    // SAFETY: objects are never freed.
    unsafe { destroy_object((*counter).context, "destroy_comp_cntr", Kind::CompletionCounter, counter.addr()) }
}

/// Calls `touch` with one of the two numbers.
///
/// # Safety
///
/// `counter` is one of this provider's.
unsafe fn with(
    counter: *mut ffi::ibv_comp_cntr,
    verb: &'static str,
    argument: u64,
    which: usize,
    touch: impl FnOnce(&mut u64),
) -> c_int {
    // SAFETY: objects are never freed.
    let (mut inner, failure) = unsafe { state_of((*counter).context) }.enter(verb, &[("argument", argument)]);
    if let Some(failure) = failure {
        return failure.code();
    }
    if !inner.is_live(Kind::CompletionCounter, counter.addr(), verb) {
        return libc::EINVAL;
    }
    if let Some(number) = inner.counters.get_mut(&counter.addr()).and_then(|numbers| numbers.get_mut(which)) {
        touch(number);
    }
    0
}

macro_rules! numbers {
    ($($name:ident($argument:ident, $which:literal) |$number:ident| $touch:expr;)+) => { $(
        unsafe extern "C" fn $name(counter: *mut ffi::ibv_comp_cntr, $argument: u64) -> c_int {
            // SAFETY: the counter is one of this provider's.
            unsafe { with(counter, stringify!($name), $argument, $which, |$number| $touch) }
        }
    )+ };
}

numbers! {
    set_comp_cntr(value, 0) |number| *number = value;
    set_err_comp_cntr(value, 1) |number| *number = value;
    inc_comp_cntr(amount, 0) |number| *number += amount;
    inc_err_comp_cntr(amount, 1) |number| *number += amount;
}

/// Reads one of the two numbers.
///
/// # Safety
///
/// `counter` is one of this provider's, and `value` can be written.
unsafe fn read(counter: *mut ffi::ibv_comp_cntr, verb: &'static str, which: usize, value: *mut u64) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let code = with(counter, verb, 0, which, |number| value.write(*number));
        if code == 0 {
            state_of((*counter).context).lock().output(verb, value);
        }
        code
    }
}

unsafe extern "C" fn read_comp_cntr(counter: *mut ffi::ibv_comp_cntr, value: *mut u64) -> c_int {
    // SAFETY: the counter is one of this provider's, and the value can be written.
    unsafe { read(counter, "read_comp_cntr", 0, value) }
}

unsafe extern "C" fn read_err_comp_cntr(counter: *mut ffi::ibv_comp_cntr, value: *mut u64) -> c_int {
    // SAFETY: the counter is one of this provider's, and the value can be written.
    unsafe { read(counter, "read_err_comp_cntr", 1, value) }
}

unsafe extern "C" fn qp_attach_comp_cntr(
    qp: *mut ffi::ibv_qp,
    counter: *mut ffi::ibv_comp_cntr,
    attr: *mut ffi::ibv_qp_attach_comp_cntr_attr,
) -> c_int {
    // SAFETY: objects are never freed, and the attributes can be read.
    unsafe {
        let arguments = [("qp_num", (*qp).qp_num.into()), ("op_mask", (*attr).op_mask.into())];
        let (mut inner, failure) = state_of((*qp).context).enter("qp_attach_comp_cntr", &arguments);
        if let Some(failure) = failure {
            return failure.code();
        }
        inner.is_live(Kind::QueuePair, qp.addr(), "qp_attach_comp_cntr");
        inner.is_live(Kind::CompletionCounter, counter.addr(), "qp_attach_comp_cntr");
        if (*qp).state.0 > ffi::ibv_qp_state::IBV_QPS_INIT.0 {
            inner.failed(libc::EINVAL);
            return libc::EINVAL;
        }
        inner.depends(qp.addr(), counter.addr());
    }
    0
}
