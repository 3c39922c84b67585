//! The calls that pass through loaded functions: the table in front of all providers, and what happens at each call.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libc::sockaddr;
use rdma_mummy_sys::load::front;
use rdma_mummy_sys::load::ibverbs::IbverbsTable;
use rdma_mummy_sys::load::rdmacm::RdmacmTable;
use rdma_mummy_sys::since_v44::*;
use rdma_mummy_sys::*;

use super::adopt::{self, Leaving};
use super::held;
use super::outcome::{Outcome, errno, failure_text, set_errno};
use super::show::{Arguments, Show, gid, push, push_attributes};
use crate::state::{self, COUNT, FAULTS, TRACE};
use crate::{count, faults, trace};

/// Passes a call on, unless a fault refuses it.
///
/// # Safety
///
/// The closures only use what the program passed, under the contract of `verb`. `outputs` is called after a success that
/// destroyed nothing.
pub(super) unsafe fn call<R: Outcome>(
    verb: &'static str,
    inputs: impl FnOnce(&mut Arguments),
    function: impl FnOnce() -> R,
    outputs: impl FnOnce(&mut Arguments),
) -> R {
    if front::is_passing() {
        return function();
    }
    let on = state::on();
    let mut arguments = Arguments::new();
    if on & TRACE != 0 {
        inputs(&mut arguments);
    }
    let at = if on == 0 { 0 } else { state::now() };
    if on & FAULTS != 0
        && let Some(code) = faults::refuse_call(verb)
        && let Some(result) = R::failed(verb, code)
    {
        finish(on, verb, at, arguments, Err(code), true);
        set_errno(code);
        return result;
    }
    let result = front::pass(function);
    let failure = result.failure(verb);
    let after = errno();
    if failure.is_none() {
        // SAFETY: the call has succeeded, and the program's objects are live by contract.
        unsafe { result.adopt() };
        if !destroys(verb) {
            outputs(&mut arguments);
        }
    }
    if on != 0 {
        let outcome = match failure {
            Some(code) => Err(code),
            // SAFETY: as above.
            None if on & TRACE != 0 => Ok(unsafe { result.text() }),
            None => Ok(String::new()),
        };
        finish(on, verb, at, arguments, outcome, false);
    }
    set_errno(after);
    result
}

/// Calls that wait for something, which the trace shows when they return.
const WAITS: [&str; 4] = ["ibv_get_cq_event", "ibv_get_async_event", "rdma_get_cm_event", "rdma_get_request"];

/// Nanoseconds after which the end of a call counts.
const LONG: u64 = 5_000_000;

fn finish(on: u8, verb: &'static str, at: u64, arguments: Arguments, outcome: Result<String, i32>, is_injected: bool) {
    if on & COUNT != 0 {
        count::call(verb, state::now() - at, outcome.is_err());
    }
    if on & TRACE != 0 {
        // The trace is written in the order of its times: what takes longer than its writer waits is shown at its end.
        let now = state::now();
        let at = if WAITS.contains(&verb) || now - at > LONG { now } else { at };
        let (result, error) = match outcome {
            Ok(text) => (text, None),
            Err(code) => (String::new(), Some(failure_text(code))),
        };
        trace::call(trace::Call { at, thread: state::thread(), verb, arguments, result, error, is_injected });
    }
}

/// Whether the arguments of `verb` may be gone after it.
fn destroys(verb: &str) -> bool {
    ["destroy", "dealloc", "dereg", "close", "free", "unimport", "_ack_"].iter().any(|part| verb.contains(part))
}

/// A type of an argument, for the objects that a call makes or destroys beside its result.
trait Argument: Show {
    /// # Safety
    ///
    /// The call has succeeded, and did not destroy the object.
    unsafe fn adopt(self, _verb: &str) {}

    /// Appends the queue pair that `verb` has made for an identifier.
    ///
    /// # Safety
    ///
    /// As for [`adopt`](Self::adopt).
    unsafe fn show_pair(self, _verb: &str, _to: &mut Arguments) {}

    /// The records of what `verb` is about to destroy.
    ///
    /// # Safety
    ///
    /// The object is null or live.
    unsafe fn leaving(self, _verb: &str) -> Option<Leaving> {
        None
    }
}

macro_rules! plain_arguments {
    ($($Type:ty)*) => { $(impl Argument for $Type {})* };
}

