//! The arguments of a call as names and texts.

use std::ffi::{CStr, c_char, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use rdma_mummy_sys::*;

use crate::names;

/// The arguments of a call, in order.
pub(super) type Arguments = Vec<(String, String)>;

/// A type of an argument.
pub(super) trait Show: Copy {
    /// Appends what the program passes. A pointer to memory that the call fills shows nothing.
    ///
    /// # Safety
    ///
    /// As for the verb: a pointer is null or to a live object, or to memory of the program.
    unsafe fn show(self, name: &str, to: &mut Arguments);

    /// Appends what the call has stored in the memory of the program.
    ///
    /// # Safety
    ///
    /// The call has succeeded, and did not destroy the object.
    unsafe fn show_output(self, _name: &str, _to: &mut Arguments) {}
}

pub(super) fn push(to: &mut Arguments, name: &str, text: impl Into<String>) {
    to.push((name.to_owned(), text.into()));
}

macro_rules! numbers {
    ($($Type:ty)*) => { $(
        impl Show for $Type {
            unsafe fn show(self, name: &str, to: &mut Arguments) {
                let text = match name {
                    "access" => names::access(self as u32),
                    "iova" | "dm_offset" => format!("{self:#x}"),
                    // A mask only selects attributes, which are shown by their names.
                    "attr_mask" | "srq_attr_mask" | "attr_size" | "port_attr_len" | "entry_size" => return,
                    _ => self.to_string(),
                };
                push(to, name, text);
            }
        }
    )* };
}

numbers!(u8 u16 u32 u64 usize i32);

macro_rules! open_enums {
    ($($Type:ty)*) => { $(
        impl Show for $Type {
            unsafe fn show(self, name: &str, to: &mut Arguments) {
                push(to, name, self.0.to_string());
            }
        }
    )* };
}

open_enums!(ibv_wc_status ibv_rate ibv_wr_opcode ibv_node_type ibv_port_state ib_uverbs_advise_mr_advice);

impl Show for rdma_port_space {
    unsafe fn show(self, name: &str, to: &mut Arguments) {
        push(to, name, names::port_space(self.0));
    }
}

impl Show for ibv_event_type {
    unsafe fn show(self, name: &str, to: &mut Arguments) {
        push(to, name, names::event(self.0));
    }
}

impl Show for rdma_cm_event_type {
    unsafe fn show(self, name: &str, to: &mut Arguments) {
        push(to, name, names::cm_event(self.0));
    }
}

/// Objects, which have a short name.
pub(super) trait Named {
    /// # Safety
    ///
    /// `self` is live.
    unsafe fn name_of(&self) -> String;

    /// What the trace shows of a new object beside its name.
    fn details(&self) -> String {
        String::new()
    }
}

macro_rules! named {
    ($($Type:ty: |$object:ident| $name:expr $(, $details:expr)?;)*) => { $(
        impl Named for $Type {
            unsafe fn name_of(&self) -> String {
                let $object = self;
                $name
            }

            $(fn details(&self) -> String {
                let $object = self;
                $details
            })?
        }

        impl Show for *mut $Type {
            unsafe fn show(self, name: &str, to: &mut Arguments) {
                // SAFETY: by contract the pointer is null or to a live object.
                push(to, name, unsafe { name_of(self) });
            }
        }
    )* };
}

/// The name of an object; `NULL` for a null pointer.
///
/// # Safety
///
/// `object` is null or live.
pub(super) unsafe fn name_of<T: Named>(object: *const T) -> String {
    // SAFETY: by contract.
    unsafe { object.as_ref().map_or_else(|| "NULL".to_owned(), |object| object.name_of()) }
}

fn text(bytes: &[c_char]) -> String {
    let bytes: Vec<u8> = bytes.iter().take_while(|&&byte| byte != 0).map(|&byte| byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

named! {
    ibv_device: |device| text(&device.name);
    // SAFETY: the device of a live context is live.
    ibv_context: |context| unsafe { name_of(context.device) };
    ibv_pd: |pd| format!("pd {}", pd.handle);
    ibv_mr: |mr| format!("mr {:#x}", mr.lkey), format!(" rkey {:#x}", mr.rkey);
    ibv_mw: |mw| format!("mw {:#x}", mw.rkey);
    ibv_cq: |cq| format!("cq {}", cq.handle);
    ibv_cq_ex: |cq| format!("cq {}", cq.handle);
    ibv_qp: |qp| format!("qp {:#x}", qp.qp_num);
    ibv_qp_ex: |qp| format!("qp {:#x}", qp.qp_base.qp_num);
    ibv_srq: |srq| format!("srq {}", srq.handle);
    ibv_ah: |ah| format!("ah {}", ah.handle);
    ibv_wq: |wq| format!("wq {:#x}", wq.wq_num);
    ibv_comp_channel: |channel| format!("channel {}", channel.fd);
    rdma_event_channel: |channel| format!("channel {}", channel.fd);
    rdma_cm_id: |id| format!("id {:p}", std::ptr::from_ref(id));
    rdma_cm_event: |event| names::cm_event(event.event.0);
}

/// Objects without a number, shown by their address, and structs that are not decoded.
macro_rules! opaque {
    ($($Type:ty)*) => { $(
        impl Show for *mut $Type {
            unsafe fn show(self, name: &str, to: &mut Arguments) {
                push(to, name, address(self.cast_const()));
            }
        }
    )* };
}

fn address<T>(pointer: *const T) -> String {
    if pointer.is_null() { "NULL".to_owned() } else { format!("{pointer:p}") }
}

opaque! {
    c_void ibv_dm ibv_td ibv_xrcd ibv_flow ibv_counters ibv_rwq_ind_table ibv_buf ibv_dmah ibv_comp_cntr rdma_addrinfo
    ibv_rwq_ind_table_init_attr ibv_wq_init_attr ibv_wq_attr ibv_flow_attr ibv_td_init_attr ibv_parent_domain_init_attr
    ibv_modify_cq_attr ibv_xrcd_init_attr ibv_qp_open_attr ibv_counters_init_attr ibv_qp_rate_limit_attr ibv_wc ibv_grh
    ibv_ece ibv_comp_cntr_init_attr ibv_qp_attach_comp_cntr_attr ibv_dmah_init_attr ibv_mr_init_attr rdma_cm_join_mc_attr_ex
    ibv_sge
}

/// Memory that the call fills, of which the trace shows nothing.
macro_rules! outputs {
    ($($Type:ty)*) => { $(
        impl Show for $Type {
            unsafe fn show(self, _name: &str, _to: &mut Arguments) {}
        }
    )* };
}

// C strings are `*mut i8` or `*mut u8`, by architecture.
outputs! {
    *mut ibv_device_attr *mut _compat_ibv_port_attr *mut ibv_port_attr *mut ibv_device_attr_ex
    *const ibv_query_device_ex_input *mut u64 *mut u32 *mut u16 *mut u8 *mut i32 *mut i8 *mut *mut ibv_device
    *mut *mut ibv_context *mut *mut c_void *mut *mut rdma_addrinfo *mut *mut ibv_buf *const rdma_addrinfo
    *mut ibv_comp_cntr_caps *mut ibv_values_ex
}

impl Show for *const ibv_gid {
    unsafe fn show(self, name: &str, to: &mut Arguments) {
        // SAFETY: by contract the pointer is null or to a GID.
        let gid = unsafe { self.as_ref() }.map_or_else(|| "NULL".to_owned(), gid);
        push(to, name, gid);
    }
}

impl Show for *mut ibv_gid {
    unsafe fn show(self, _name: &str, _to: &mut Arguments) {}

    unsafe fn show_output(self, name: &str, to: &mut Arguments) {
        // SAFETY: the call has stored a GID.
        unsafe { self.as_ref().into_iter().for_each(|found| push(to, name, gid(found))) };
    }
}

impl Show for *mut ibv_gid_entry {
    unsafe fn show(self, _name: &str, _to: &mut Arguments) {}

    unsafe fn show_output(self, name: &str, to: &mut Arguments) {
        // A table may have no entry.
        if name != "entry" {
            return;
        }
        // SAFETY: the call has stored an entry.
        if let Some(entry) = unsafe { self.as_ref() } {
            push(to, "gid", gid(&entry.gid));
            push(to, "gid_type", names::gid_type(entry.gid_type));
        }
    }
}

/// A GID as an IPv6 address.
pub(super) fn gid(gid: &ibv_gid) -> String {
    // SAFETY: all bytes of the union are initialised.
    Ipv6Addr::from(unsafe { gid.raw }).to_string()
}

impl Show for *const c_char {
    unsafe fn show(self, name: &str, to: &mut Arguments) {
        let text = if self.is_null() {
            "NULL".to_owned()
        } else {
            // SAFETY: by contract it is a C string.
            format!("{:?}", unsafe { CStr::from_ptr(self) }.to_string_lossy())
        };
        push(to, name, text);
    }
}

impl Show for *const c_void {
    unsafe fn show(self, name: &str, to: &mut Arguments) {
        push(to, name, address(self));
    }
}

impl Show for *mut libc::sockaddr {
    unsafe fn show(self, name: &str, to: &mut Arguments) {
        // SAFETY: by contract the pointer is null or to an address of the family that it states.
        push(to, name, unsafe { socket_address(self) });
    }
}

/// # Safety
///
/// `address` is null or an address of the family that it states.
pub(super) unsafe fn socket_address(address: *const libc::sockaddr) -> String {
    if address.is_null() {
        return "NULL".to_owned();
    }
    // SAFETY: by contract the address has the size of its family.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).to_string()
            }
            libc::AF_INET6 => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), 0, v6.sin6_scope_id).to_string()
            }
            family => format!("family {family}"),
        }
    }
}

