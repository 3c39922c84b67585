//! The extended verbs. A poll selects one completion after the other. For each requested field, the queue has a
//! function that returns this field of the selected completion.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_uint};
use std::ptr;

use rdma_mummy_sys::{
    ibv_context, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_cq_init_attr_mask as Mask, ibv_create_cq_attr_flags as Flag,
    ibv_create_cq_wc_flags as Field, ibv_poll_cq_attr, ibv_wc_opcode, ibv_wc_status,
};

use super::{Options, Queue};
use crate::cq::Completion;
use crate::qp::registry::QpRegistry;
use crate::sys::errno::Errno;
use crate::verbs::context::is_inherited;
use crate::verbs::failure;
use crate::verbs::object::Object;
use crate::verbs::turn::Turn;

/// The completion that `ibv_start_poll` or `ibv_next_poll` has selected for the readers. Only one thread at a time uses
/// this field.
#[derive(Debug, Default)]
pub(super) struct Cursor {
    /// The lock that a thread holds from the start of a poll to its end, unless the program has promised to use only
    /// one thread.
    turn: Turn,
    current: UnsafeCell<Option<Completion>>,
}

/// `ibv_create_cq_ex(context, attr)`: returns null and sets errno on failure. `EOPNOTSUPP` if a requested field exists
/// in no message (VLANs, flow tags, tag matching); `EINVAL` if another value is unknown.
pub(crate) unsafe extern "C" fn create_cq_ex(
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: required by the C API: the attributes are readable.
    let attr = unsafe { &*attr };
    let has = |mask: Mask| attr.comp_mask & mask.0 != 0;
    let flags = if has(Mask::IBV_CQ_INIT_ATTR_MASK_FLAGS) { attr.flags } else { 0 };
    let known = Flag::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0 | Flag::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0;
    let known_mask = Mask::IBV_CQ_INIT_ATTR_MASK_FLAGS.0 | Mask::IBV_CQ_INIT_ATTR_MASK_PD.0;
    let in_domain = has(Mask::IBV_CQ_INIT_ATTR_MASK_PD);
    if attr.comp_mask & !known_mask != 0 || flags & !known != 0 || in_domain && attr.parent_domain.is_null() {
        return failure::null(Errno::INVALID);
    }
    if attr.wc_flags & !FIELDS != 0 {
        return failure::null(Errno::NOT_SUPPORTED);
    }
    let options = Options {
        entries: attr.cqe,
        cq_context: attr.cq_context,
        channel: attr.channel,
        vector: attr.comp_vector,
        fields: attr.wc_flags,
        ignores_overrun: flags & Flag::IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN.0 != 0,
        domain: if in_domain { attr.parent_domain } else { ptr::null_mut() },
    };
    let is_single_threaded = flags & Flag::IBV_CREATE_CQ_ATTR_SINGLE_THREADED.0 != 0;
    let fill = |cq: &mut ibv_cq_ex| {
        (cq.start_poll, cq.end_poll) = if is_single_threaded {
            (Some(start_poll_alone as _), Some(end_poll_alone as _))
        } else {
            (Some(start_poll as _), Some(end_poll as _))
        };
        cq.next_poll = Some(next_poll);
        set_readers(cq, attr.wc_flags);
    };
    // SAFETY: required by the C API: the context is open, and the channel and the domain are alive.
    unsafe { Queue::create(context, &options, fill) }.map_or_else(failure::null, |cq| cq.cast())
}

/// The values that the functions return if no completion is selected. The C API forbids calling them in this case.
static NOTHING: Completion = Completion {
    wr_id: 0,
    status: ibv_wc_status::IBV_WC_SUCCESS,
    opcode: ibv_wc_opcode::IBV_WC_SEND,
    byte_len: 0,
    flags: 0,
    immediate: 0,
    number: 0,
    source_number: 0,
    service_level: 0,
    timestamp: 0,
    wall_clock: 0,
    slots: None,
};

/// Selects the next completion. Returns whether there is one.
///
/// # Safety
///
/// The queue is alive, and this thread holds the turn.
unsafe fn advance(queue: &Queue, cq: *mut ibv_cq_ex) -> bool {
    let next = queue.queue.pop();
    let has_next = next.is_some();
    // SAFETY: guaranteed by the caller: no other thread uses the cursor or the two fields of the C struct, to which no
    // reference exists.
    unsafe {
        if let Some(completion) = &next {
            (*cq).wr_id = completion.wr_id;
            (*cq).status = completion.status;
        }
        *queue.cursor.current.get() = next;
    }
    has_next
}