plain_arguments! {
    u8 u16 u32 u64 usize i32 ibv_wc_status ibv_rate ibv_wr_opcode ibv_node_type ibv_port_state rdma_port_space ibv_event_type
    rdma_cm_event_type *mut ibv_device *mut ibv_pd *mut ibv_mr *mut ibv_ah *mut ibv_comp_channel *mut c_void
    *mut ibv_dm *mut rdma_event_channel *mut rdma_cm_event *mut ibv_qp_attr *mut ibv_qp_init_attr *mut ibv_qp_init_attr_ex
    *mut ibv_srq_init_attr *mut ibv_srq_init_attr_ex *mut ibv_srq_attr *mut ibv_ah_attr *mut rdma_conn_param
    *mut ibv_async_event *mut *mut ibv_cq *const ibv_gid *mut ibv_gid *const c_char *mut i8 *const c_void *mut sockaddr
    *mut ibv_device_attr *mut _compat_ibv_port_attr *mut ibv_gid_entry *mut u64 *mut u32 *mut u16 *mut u8 *mut i32
    *mut *mut ibv_device *mut *mut ibv_context *mut *mut c_void *mut *mut rdma_addrinfo *mut rdma_addrinfo
    *const rdma_addrinfo *mut *mut ibv_buf *mut ibv_buf *mut ibv_wc *mut ibv_grh *mut ibv_ece *mut ibv_comp_cntr
    *mut ibv_comp_cntr_caps *mut ibv_comp_cntr_init_attr *mut ibv_qp_attach_comp_cntr_attr *mut ibv_dmah
    *mut ibv_dmah_init_attr *mut ibv_mr_init_attr *mut rdma_cm_join_mc_attr_ex
}

impl Argument for *mut ibv_context {
    /// A context that librdmacm has opened is adopted at the first call on it.
    unsafe fn adopt(self, _verb: &str) {
        // SAFETY: guaranteed by the caller.
        unsafe { adopt::context(self) };
    }

    unsafe fn leaving(self, verb: &str) -> Option<Leaving> {
        (verb == "ibv_close_device").then(|| Leaving::context(self))
    }
}

impl Argument for *mut ibv_cq {
    unsafe fn leaving(self, verb: &str) -> Option<Leaving> {
        (verb == "ibv_destroy_cq").then(|| Leaving::completion_queue(self))
    }
}

impl Argument for *mut ibv_srq {
    unsafe fn leaving(self, verb: &str) -> Option<Leaving> {
        (verb == "ibv_destroy_srq").then(|| Leaving::shared_queue(self))
    }
}

impl Argument for *mut ibv_qp {
    unsafe fn leaving(self, verb: &str) -> Option<Leaving> {
        // SAFETY: guaranteed by the caller.
        (verb == "ibv_destroy_qp").then(|| unsafe { Leaving::queue_pair(self) })
    }
}

/// Adopts the objects of an identifier after the calls that make its queue pair. After others, they may be gone: a program
/// may destroy the queue pair with `ibv_destroy_qp`, which leaves the pointer, and another thread the identifier, when it
/// gets the event that the call caused.
///
/// # Safety
///
/// `id` is null or live if `verb` makes a queue pair, and `verb` has succeeded.
unsafe fn adopt_identifier(id: *mut rdma_cm_id, verb: &str) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match verb {
            "rdma_create_qp" | "rdma_create_qp_ex" | "rdma_create_ep" | "rdma_get_request" => adopt::identifier(id),
            "rdma_create_srq" | "rdma_create_srq_ex" => adopt::new_shared_queue((*id).srq),
            _ => {}
        }
    }
}

impl Argument for *mut rdma_cm_id {
    unsafe fn adopt(self, verb: &str) {
        // SAFETY: guaranteed by the caller.
        unsafe { adopt_identifier(self, verb) };
    }

    unsafe fn show_pair(self, verb: &str, to: &mut Arguments) {
        if matches!(verb, "rdma_create_qp" | "rdma_create_qp_ex") {
            // SAFETY: guaranteed by the caller; the call has just made the queue pair.
            unsafe { self.as_ref().into_iter().for_each(|id| id.qp.show("qp", to)) };
        }
    }

    unsafe fn leaving(self, verb: &str) -> Option<Leaving> {
        if verb == "rdma_destroy_id" {
            adopt::forget_identifier(self);
        }
        if !matches!(verb, "rdma_destroy_qp" | "rdma_destroy_ep") {
            return None;
        }
        // SAFETY: guaranteed by the caller; the queue pair of a live identifier is live.
        let id = unsafe { self.as_ref() }?;
        // SAFETY: as above. The identifier has the completion queues that were made with its queue pair.
        Some(unsafe { Leaving::queue_pair(id.qp) }.with_queues([id.send_cq, id.recv_cq]))
    }
}

impl Argument for *mut *mut rdma_cm_id {
    unsafe fn adopt(self, verb: &str) {
        // SAFETY: the call has stored a live identifier.
        unsafe { adopt_identifier(*self, verb) };
    }
}