fn push_capabilities(cap: &ibv_qp_cap, to: &mut Arguments) {
    push(to, "max_send_wr", cap.max_send_wr.to_string());
    push(to, "max_recv_wr", cap.max_recv_wr.to_string());
    push(to, "max_send_sge", cap.max_send_sge.to_string());
    push(to, "max_recv_sge", cap.max_recv_sge.to_string());
    push(to, "max_inline_data", cap.max_inline_data.to_string());
}

/// The two structs for a new queue pair start alike.
macro_rules! queue_pair {
    ($($Type:ty)*) => { $(
        impl Show for *mut $Type {
            unsafe fn show(self, _name: &str, to: &mut Arguments) {
                // SAFETY: by contract the pointer is null or to attributes, whose objects are live.
                let Some(attr) = (unsafe { self.as_ref() }) else { return };
                push(to, "type", names::service(attr.qp_type.0));
                // SAFETY: as above.
                unsafe {
                    push(to, "send_cq", name_of(attr.send_cq));
                    push(to, "recv_cq", name_of(attr.recv_cq));
                    if !attr.srq.is_null() {
                        push(to, "srq", name_of(attr.srq));
                    }
                }
                push_capabilities(&attr.cap, to);
                push(to, "sq_sig_all", attr.sq_sig_all.to_string());
            }
        }
    )* };
}

