//! Requests that are built with `ibv_wr_start`, one function for the operation, one for its data, and `ibv_wr_complete`.

use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};
use std::fmt;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use rdma_mummy_sys::since_v44::ibv_qp_ex_since_v44;
use rdma_mummy_sys::{ibv_qp_create_send_ops_flags as with, *};

use super::adopt::{extended_pair_of, recent_extended_pair};
use super::original::{Original, Step};
use super::posting::segments;
use super::queue_pair::{FOLLOWS, Limits, QueuePair};
use super::table::Keyed;
use crate::count::Run;
use crate::faults;
use crate::moment::{Kind, Moment};
use crate::state::{self, COUNT, FAULTS};

/// The requests of the batch that is being built: each of them, if they are followed, or their counts. The driver locks the queue pair from `wr_start` to `wr_complete` or
/// `wr_abort`, and a program may not build requests outside of them.
struct Batch(UnsafeCell<(Vec<Moment>, Run)>);

// SAFETY: only the thread that builds a batch uses it, see above.
unsafe impl Sync for Batch {}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}

impl Batch {
    /// # Safety
    ///
    /// The calling thread builds the batch.
    #[expect(clippy::mut_from_ref, reason = "the driver's lock makes the reference exclusive")]
    unsafe fn get(&self) -> &mut (Vec<Moment>, Run) {
        // SAFETY: by contract no other thread has a reference; each function of this file uses its own only briefly.
        unsafe { &mut *self.0.get() }
    }
}

/// The immediate data, the key to invalidate, the remote key and address, and how the request names its operation.
macro_rules! operations {
    ($($op:ident ($($arg:ident: $Type:ty),*) = $Code:ident $(in $Struct:ident if $flag:path)?,
       remote $remote:expr, key $key:expr, extra $extra:expr, bytes $bytes:expr;)*) => {
        /// The driver's functions of an extended queue pair.
        #[derive(Debug)]
        pub(super) struct ExtendedPair {
            key: AtomicU64,
            $($op: Original<unsafe extern "C" fn(*mut ibv_qp_ex, $($Type),*)>,)*
            wr_start: Original<Bare>,
            wr_complete: Original<Complete>,
            wr_abort: Original<Bare>,
            wr_set_sge: Original<SetSge>,
            wr_set_sge_list: Original<SetSgeList>,
            wr_set_inline_data: Original<SetInline>,
            wr_set_inline_data_list: Original<SetInlineList>,
            wr_set_ud_addr: Original<SetAddress>,
            batch: Batch,
            pair: AtomicPtr<QueuePair>,
        }

        impl ExtendedPair {
            pub(super) fn new() -> Self {
                Self {
                    key: AtomicU64::new(0),
                    $($op: Original::none(),)*
                    wr_start: Original::none(),
                    wr_complete: Original::none(),
                    wr_abort: Original::none(),
                    wr_set_sge: Original::none(),
                    wr_set_sge_list: Original::none(),
                    wr_set_inline_data: Original::none(),
                    wr_set_inline_data_list: Original::none(),
                    wr_set_ud_addr: Original::none(),
                    batch: Batch(UnsafeCell::default()),
                    pair: AtomicPtr::default(),
                }
            }
        }

        /// Puts our functions into the queue pair.
        pub(super) fn take(step: Step, record: &ExtendedPair, qp: *mut ibv_qp_ex, pair: &'static QueuePair) {
            record.pair.store(std::ptr::from_ref(pair).cast_mut(), Ordering::Relaxed);
            // SAFETY: `adopt` calls this function for a queue pair that the program has not used as an extended one.
            unsafe {
                $(operations!(@take record, step, qp, pair, $op $($Struct, $flag)?);)*
                record.wr_start.take(step, &raw mut (*qp).wr_start, wr_start);
                record.wr_complete.take(step, &raw mut (*qp).wr_complete, wr_complete);
                record.wr_abort.take(step, &raw mut (*qp).wr_abort, wr_abort);
                record.wr_set_sge.take(step, &raw mut (*qp).wr_set_sge, wr_set_sge);
                record.wr_set_sge_list.take(step, &raw mut (*qp).wr_set_sge_list, wr_set_sge_list);
                record.wr_set_inline_data.take(step, &raw mut (*qp).wr_set_inline_data, wr_set_inline_data);
                record.wr_set_inline_data_list.take(step, &raw mut (*qp).wr_set_inline_data_list, wr_set_inline_data_list);
                record.wr_set_ud_addr.take(step, &raw mut (*qp).wr_set_ud_addr, wr_set_ud_addr);
            }
        }

        $(
            unsafe extern "C" fn $op(qp: *mut ibv_qp_ex, $($arg: $Type),*) {
                #[cold]
                #[inline(never)]
                unsafe extern "C" fn any(qp: *mut ibv_qp_ex, $($arg: $Type),*) {
                    // SAFETY: as below.
                    unsafe {
                        let Some(record) = extended_pair_of(qp) else { return };
                        let on = state::on();
                        if on & FOLLOWS != 0 {
                            let of = Moment { remote: $remote, key: $key, extra: $extra, bytes: $bytes, ..Moment::default() };
                            follow(record, qp, ibv_wr_opcode::$Code.0, of);
                        } else if on != 0 {
                            count(record, qp, ibv_wr_opcode::$Code.0, $bytes);
                        }
                        if let Some(function) = record.$op.get() {
                            function(qp, $($arg),*);
                        }
                    }
                }
                // SAFETY: the program passes a live queue pair, for which it builds a batch.
                unsafe {
                    // Both calls are the last ones, so that the usual case needs no frame.
                    if let Some(record) = recent_extended_pair(qp)
                        && let Some(function) = record.$op.get()
                        && count_alike(record, qp, ibv_wr_opcode::$Code.0, $bytes)
                    {
                        function(qp, $($arg),*)
                    } else {
                        any(qp, $($arg),*)
                    }
                }
            }
        )*
    };
    (@take $record:ident, $step:ident, $qp:ident, $pair:ident, $op:ident) => {
        $record.$op.take($step, &raw mut (*$qp).$op, $op)
    };
    // The struct of an older library lacks the function, unless the queue pair was made with it.
    (@take $record:ident, $step:ident, $qp:ident, $pair:ident, $op:ident $Struct:ident, $flag:path) => {
        if $pair.has_operation($flag) {
            $record.$op.take($step, &raw mut (*$qp.cast::<$Struct>()).$op, $op);
        } else {
            $record.$op.clear();
        }
    };
}

