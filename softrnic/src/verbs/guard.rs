//! Checks whether the process was forked. In a child, a verb on an object of the parent fails with `EIO` and does not
//! access the object. A child can neither use nor destroy its parent's objects. Verbs that require the device also fail
//! with `EIO` after it was removed; the program can still destroy its objects.
//!
//! `table` contains the functions of this file. Each of them checks the object and then calls the function of the same
//! name. The functions whose pointers are in QPs, completion queues and device memory call [`is_inherited`] themselves.
//! The functions of an extended completion queue check only when a poll begins, because a poll that began before a fork
//! continues only in the parent.

use std::ffi::{c_int, c_uint, c_void};

use rdma_mummy_sys::program::Held;
use rdma_mummy_sys::since_v44::{ibv_buf, ibv_mr_init_attr};
use rdma_mummy_sys::*;

use super::context::{is_inherited, is_unusable};
use super::failure::{code, minus_one, null};
use crate::sys::errno::Errno;

/// A C object with a context.
trait Owned {
    /// Returns the context.
    ///
    /// # Safety
    ///
    /// The object is alive.
    unsafe fn context(self) -> *mut ibv_context;
}

impl Owned for *mut ibv_context {
    #[inline]
    unsafe fn context(self) -> *mut ibv_context {
        self
    }
}

macro_rules! owned {
    ($($Object:ty)*) => {$(
        impl Owned for *mut $Object {
            #[inline]
            unsafe fn context(self) -> *mut ibv_context {
                // SAFETY: guaranteed by the caller.
                unsafe { (*self).context }
            }
        }
    )*};
}

owned! { ibv_ah ibv_comp_channel ibv_cq ibv_dm ibv_mr ibv_mw ibv_pd ibv_qp ibv_srq ibv_td ibv_xrcd }

fn nothing(_errno: Errno) {}

fn zero(_errno: Errno) -> c_int {
    0
}

fn negative(errno: Errno) -> isize {
    -(code(errno) as isize)
}

/// Declares the functions that check an object, each with the value that it returns on failure, the value that each has
/// while it runs, and the check.
macro_rules! guarded {
    ($hold:expr, $is_refused:ident; $($fail:ident: $module:ident::$name:ident($first:ident: $First:ty $(, $arg:ident: $Arg:ty)*) $(-> $Return:ty)?;)*) => {$(
        #[inline]
        pub(super) unsafe extern "C" fn $name($first: $First $(, $arg: $Arg)*) $(-> $Return)? {
            // SAFETY: guaranteed by the caller: the object is alive.
            if unsafe { $is_refused($first.context()) } {
                return $fail(Errno::IO);
            }
            let _held = $hold;
            // SAFETY: guaranteed by the caller.
            unsafe { super::$module::$name($first $(, $arg)*) }
        }
    )*};
}

// These wait for events.
guarded! { (), is_inherited;
    minus_one: async_event_verbs::get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int;
    minus_one: completion_event::get_cq_event(channel: *mut ibv_comp_channel, cq: *mut *mut ibv_cq, cq_context: *mut *mut c_void) -> c_int;
}

// These work on the memory of the process, destroy an object, or leave a group.
guarded! { Held::new(), is_inherited;
    minus_one: context::close_device(context: *mut ibv_context) -> c_int;
    code: protection_domain::dealloc_pd(pd: *mut ibv_pd) -> c_int;
    nothing: protection_domain::unimport_pd(pd: *mut ibv_pd);
    nothing: import::unimport_mr(mr: *mut ibv_mr);
    nothing: import::unimport_dm(dm: *mut ibv_dm);
    code: memory_region::dereg_mr(mr: *mut ibv_mr) -> c_int;
    code: completion_channel::destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    nothing: completion_event::ack_cq_events(cq: *mut ibv_cq, nevents: c_uint);
    code: completion_queue::destroy_cq(cq: *mut ibv_cq) -> c_int;
    code: shared_receive_queue::destroy_srq(srq: *mut ibv_srq) -> c_int;
    null: queue_pair::qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex;
    zero: queue_pair::query_qp_data_in_order(qp: *mut ibv_qp, op: ibv_wr_opcode, flags: u32) -> c_int;
    code: queue_pair::destroy_qp(qp: *mut ibv_qp) -> c_int;
    code: address_handle::destroy_ah(ah: *mut ibv_ah) -> c_int;
    code: multicast::detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    code: thread_domain::dealloc_td(td: *mut ibv_td) -> c_int;
    code: device_memory::free_dm(dm: *mut ibv_dm) -> c_int;
    code: memory_window::dealloc_mw(mw: *mut ibv_mw) -> c_int;
    code: queue_pair::bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, mw_bind: *mut ibv_mw_bind) -> c_int;
    minus_one: completion_queue::poll_cq(cq: *mut ibv_cq, num_entries: c_int, wc: *mut ibv_wc) -> c_int;
    code: completion_queue::req_notify_cq(cq: *mut ibv_cq, solicited_only: c_int) -> c_int;
    code: xrc_domain::close_xrcd(xrcd: *mut ibv_xrcd) -> c_int;
}

