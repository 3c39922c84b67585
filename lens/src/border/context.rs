//! Contexts: the functions through which programs post, poll, and make extended objects.

use std::ffi::{c_int, c_void};
use std::mem::offset_of;
use std::sync::atomic::AtomicU64;

use rdma_mummy_sys::*;

use super::adopt::context_of;
use super::control;
use super::original::{Original, Step};
use super::outcome::Outcome;
use super::show::{Arguments, Show};
use super::table::Keyed;
use super::{completion, extended_cq, posting, shared_queue};

pub(super) type PostSend = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int;
pub(super) type PostReceive = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub(super) type PostShared = unsafe extern "C" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int;
pub(super) type Poll = unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int;
type AllocWindow = unsafe extern "C" fn(*mut ibv_pd, ibv_mw_type) -> *mut ibv_mw;
type DeallocWindow = unsafe extern "C" fn(*mut ibv_mw) -> c_int;
pub(super) type Bind = unsafe extern "C" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int;
pub(super) type Notify = unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int;

/// The driver's functions of a context.
#[derive(Debug)]
pub(super) struct Context {
    key: AtomicU64,
    pub(super) post_send: Original<PostSend>,
    pub(super) post_receive: Original<PostReceive>,
    pub(super) post_shared: Original<PostShared>,
    pub(super) poll: Original<Poll>,
    pub(super) notify: Original<Notify>,
    pub(super) bind: Original<Bind>,
    alloc_window: Original<AllocWindow>,
    dealloc_window: Original<DeallocWindow>,
    pub(super) extended: Extended,
}

impl Keyed for Context {
    fn key(&self) -> &AtomicU64 {
        &self.key
    }
}

impl Context {
    pub(super) fn new() -> Self {
        Self {
            key: AtomicU64::new(0),
            post_send: Original::none(),
            post_receive: Original::none(),
            post_shared: Original::none(),
            poll: Original::none(),
            notify: Original::none(),
            bind: Original::none(),
            alloc_window: Original::none(),
            dealloc_window: Original::none(),
            extended: Extended::new(),
        }
    }
}

/// Whether the context has our functions, or no data path.
///
/// # Safety
///
/// `context` is live.
pub(super) unsafe fn is_ours(context: *mut ibv_context) -> bool {
    // SAFETY: by contract.
    unsafe { (*context).ops.poll_cq }.is_none_or(|found| std::ptr::fn_addr_eq(found, completion::poll as Poll))
}

/// The address of the driver's `poll_cq`.
pub(super) fn driver(context: *mut ibv_context) -> *const c_void {
    let function = context_of(context).and_then(|context| context.poll.get());
    function.map_or(std::ptr::null(), |function| function as *const c_void)
}

/// Puts our functions into the context.
pub(super) fn take(step: Step, record: &Context, context: *mut ibv_context) {
    // SAFETY: `adopt` calls this function for a live context that the program has not used, and the table ends with it.
    unsafe {
        let ops = &raw mut (*context).ops;
        record.post_send.take(step, &raw mut (*ops).post_send, posting::post_send);
        record.post_receive.take(step, &raw mut (*ops).post_recv, posting::post_receive);
        record.post_shared.take(step, &raw mut (*ops).post_srq_recv, shared_queue::post_shared);
        record.poll.take(step, &raw mut (*ops).poll_cq, completion::poll);
        record.notify.take(step, &raw mut (*ops).req_notify_cq, completion::notify);
        record.bind.take(step, &raw mut (*ops).bind_mw, posting::bind_window);
        record.alloc_window.take(step, &raw mut (*ops).alloc_mw, alloc_window);
        record.dealloc_window.take(step, &raw mut (*ops).dealloc_mw, dealloc_window);
        let table = verbs_get_ctx(context);
        if !table.is_null() {
            record.extended.take(step, table);
        }
    }
}

/// An object with a context.
trait OfContext {
    /// # Safety
    ///
    /// The object is live.
    unsafe fn context(self) -> *mut ibv_context;
}

impl OfContext for *mut ibv_context {
    unsafe fn context(self) -> *mut ibv_context {
        self
    }
}