type Bare = unsafe extern "C" fn(*mut ibv_qp_ex);
type Complete = unsafe extern "C" fn(*mut ibv_qp_ex) -> c_int;
type SetSge = unsafe extern "C" fn(*mut ibv_qp_ex, u32, u64, u32);
type SetSgeList = unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_sge);
type SetInline = unsafe extern "C" fn(*mut ibv_qp_ex, *mut c_void, usize);
type SetInlineList = unsafe extern "C" fn(*mut ibv_qp_ex, usize, *const ibv_data_buf);
type SetAddress = unsafe extern "C" fn(*mut ibv_qp_ex, *mut ibv_ah, u32, u32);

operations! {
    wr_send() = IBV_WR_SEND, remote 0, key 0, extra 0, bytes 0;
    wr_send_imm(imm_data: __be32) = IBV_WR_SEND_WITH_IMM, remote 0, key 0, extra imm_data.into(), bytes 0;
    wr_send_inv(rkey: u32) = IBV_WR_SEND_WITH_INV, remote 0, key 0, extra rkey.into(), bytes 0;
    wr_rdma_write(rkey: u32, address: u64) = IBV_WR_RDMA_WRITE, remote address, key rkey, extra 0, bytes 0;
    wr_rdma_write_imm(rkey: u32, address: u64, imm_data: __be32) = IBV_WR_RDMA_WRITE_WITH_IMM, remote address, key rkey, extra imm_data.into(), bytes 0;
    wr_rdma_read(rkey: u32, address: u64) = IBV_WR_RDMA_READ, remote address, key rkey, extra 0, bytes 0;
    wr_atomic_cmp_swp(rkey: u32, address: u64, compare: u64, swap: u64) = IBV_WR_ATOMIC_CMP_AND_SWP, remote address, key rkey, extra 0, bytes 0;
    wr_atomic_fetch_add(rkey: u32, address: u64, add: u64) = IBV_WR_ATOMIC_FETCH_AND_ADD, remote address, key rkey, extra 0, bytes 0;
    wr_local_inv(rkey: u32) = IBV_WR_LOCAL_INV, remote 0, key 0, extra rkey.into(), bytes 0;
    wr_bind_mw(mw: *mut ibv_mw, rkey: u32, info: *const ibv_mw_bind_info) = IBV_WR_BIND_MW, remote 0, key rkey, extra 0, bytes 0;
    wr_send_tso(header: *mut c_void, header_size: u16, mss: u16) = IBV_WR_TSO, remote 0, key 0, extra 0, bytes 0;
    wr_atomic_write(rkey: u32, address: u64, data: *const c_void) = IBV_WR_ATOMIC_WRITE
        in ibv_qp_ex if with::IBV_QP_EX_WITH_ATOMIC_WRITE,
        remote address, key rkey, extra 0, bytes 8;
    wr_flush(rkey: u32, address: u64, length: usize, kind: u8, level: u8) = IBV_WR_FLUSH
        in ibv_qp_ex_since_v44 if with::IBV_QP_EX_WITH_FLUSH,
        remote address, key rkey, extra length as u64, bytes 0;
}