impl Argument for *mut *mut rdma_cm_event {
    unsafe fn adopt(self, _verb: &str) {
        // SAFETY: the call has stored an event, whose identifiers are live until it is acknowledged, and so are their
        // contexts.
        unsafe {
            if let Some(id) = (*self).as_ref().and_then(|event| event.id.as_ref()) {
                adopt::context(id.verbs);
            }
        }
    }
}

/// The functions of one list, and the struct with all of them.
macro_rules! functions {
    ($Table:path, [$($module:ident)::+] $(fn $name:ident ($($arg:ident: $Type:ty),* $(,)?) -> $Result:ty;)*) => {
        use $($module)::+ as library;

        $(
            unsafe extern "C" fn $name($($arg: $Type),*) -> $Result {
                // Some functions are safe in Rust. This constant gives each of them the type that it has in C.
                const FUNCTION: unsafe extern "C" fn($($Type),*) -> $Result = library::$name;
                // SAFETY: the program upholds the contract of the verb.
                unsafe {
                    const COUNT_OF_ARGUMENTS: usize = <[&str]>::len(&[$(stringify!($arg)),*]);
                    let leaving: [Option<Leaving>; COUNT_OF_ARGUMENTS] =
                        [$(Argument::leaving($arg, stringify!($name))),*];
                    let is_kept = std::cell::Cell::new(true);
                    let result = call(
                        stringify!($name),
                        |_to| { $(Show::show($arg, stringify!($arg), _to);)* },
                        || {
                            let result = FUNCTION($($arg),*);
                            is_kept.set(Outcome::failure(result, stringify!($name)).is_some());
                            result
                        },
                        |_to| { $(
                            Argument::adopt($arg, stringify!($name));
                            Show::show_output($arg, stringify!($arg), _to);
                            Argument::show_pair($arg, stringify!($name), _to);
                        )* },
                    );
                    for leaving in leaving.into_iter().flatten() {
                        if is_kept.get() { leaving.stay() } else { leaving.end() }
                    }
                    result
                }
            }
        )*

        /// Each function, and whether it can fail.
        pub(super) const CAN_FAIL: &[(&str, fn() -> bool)] =
            &[$((stringify!($name), || <$Result as Outcome>::failed(stringify!($name), 0).is_some())),*];

        fn table() -> $Table {
            let mut table = <$Table>::default();
            $(table.$name = Some($name);)*
            table
        }
    };
}

mod verbs {
    use super::*;
    ibverbs_functions!(functions, IbverbsTable);

    pub(super) fn all() -> IbverbsTable {
        table()
    }
}

mod verbs_since_v44 {
    use super::*;
    ibverbs_since_v44_functions!(functions, IbverbsSinceV44);

    pub(super) fn all() -> IbverbsSinceV44 {
        table()
    }
}

mod manager {
    use super::*;
    rdmacm_functions!(functions, RdmacmTable);

    pub(super) fn all() -> RdmacmTable {
        table()
    }
}

mod manager_since_v44 {
    use super::*;
    rdmacm_since_v44_functions!(functions, RdmacmSinceV44);

    pub(super) fn all() -> RdmacmSinceV44 {
        table()
    }
}

/// `rdma_get_cm_event`, whose event a fault may change.
unsafe extern "C" fn get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int {
    let get = || {
        // SAFETY: the program upholds the contract of the verb.
        let result = unsafe { rdma_get_cm_event(channel, event) };
        // SAFETY: after a success there is an event, which only this thread has.
        let found = if result == 0 { unsafe { (*event).as_mut() } } else { None };
        if state::on() & FAULTS != 0
            && let Some(found) = found
            && let Some(other) = faults::report(found.event.0)
        {
            if found.event == rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED {
                // SAFETY: the identifier of an event is live until the event is acknowledged.
                unsafe { rdma_disconnect(found.id) };
            }
            faults::trace_report(found.event.0, other);
            found.event = rdma_cm_event_type(other);
            found.status = -libc::ETIMEDOUT;
        }
        result
    };
    // SAFETY: as above.
    unsafe {
        call(
            "rdma_get_cm_event",
            |to| channel.show("channel", to),
            get,
            |to| {
                Argument::adopt(event, "rdma_get_cm_event");
                event.show_output("event", to);
            },
        )
    }
}

/// `ibv_get_cq_event`, whose event may be that of a completion that was held back.
unsafe extern "C" fn get_cq_event(
    channel: *mut ibv_comp_channel,
    cq: *mut *mut ibv_cq,
    cq_context: *mut *mut c_void,
) -> c_int {
    // SAFETY: the program upholds the contract of the verb. After a success, there is an event.
    unsafe {
        call(
            "ibv_get_cq_event",
            |to| {
                channel.show("channel", to);
                cq.show("cq", to);
                cq_context.show("cq_context", to);
            },
            || {
                let result = ibv_get_cq_event(channel, cq, cq_context);
                if result == 0 {
                    held::translate(cq, cq_context);
                }
                result
            },
            |to| {
                cq.show_output("cq", to);
                cq_context.show_output("cq_context", to);
            },
        )
    }
}