queue_pair!(ibv_qp_init_attr ibv_qp_init_attr_ex);

/// Shown by `Call::attributes`, with the mask.
impl Show for *mut ibv_qp_attr {
    unsafe fn show(self, _name: &str, _to: &mut Arguments) {}
}

/// The attributes that `mask` selects, of a queue pair that is in the state `from`.
pub(super) fn push_attributes(attr: &ibv_qp_attr, mask: u32, from: ibv_qp_state, to: &mut Arguments) {
    let has = |bit: ibv_qp_attr_mask| mask & bit.0 != 0;
    type Mask = ibv_qp_attr_mask;
    if has(Mask::IBV_QP_STATE) {
        push(to, "state", format!("{}→{}", names::state(from.0), names::state(attr.qp_state.0)));
    }
    let mut number = |bit, name: &str, value: u64| {
        if has(bit) {
            push(to, name, value.to_string());
        }
    };
    number(Mask::IBV_QP_PKEY_INDEX, "pkey_index", attr.pkey_index.into());
    number(Mask::IBV_QP_PORT, "port", attr.port_num.into());
    number(Mask::IBV_QP_RQ_PSN, "rq_psn", attr.rq_psn.into());
    number(Mask::IBV_QP_SQ_PSN, "sq_psn", attr.sq_psn.into());
    number(Mask::IBV_QP_TIMEOUT, "timeout", attr.timeout.into());
    number(Mask::IBV_QP_RETRY_CNT, "retry_cnt", attr.retry_cnt.into());
    number(Mask::IBV_QP_RNR_RETRY, "rnr_retry", attr.rnr_retry.into());
    number(Mask::IBV_QP_MIN_RNR_TIMER, "min_rnr_timer", attr.min_rnr_timer.into());
    number(Mask::IBV_QP_MAX_QP_RD_ATOMIC, "max_rd_atomic", attr.max_rd_atomic.into());
    number(Mask::IBV_QP_MAX_DEST_RD_ATOMIC, "max_dest_rd_atomic", attr.max_dest_rd_atomic.into());
    if has(Mask::IBV_QP_ACCESS_FLAGS) {
        push(to, "access", names::access(attr.qp_access_flags));
    }
    if has(Mask::IBV_QP_QKEY) {
        push(to, "qkey", format!("{:#x}", attr.qkey));
    }
    if has(Mask::IBV_QP_PATH_MTU) {
        push(to, "path_mtu", names::mtu(attr.path_mtu.0));
    }
    if has(Mask::IBV_QP_DEST_QPN) {
        push(to, "dest_qp", format!("{:#x}", attr.dest_qp_num));
    }
    if has(Mask::IBV_QP_AV) {
        push_path(&attr.ah_attr, to);
    }
}