/// Whether the queue pair has our functions.
///
/// # Safety
///
/// `qp` is live and extended.
pub(super) unsafe fn is_ours(qp: *mut ibv_qp_ex) -> bool {
    // SAFETY: by contract.
    unsafe { (*qp).wr_start }.is_some_and(|found| std::ptr::fn_addr_eq(found, wr_start as Bare))
}

impl Keyed for ExtendedPair {
    fn key(&self) -> &AtomicU64 {
        &self.key
    }
}

/// Adds a request to the batch that is followed. `of` has what only its operation has.
///
/// # Safety
///
/// The calling thread builds the batch.
unsafe fn follow(record: &ExtendedPair, qp: *mut ibv_qp_ex, opcode: u32, of: Moment) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        record.batch.get().0.push(Moment {
            kind: Kind::Send,
            opcode: opcode as u8,
            flags: (*qp).wr_flags as u16,
            qp: (*qp).qp_base.qp_num,
            wr_id: (*qp).wr_id,
            ..of
        });
    }
}

/// Adds a request to the batch that is counted.
///
/// # Safety
///
/// As for [`follow`].
unsafe fn count(record: &ExtendedPair, qp: *mut ibv_qp_ex, opcode: u32, bytes: u64) {
    if let Some(pair) = record.pair() {
        // SAFETY: guaranteed by the caller.
        unsafe { record.batch.get().1.add(opcode, pair.is_signaled((*qp).wr_flags as u16), bytes) };
    }
}

/// Does for a request what is switched on, if that is nothing, or to count one of the kind of the last one. Returns `false`
/// for others.
///
/// # Safety
///
/// As for [`follow`].
#[inline]
unsafe fn count_alike(record: &ExtendedPair, qp: *mut ibv_qp_ex, opcode: u32, bytes: u64) -> bool {
    match (state::on(), record.pair()) {
        (0, _) => true,
        // SAFETY: guaranteed by the caller.
        (COUNT, Some(pair)) => unsafe {
            record.batch.get().1.add_alike(opcode, pair.is_signaled((*qp).wr_flags as u16), bytes)
        },
        _ => false,
    }
}

impl ExtendedPair {
    #[inline]
    fn pair(&self) -> Option<&'static QueuePair> {
        // SAFETY: the record of a queue pair is never freed.
        unsafe { self.pair.load(Ordering::Relaxed).as_ref() }
    }
}

unsafe extern "C" fn wr_start(qp: *mut ibv_qp_ex) {
    // SAFETY: the program passes a live queue pair. After the driver's function, this thread builds the batch.
    unsafe {
        let Some(record) = extended_pair_of(qp) else { return };
        // Before the driver locks the queue pair.
        if state::on() & FAULTS != 0
            && let Some(pair) = record.pair()
        {
            faults::before_post(&pair.faults);
        }
        if let Some(function) = record.wr_start.get() {
            function(qp);
        }
        clear(record);
    }
}

/// # Safety
///
/// The calling thread builds the batch.
unsafe fn clear(record: &ExtendedPair) {
    // SAFETY: guaranteed by the caller.
    let (moments, run) = unsafe { record.batch.get() };
    moments.clear();
    run.take();
}

unsafe extern "C" fn wr_abort(qp: *mut ibv_qp_ex) {
    // SAFETY: the program passes a live queue pair, for which it builds a batch.
    unsafe {
        let Some(record) = extended_pair_of(qp) else { return };
        clear(record);
        if let Some(function) = record.wr_abort.get() {
            function(qp);
        }
        record.pair().into_iter().for_each(QueuePair::posted_nothing);
    }
}

unsafe extern "C" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    // SAFETY: the program passes a live queue pair, for which it has built a batch.
    unsafe {
        let Some(record) = extended_pair_of(qp) else { return libc::EOPNOTSUPP };
        let Some(function) = record.wr_complete.get() else { return libc::EOPNOTSUPP };
        let on = state::on();
        let Some(pair) = record.pair().filter(|_| on != 0) else { return function(qp) };
        if on & FOLLOWS != 0 {
            return complete_and_follow(on, record, pair, function, qp);
        }
        // Before the driver unlocks the queue pair.
        let run = record.batch.get().1.take();
        if run.has_signaled() {
            pair.counts.will_post();
        }
        let code = function(qp);
        if code == 0 {
            pair.counts.posted(&run);
        } else {
            pair.counts.refused(run.requests());
        }
        code
    }
}