/// `ibv_ack_cq_events`, which may acknowledge events of completions that were held back.
unsafe extern "C" fn ack_cq_events(cq: *mut ibv_cq, nevents: c_uint) {
    // SAFETY: the program upholds the contract of the verb.
    unsafe {
        call(
            "ibv_ack_cq_events",
            |to| {
                cq.show("cq", to);
                nevents.show("nevents", to);
            },
            || {
                let left = held::acknowledge(cq, nevents);
                if left > 0 || nevents == 0 {
                    ibv_ack_cq_events(cq, left);
                }
            },
            |_| (),
        );
    }
}

/// `ibv_modify_qp`, whose mask selects the attributes to show.
unsafe extern "C" fn modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int {
    // SAFETY: the program upholds the contract of the verb.
    unsafe {
        call(
            "ibv_modify_qp",
            |to| {
                qp.show("qp", to);
                if let (Some(qp), Some(attr)) = (qp.as_ref(), attr.as_ref()) {
                    push_attributes(attr, attr_mask.cast_unsigned(), qp.state, to);
                    push_source(qp, attr, attr_mask.cast_unsigned(), to);
                }
            },
            || ibv_modify_qp(qp, attr, attr_mask),
            |_| {
                let is_reset = attr_mask.cast_unsigned() & ibv_qp_attr_mask::IBV_QP_STATE.0 != 0
                    && (*attr).qp_state == ibv_qp_state::IBV_QPS_RESET;
                if let Some(pair) = adopt::pair_of(qp).filter(|_| is_reset) {
                    pair.reset();
                }
            },
        )
    }
}

/// Whether a verb of this name can fail; `None` if there is none.
pub(super) fn can_fail(name: &str) -> Option<bool> {
    let lists = [verbs::CAN_FAIL, verbs_since_v44::CAN_FAIL, manager::CAN_FAIL, manager_since_v44::CAN_FAIL];
    let loaded = lists.into_iter().flatten().find(|(known, _)| known.trim_start_matches('_') == name);
    let in_objects = ["ibv_alloc_mw", "ibv_dealloc_mw", "ibv_req_notify_cq"].contains(&name)
        || super::context::EXTENDED.contains(&name);
    loaded.map(|(_, can_fail)| can_fail()).or_else(|| in_objects.then_some(true))
}

/// Appends the GID that the source index of a new path selects, so that the trace of the peer can be compared with it.
///
/// # Safety
///
/// The queue pair is live.
unsafe fn push_source(qp: &ibv_qp, attr: &ibv_qp_attr, mask: u32, to: &mut Arguments) {
    let path = &attr.ah_attr;
    if mask & ibv_qp_attr_mask::IBV_QP_AV.0 == 0 || path.is_global == 0 {
        return;
    }
    let mut found = ibv_gid { raw: [0; 16] };
    // SAFETY: the context of a live queue pair is live.
    let code =
        front::pass(|| unsafe { ibv_query_gid(qp.context, path.port_num, path.grh.sgid_index.into(), &raw mut found) });
    if code == 0 {
        push(to, "sgid", gid(&found));
    }
}

/// The functions of libibverbs. Conversions and queries of a device's name are not calls of a device.
pub(super) fn ibverbs() -> IbverbsTable {
    IbverbsTable {
        ibv_modify_qp: Some(modify_qp),
        ibv_get_cq_event: Some(get_cq_event),
        ibv_ack_cq_events: Some(ack_cq_events),
        ibv_wc_status_str: None,
        ibv_rate_to_mult: None,
        mult_to_ibv_rate: None,
        ibv_rate_to_mbps: None,
        mbps_to_ibv_rate: None,
        ibv_node_type_str: None,
        ibv_port_state_str: None,
        ibv_event_type_str: None,
        ibv_get_device_name: None,
        ibv_get_device_index: None,
        ibv_get_device_guid: None,
        ibv_free_device_list: None,
        ibv_get_sysfs_path: None,
        ibv_read_sysfs_file: None,
        since_v44: verbs_since_v44::all(),
        ..verbs::all()
    }
}

/// The functions of librdmacm.
pub(super) fn rdmacm() -> RdmacmTable {
    RdmacmTable {
        rdma_get_cm_event: Some(get_cm_event),
        rdma_event_str: None,
        rdma_get_src_port: None,
        rdma_get_dst_port: None,
        since_v44: manager_since_v44::all(),
        ..manager::all()
    }
}