macro_rules! of_context {
    ($($Type:ty)*) => { $(
        impl OfContext for *mut $Type {
            unsafe fn context(self) -> *mut ibv_context {
                // SAFETY: guaranteed by the caller.
                unsafe { (*self).context }
            }
        }
    )* };
}

of_context!(ibv_pd ibv_cq ibv_qp ibv_wq ibv_dm ibv_td ibv_xrcd ibv_counters ibv_rwq_ind_table ibv_flow);

/// The extended table: each function with the verb that calls it, and the context.
macro_rules! extended {
    ($($op:ident = $verb:literal ($($arg:ident: $Type:ty),* $(,)?) -> $Result:ty, by $object:ident $(, through $through:ident)?;)*) => {
        /// The driver's functions in the extended table.
        #[derive(Debug)]
        pub(super) struct Extended {
            $(pub(super) $op: Original<unsafe extern "C" fn($($Type),*) -> $Result>,)*
        }

        /// The verbs that call them.
        pub(super) const EXTENDED: &[&str] = &[$($verb),*];

        impl Extended {
            fn new() -> Self {
                Self { $($op: Original::none(),)* }
            }

            /// # Safety
            ///
            /// `table` is the extended table of a context that no other thread uses.
            unsafe fn take(&self, step: Step, table: *mut verbs_context) {
                // SAFETY: by contract; a table shorter than ours lacks the functions at its start.
                unsafe {
                    $(
                        if (*table).sz >= size_of::<verbs_context>() - offset_of!(verbs_context, $op) {
                            self.$op.take(step, &raw mut (*table).$op, $op);
                        }
                    )*
                }
            }
        }

        $(
            unsafe extern "C" fn $op($($arg: $Type),*) -> $Result {
                // SAFETY: the program passes a live object, whose context is live.
                let context = unsafe { $object.context() };
                let function = context_of(context).and_then(|record| record.extended.$op.get());
                let Some(function) = function else {
                    return <$Result>::failed($verb, libc::EOPNOTSUPP).unwrap_or_else(|| unreachable!());
                };
                // SAFETY: the program upholds the contract of the verb.
                unsafe {
                    control::call(
                        $verb,
                        |to| { $($arg.show(stringify!($arg), to);)* },
                        || extended!(@call function ($($arg),*) $($through)?),
                        |to| { $($arg.show_output(stringify!($arg), to);)* },
                    )
                }
            }
        )*
    };
    (@call $function:ident ($($arg:ident),*)) => { $function($($arg),*) };
    (@call $function:ident ($($arg:ident),*) $through:ident) => { $through($function, $($arg),*) };
}