/// Posts a batch that the trace or the faults follow.
///
/// # Safety
///
/// As for `ibv_wr_complete`.
#[inline(never)]
unsafe fn complete_and_follow(
    on: u8,
    record: &ExtendedPair,
    pair: &QueuePair,
    function: Complete,
    qp: *mut ibv_qp_ex,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (moments, _) = record.batch.get();
        let count = moments.len() as u64;
        let mut run = Run::default();
        for moment in moments.drain(..) {
            run.add(moment.opcode.into(), pair.is_signaled(moment.flags), moment.bytes);
            pair.post(on, Moment { thread: state::thread(), ..moment });
        }
        let injected = if on & FAULTS != 0 { faults::refuse_post(&pair.faults) } else { None };
        let code = match injected {
            Some(errno) => {
                if let Some(abort) = record.wr_abort.get() {
                    abort(qp);
                }
                errno
            }
            None => function(qp),
        };
        if code != 0 {
            pair.refused(on, count, code, injected.is_some());
        } else if count == 0 {
            pair.posted_nothing();
        }
        if on & COUNT != 0 {
            if code == 0 { pair.counts.posted(&run) } else { pair.counts.refused(count) }
        }
        code
    }
}

/// Changes the last request of the batch, or adds to the bytes that are counted.
///
/// # Safety
///
/// The calling thread builds the batch.
#[inline]
unsafe fn with_last(record: &ExtendedPair, bytes: u64, change: impl FnOnce(&mut Moment)) {
    let on = state::on();
    if on == 0 {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let (moments, run) = unsafe { record.batch.get() };
    if on & FOLLOWS == 0 {
        run.add_bytes(bytes);
    } else if let Some(last) = moments.last_mut() {
        // The address of a datagram may be set before or after its data.
        last.bytes += bytes;
        change(last);
    }
}

macro_rules! data {
    ($($op:ident ($($arg:ident: $Type:ty),*), |$limits:ident, $last:ident| bytes $bytes:expr, $change:expr;)*) => { $(
        unsafe extern "C" fn $op(qp: *mut ibv_qp_ex, $($arg: $Type),*) {
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn any(qp: *mut ibv_qp_ex, $($arg: $Type),*) {
                // SAFETY: as below.
                unsafe {
                    let Some(record) = extended_pair_of(qp) else { return };
                    if let Some(pair) = record.pair().filter(|_| state::on() != 0) {
                        let $limits = &pair.limits;
                        with_last(record, $bytes, |$last| $change);
                    }
                    if let Some(function) = record.$op.get() {
                        function(qp, $($arg),*);
                    }
                }
            }
            // SAFETY: the program passes a live queue pair, for which it builds a batch, and live data.
            unsafe {
                // As for operations.
                if state::on() & FOLLOWS == 0
                    && let Some(record) = recent_extended_pair(qp)
                    && let Some(function) = record.$op.get()
                    && let Some(pair) = record.pair()
                {
                    if state::on() != 0 {
                        let $limits = &pair.limits;
                        record.batch.get().1.add_bytes($bytes);
                    }
                    function(qp, $($arg),*)
                } else {
                    any(qp, $($arg),*)
                }
            }
        }
    )* };
}

data! {
    wr_set_sge(lkey: u32, address: u64, length: u32), |_limits, last| bytes length.into(), {
        (last.lkey, last.address, last.segments) = (lkey, address, 1);
    };
    wr_set_sge_list(count: usize, list: *const ibv_sge), |limits, last| bytes segments(list, count, &limits.send_segments).0, {
        last.segments = count.try_into().unwrap_or(u8::MAX);
        let first = segments(list, count, &limits.send_segments).1;
        (last.lkey, last.address) = first.map_or((0, 0), |first| (first.lkey, first.addr));
    };
    wr_set_inline_data(address: *mut c_void, length: usize), |_limits, last| bytes length as u64, {
        (last.address, last.segments) = (address.addr() as u64, 1);
        last.flags |= INLINE;
    };
    wr_set_inline_data_list(count: usize, list: *const ibv_data_buf), |limits, last| bytes bytes_of(list, count, limits), {
        last.segments = count.try_into().unwrap_or(u8::MAX);
        last.flags |= INLINE;
    };
    wr_set_ud_addr(ah: *mut ibv_ah, number: u32, qkey: u32), |_limits, last| bytes 0, {
        (last.remote, last.key) = (number.into(), qkey);
    };
}

/// # Safety
///
/// `list` has `count` parts, if the driver accepts as many.
unsafe fn bytes_of(list: *const ibv_data_buf, count: usize, limits: &Limits) -> u64 {
    if list.is_null() || count > limits.send_segments.load(Ordering::Relaxed) as usize {
        return 0;
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(list, count) }.iter().map(|part| part.length as u64).sum()
}

const INLINE: u16 = 8;