fn push_path(attr: &ibv_ah_attr, to: &mut Arguments) {
    if attr.is_global != 0 {
        push(to, "dgid", gid(&attr.grh.dgid));
        push(to, "sgid_index", attr.grh.sgid_index.to_string());
        push(to, "hop_limit", attr.grh.hop_limit.to_string());
    } else {
        push(to, "dlid", attr.dlid.to_string());
    }
}

impl Show for *mut ibv_ah_attr {
    unsafe fn show(self, _name: &str, to: &mut Arguments) {
        // SAFETY: by contract the pointer is null or to attributes.
        if let Some(attr) = unsafe { self.as_ref() } {
            push_path(attr, to);
        }
    }
}

impl Show for *mut ibv_cq_init_attr_ex {
    unsafe fn show(self, _name: &str, to: &mut Arguments) {
        // SAFETY: by contract the pointer is null or to attributes, whose channel is live.
        let Some(attr) = (unsafe { self.as_ref() }) else { return };
        push(to, "cqe", attr.cqe.to_string());
        // SAFETY: as above.
        push(to, "channel", unsafe { name_of(attr.channel) });
        push(to, "wc_flags", format!("{:#x}", attr.wc_flags));
    }
}

macro_rules! with_size {
    ($($Type:ty: |$attr:ident, $to:ident| $body:block)*) => { $(
        impl Show for *mut $Type {
            unsafe fn show(self, _name: &str, $to: &mut Arguments) {
                // SAFETY: by contract the pointer is null or to attributes.
                let Some($attr) = (unsafe { self.as_ref() }) else { return };
                $body
            }
        }
    )* };
}