// These require the device.
guarded! { Held::new(), is_unusable;
    code: query_device::query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int;
    code: port::query_port_compat(context: *mut ibv_context, port_num: u8, port_attr: *mut _compat_ibv_port_attr) -> c_int;
    minus_one: gid::query_gid(context: *mut ibv_context, port_num: u8, index: c_int, gid: *mut ibv_gid) -> c_int;
    code: gid::query_gid_ex(context: *mut ibv_context, port_num: u32, gid_index: u32, entry: *mut ibv_gid_entry, flags: u32, entry_size: usize) -> c_int;
    negative: gid::query_gid_table(context: *mut ibv_context, entries: *mut ibv_gid_entry, max_entries: usize, flags: u32, entry_size: usize) -> isize;
    minus_one: gid::query_gid_type(context: *mut ibv_context, port_num: u8, index: c_uint, gid_type: *mut c_uint) -> c_int;
    minus_one: port::query_pkey(context: *mut ibv_context, port_num: u8, index: c_int, pkey: *mut u16) -> c_int;
    minus_one: port::get_pkey_index(context: *mut ibv_context, port_num: u8, pkey: u16) -> c_int;
    null: protection_domain::alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    null: protection_domain::import_pd(context: *mut ibv_context, pd_handle: u32) -> *mut ibv_pd;
    null: import::import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr;
    null: import::import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm;
    null: memory_region::reg_mr(pd: *mut ibv_pd, address: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    null: memory_region::reg_mr_iova(pd: *mut ibv_pd, address: *mut c_void, length: usize, iova: u64, access: c_int) -> *mut ibv_mr;
    null: memory_region::reg_mr_iova2(pd: *mut ibv_pd, address: *mut c_void, length: usize, iova: u64, access: c_uint) -> *mut ibv_mr;
    null: memory_region::reg_dmabuf_mr(pd: *mut ibv_pd, offset: u64, length: usize, iova: u64, descriptor: c_int, access: c_int) -> *mut ibv_mr;
    null: buffer::reg_mr_ex(pd: *mut ibv_pd, attr: *mut ibv_mr_init_attr) -> *mut ibv_mr;
    null: buffer::alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut ibv_buf) -> *mut c_void;
    null: buffer::reg_buf_mr(pd: *mut ibv_pd, buf: *mut ibv_buf, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr;
    minus_one: memory_region::rereg_mr(mr: *mut ibv_mr, flags: c_int, pd: *mut ibv_pd, address: *mut c_void, length: usize, access: c_int) -> c_int;
    null: completion_channel::create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    null: completion_queue::create_cq(context: *mut ibv_context, cqe: c_int, cq_context: *mut c_void, channel: *mut ibv_comp_channel, comp_vector: c_int) -> *mut ibv_cq;
    code: completion_queue::resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int;
    null: shared_receive_queue::create_srq(pd: *mut ibv_pd, init: *mut ibv_srq_init_attr) -> *mut ibv_srq;
    code: shared_receive_queue::modify_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr, mask: c_int) -> c_int;
    code: shared_receive_queue::query_srq(srq: *mut ibv_srq, attr: *mut ibv_srq_attr) -> c_int;
    null: queue_pair::create_qp(pd: *mut ibv_pd, init: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    code: queue_pair::modify_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int) -> c_int;
    code: queue_pair::query_qp(qp: *mut ibv_qp, attr: *mut ibv_qp_attr, attr_mask: c_int, init_attr: *mut ibv_qp_init_attr) -> c_int;
    null: address_handle::create_ah(pd: *mut ibv_pd, attr: *mut ibv_ah_attr) -> *mut ibv_ah;
    minus_one: address_handle::init_ah_from_wc(context: *mut ibv_context, port_num: u8, wc: *mut ibv_wc, grh: *mut ibv_grh, attr: *mut ibv_ah_attr) -> c_int;
    null: address_handle::create_ah_from_wc(pd: *mut ibv_pd, wc: *mut ibv_wc, grh: *mut ibv_grh, port_num: u8) -> *mut ibv_ah;
    code: address_handle::resolve_eth_l2_from_gid(context: *mut ibv_context, attr: *mut ibv_ah_attr, mac: *mut u8, vlan: *mut u16) -> c_int;
    code: multicast::attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    code: port::query_port_speed(context: *mut ibv_context, port_num: u32, port_speed: *mut u64) -> c_int;
    code: port::query_port(context: *mut ibv_context, port_num: u8, port_attr: *mut ibv_port_attr, port_attr_len: usize) -> c_int;
    code: query_device::query_device_ex(context: *mut ibv_context, input: *const ibv_query_device_ex_input, attr: *mut ibv_device_attr_ex, attr_size: usize) -> c_int;
    code: query_device::query_rt_values(context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int;
    null: thread_domain::alloc_td(context: *mut ibv_context, init_attr: *mut ibv_td_init_attr) -> *mut ibv_td;
    null: protection_domain::alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd;
    null: memory_region::alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr;
    code: memory_region::advise_mr(pd: *mut ibv_pd, advice: ib_uverbs_advise_mr_advice, flags: u32, sg_list: *mut ibv_sge, num_sge: u32) -> c_int;
    null: device_memory::alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm;
    null: device_memory::reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, offset: u64, length: usize, access: c_uint) -> *mut ibv_mr;
    null: memory_window::alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw;
    null: queue_pair::create_qp_ex(context: *mut ibv_context, init: *mut ibv_qp_init_attr_ex) -> *mut ibv_qp;
    null: queue_pair::open_qp(context: *mut ibv_context, attr: *mut ibv_qp_open_attr) -> *mut ibv_qp;
    null: completion_queue::create_cq_ex(context: *mut ibv_context, attr: *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex;
    code: completion_queue::modify_cq(cq: *mut ibv_cq, attr: *mut ibv_modify_cq_attr) -> c_int;
    null: shared_receive_queue::create_srq_ex(context: *mut ibv_context, init: *mut ibv_srq_init_attr_ex) -> *mut ibv_srq;
    code: shared_receive_queue::get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int;
    null: xrc_domain::open_xrcd(context: *mut ibv_context, init: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd;
}

/// Declares the functions that post lists of requests. On failure, they post no request.
macro_rules! guarded_lists {
    ($($module:ident::$name:ident($Object:ty, $Request:ty);)*) => {$(
        #[inline]
        pub(super) unsafe extern "C" fn $name(
            object: *mut $Object,
            wr: *mut $Request,
            bad_wr: *mut *mut $Request,
        ) -> c_int {
            // SAFETY: guaranteed by the caller: the object is alive, and `bad_wr` is writable.
            unsafe {
                if is_inherited(object.context()) {
                    bad_wr.write(wr);
                    return code(Errno::IO);
                }
            }
            // SAFETY: guaranteed by the caller.
            unsafe { super::$module::$name(object, wr, bad_wr) }
        }
    )*};
}

guarded_lists! {
    queue_pair::post_send(ibv_qp, ibv_send_wr);
    queue_pair::post_recv(ibv_qp, ibv_recv_wr);
    shared_receive_queue::post_srq_recv(ibv_srq, ibv_recv_wr);
}