/// Returns zero if a poll can begin, and an errno value otherwise.
///
/// # Safety
///
/// `attr` is null or readable.
unsafe fn check_poll(queue: &Queue, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: guaranteed by the caller.
    if unsafe { attr.as_ref() }.is_some_and(|attr| attr.comp_mask != 0) {
        return libc::EINVAL;
    }
    let is_empty = || queue.queue.is_empty();
    if is_empty() && (!QpRegistry::of_process().progress() || is_empty()) {
        // A completion was lost, and all earlier ones were polled.
        return if queue.queue.is_broken() { libc::EIO } else { libc::ENOENT };
    }
    0
}

unsafe extern "C" fn start_poll(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: required by the C API: the queue is alive, and the attributes are readable; this thread holds the turn.
    unsafe {
        if is_inherited((*cq).context) {
            return libc::EIO;
        }
        let queue = Queue::of(cq.cast());
        let refused = check_poll(queue, attr);
        if refused != 0 {
            return refused;
        }
        if let Err(errno) = queue.cursor.turn.take() {
            return failure::code(errno);
        }
        if advance(queue, cq) {
            return 0;
        }
        queue.cursor.turn.give();
    }
    libc::ENOENT
}

unsafe extern "C" fn start_poll_alone(cq: *mut ibv_cq_ex, attr: *mut ibv_poll_cq_attr) -> c_int {
    // SAFETY: required by the C API: the queue is alive, the attributes are readable, and one thread uses it.
    unsafe {
        if is_inherited((*cq).context) {
            return libc::EIO;
        }
        let queue = Queue::of(cq.cast());
        let refused = check_poll(queue, attr);
        if refused != 0 {
            return refused;
        }
        if advance(queue, cq) { 0 } else { libc::ENOENT }
    }
}

unsafe extern "C" fn next_poll(cq: *mut ibv_cq_ex) -> c_int {
    // SAFETY: required by the C API: the queue is alive, and this thread has begun a poll.
    if unsafe { advance(Queue::of(cq.cast()), cq) } { 0 } else { libc::ENOENT }
}

unsafe extern "C" fn end_poll(cq: *mut ibv_cq_ex) {
    // SAFETY: required by the C API: the queue is alive, and this thread has begun a poll.
    unsafe {
        end_poll_alone(cq);
        Queue::of(cq.cast()).cursor.turn.give();
    }
}

unsafe extern "C" fn end_poll_alone(cq: *mut ibv_cq_ex) {
    // SAFETY: required by the C API: the queue is alive, and this thread has begun a poll.
    unsafe { *Queue::of(cq.cast()).cursor.current.get() = None };
}

macro_rules! readers {
    (
        always { $($always:ident -> $Always:ty = $constant:expr;)+ }
        asked { $($name:ident -> $Type:ty = $value:expr, $Flag:ident;)+ }
    ) => {
        /// The fields that can be requested.
        const FIELDS: u64 = 0 $(| Field::$Flag.0 as u64)+;

        /// Sets the functions that read the requested fields. The other functions stay null, as with the drivers of
        /// NICs.
        fn set_readers(cq: &mut ibv_cq_ex, asked: u64) {
            $( cq.$always = Some($always); )+
            $(
                if asked & u64::from(Field::$Flag.0) != 0 {
                    cq.$name = Some($name);
                }
            )+
        }

        $( readers!(reader $always -> $Always = $constant); )+
        $( readers!(reader $name -> $Type = $value); )+
    };
    (reader $name:ident -> $Type:ty = $value:expr) => {
        unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $Type {
            let read: fn(&Completion) -> $Type = $value;
            // SAFETY: required by the C API: the queue is alive, and this thread has begun a poll.
            let current = unsafe { &*Queue::of(cq.cast()).cursor.current.get() };
            read(current.as_ref().unwrap_or(&NOTHING))
        }
    };
}

readers! {
    always {
        read_opcode -> ibv_wc_opcode = |completion| completion.opcode;
        read_vendor_err -> u32 = |_| 0;
        read_wc_flags -> c_uint = |completion| completion.flags;
    }
    asked {
        read_byte_len -> u32 = |completion| completion.byte_len, IBV_WC_EX_WITH_BYTE_LEN;
        read_imm_data -> u32 = |completion| completion.immediate, IBV_WC_EX_WITH_IMM;
        read_qp_num -> u32 = |completion| completion.number, IBV_WC_EX_WITH_QP_NUM;
        read_src_qp -> u32 = |completion| completion.source_number, IBV_WC_EX_WITH_SRC_QP;
        read_slid -> u32 = |_| 0, IBV_WC_EX_WITH_SLID;
        read_sl -> u8 = |completion| completion.service_level, IBV_WC_EX_WITH_SL;
        read_dlid_path_bits -> u8 = |_| 0, IBV_WC_EX_WITH_DLID_PATH_BITS;
        read_completion_ts -> u64 = |completion| completion.timestamp, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
        read_completion_wallclock_ns -> u64 = |completion| completion.wall_clock,
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
    }
}