with_size! {
    ibv_srq_init_attr: |attr, to| {
        push(to, "max_wr", attr.attr.max_wr.to_string());
        push(to, "max_sge", attr.attr.max_sge.to_string());
    }
    ibv_srq_init_attr_ex: |attr, to| {
        push(to, "max_wr", attr.attr.max_wr.to_string());
        push(to, "max_sge", attr.attr.max_sge.to_string());
    }
    ibv_srq_attr: |attr, to| {
        push(to, "max_wr", attr.max_wr.to_string());
        push(to, "srq_limit", attr.srq_limit.to_string());
    }
    ibv_alloc_dm_attr: |attr, to| {
        push(to, "length", attr.length.to_string());
    }
    rdma_conn_param: |attr, to| {
        push(to, "private_data_len", attr.private_data_len.to_string());
        push(to, "responder_resources", attr.responder_resources.to_string());
        push(to, "initiator_depth", attr.initiator_depth.to_string());
        push(to, "retry_count", attr.retry_count.to_string());
        push(to, "rnr_retry_count", attr.rnr_retry_count.to_string());
    }
}

impl Show for *mut ibv_async_event {
    unsafe fn show(self, _name: &str, _to: &mut Arguments) {}

    unsafe fn show_output(self, name: &str, to: &mut Arguments) {
        type Event = ibv_event_type;
        // SAFETY: the call has filled the event, whose type selects the object, which is live.
        unsafe {
            let event = &*self;
            push(to, name, names::event(event.event_type.0));
            match event.event_type {
                Event::IBV_EVENT_QP_FATAL
                | Event::IBV_EVENT_QP_REQ_ERR
                | Event::IBV_EVENT_QP_ACCESS_ERR
                | Event::IBV_EVENT_COMM_EST
                | Event::IBV_EVENT_QP_LAST_WQE_REACHED => push(to, "qp", name_of(event.element.qp)),
                Event::IBV_EVENT_CQ_ERR => push(to, "cq", name_of(event.element.cq)),
                Event::IBV_EVENT_SRQ_ERR | Event::IBV_EVENT_SRQ_LIMIT_REACHED => {
                    push(to, "srq", name_of(event.element.srq));
                }
                Event::IBV_EVENT_PORT_ACTIVE | Event::IBV_EVENT_PORT_ERR => {
                    push(to, "port", event.element.port_num.to_string());
                }
                _ => {}
            }
        }
    }
}

impl Show for *mut *mut rdma_cm_event {
    unsafe fn show(self, _name: &str, _to: &mut Arguments) {}

    unsafe fn show_output(self, name: &str, to: &mut Arguments) {
        // SAFETY: the call has stored an event, whose identifier is live until it is acknowledged.
        unsafe {
            let Some(event) = (*self).as_ref() else { return };
            push(to, name, names::cm_event(event.event.0));
            push(to, "status", event.status.to_string());
            push(to, "id", name_of(event.id));
            let has_peer = matches!(
                event.event,
                rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST
                    | rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_RESPONSE
                    | rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED
            );
            let is_datagram = event.id.as_ref().is_none_or(|id| id.ps == rdma_port_space::RDMA_PS_UDP);
            if has_peer && !is_datagram && event.param.conn.qp_num != 0 {
                push(to, "dest_qp", format!("{:#x}", event.param.conn.qp_num));
            }
        }
    }
}

impl Show for *mut *mut rdma_cm_id {
    unsafe fn show(self, _name: &str, _to: &mut Arguments) {}

    unsafe fn show_output(self, name: &str, to: &mut Arguments) {
        // SAFETY: the call has stored an identifier.
        push(to, name, unsafe { name_of(*self) });
    }
}

impl Show for *mut *mut ibv_cq {
    unsafe fn show(self, _name: &str, _to: &mut Arguments) {}

    unsafe fn show_output(self, name: &str, to: &mut Arguments) {
        // SAFETY: the call has stored a queue, which is live until its events are acknowledged.
        push(to, name, unsafe { name_of(*self) });
    }
}