extended! {
    create_qp_ex = "ibv_create_qp_ex"(context: *mut ibv_context, attr: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp, by context, through create_pair;
    create_srq_ex = "ibv_create_srq_ex"(context: *mut ibv_context, attr: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq, by context;
    open_qp = "ibv_open_qp"(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp, by context;
    open_xrcd = "ibv_open_xrcd"(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd, by context;
    query_device_ex = "ibv_query_device_ex"(context: *mut ibv_context, input: *const ibv_query_device_ex_input, attr: *mut ibv_device_attr_ex, attr_size: usize) -> c_int, by context;
    query_port = "ibv_query_port"(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr, port_attr_len: usize) -> c_int, by context;
    alloc_dm = "ibv_alloc_dm"(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm, by context;
    reg_dm_mr = "ibv_reg_dm_mr"(pd: *mut ibv_pd, dm: *mut ibv_dm, dm_offset: u64, length: usize, access: u32) -> *mut ibv_mr, by pd;
    alloc_null_mr = "ibv_alloc_null_mr"(pd: *mut ibv_pd) -> *mut ibv_mr, by pd;
    advise_mr = "ibv_advise_mr"(pd: *mut ibv_pd, advice: ib_uverbs_advise_mr_advice, flags: u32, sg_list: *mut ibv_sge, num_sge: u32) -> c_int, by pd;
    alloc_td = "ibv_alloc_td"(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td, by context;
    alloc_parent_domain = "ibv_alloc_parent_domain"(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd, by context;
    create_counters = "ibv_create_counters"(context: *mut ibv_context, attr: *mut ibv_counters_init_attr) -> *mut ibv_counters, by context;
    modify_cq = "ibv_modify_cq"(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int, by cq;
    modify_qp_rate_limit = "ibv_modify_qp_rate_limit"(qp: *mut ibv_qp, attr: *mut ibv_qp_rate_limit_attr) -> c_int, by qp;
    ibv_create_flow = "ibv_create_flow"(qp: *mut ibv_qp, flow: *mut ibv_flow_attr) -> *mut ibv_flow, by qp;
    create_wq = "ibv_create_wq"(context: *mut ibv_context, attr: *mut ibv_wq_init_attr) -> *mut ibv_wq, by context;
    modify_wq = "ibv_modify_wq"(wq: *mut ibv_wq, attr: *mut ibv_wq_attr) -> c_int, by wq;
    destroy_wq = "ibv_destroy_wq"(wq: *mut ibv_wq) -> c_int, by wq;
    create_rwq_ind_table = "ibv_create_rwq_ind_table"(context: *mut ibv_context, attr: *mut ibv_rwq_ind_table_init_attr) -> *mut ibv_rwq_ind_table, by context;
    free_dm = "ibv_free_dm"(dm: *mut ibv_dm) -> c_int, by dm;
    dealloc_td = "ibv_dealloc_td"(td: *mut ibv_td) -> c_int, by td;
    close_xrcd = "ibv_close_xrcd"(xrcd: *mut ibv_xrcd) -> c_int, by xrcd;
    destroy_counters = "ibv_destroy_counters"(counters: *mut ibv_counters) -> c_int, by counters;
    destroy_rwq_ind_table = "ibv_destroy_rwq_ind_table"(table: *mut ibv_rwq_ind_table) -> c_int, by table;
    ibv_destroy_flow = "ibv_destroy_flow"(flow: *mut ibv_flow) -> c_int, by flow;
    create_cq_ex = "ibv_create_cq_ex"(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex, by context, through create_named;
}

/// Calls the driver's `create_cq_ex`, so that completions name their queue pair. A driver that refuses this gets the
/// attributes of the program.
///
/// # Safety
///
/// As for `ibv_create_cq_ex`.
pub(super) unsafe fn create_named(
    function: unsafe extern "C" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex,
    context: *mut ibv_context,
    attr: *mut ibv_cq_init_attr_ex,
) -> *mut ibv_cq_ex {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let wanted = (*attr).wc_flags | extended_cq::NEEDED;
        // A bit that this release does not know stands for a field after those that are copied.
        if wanted == (*attr).wc_flags || (*attr).comp_mask & !extended_cq::KNOWN != 0 {
            return function(context, attr);
        }
        let mut more = *attr;
        more.wc_flags = wanted;
        let made = function(context, &raw mut more);
        if made.is_null() { function(context, attr) } else { made }
    }
}

/// Calls the driver's `create_qp_ex`, and keeps which operations the queue pair has.
///
/// # Safety
///
/// As for `ibv_create_qp_ex`.
unsafe fn create_pair(
    function: unsafe extern "C" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp,
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let qp = function(context, attr);
        if !qp.is_null() && (*attr).comp_mask & ibv_qp_init_attr_mask::IBV_QP_INIT_ATTR_SEND_OPS_FLAGS.0 != 0 {
            super::adopt::made_with(qp, (*attr).send_ops_flags);
        }
        qp
    }
}

unsafe extern "C" fn alloc_window(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
    // SAFETY: the program passes a live domain, and upholds the contract of the verb.
    unsafe {
        let function = context_of((*pd).context).and_then(|record| record.alloc_window.get());
        let Some(function) = function else { return std::ptr::null_mut() };
        let inputs = |to: &mut Arguments| {
            pd.show("pd", to);
            kind.0.show("type", to);
        };
        control::call("ibv_alloc_mw", inputs, || function(pd, kind), |_| ())
    }
}

unsafe extern "C" fn dealloc_window(mw: *mut ibv_mw) -> c_int {
    // SAFETY: the program passes a live window, and upholds the contract of the verb.
    unsafe {
        let function = context_of((*mw).context).and_then(|record| record.dealloc_window.get());
        let Some(function) = function else { return libc::EOPNOTSUPP };
        control::call("ibv_dealloc_mw", |to| mw.show("mw", to), || function(mw), |_| ())
    }
}
