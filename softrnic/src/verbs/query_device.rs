//! The attributes of a device: `struct ibv_device_attr` and its extension.

use std::ffi::{c_char, c_int};
use std::mem::{self, offset_of};
use std::ptr;

use rdma_mummy_sys::{
    ibv_atomic_cap, ibv_context, ibv_cq_moderation_caps, ibv_device_attr, ibv_device_attr_ex, ibv_odp_general_caps,
    ibv_pci_atomic_caps, ibv_pci_atomic_op_size, ibv_qp_type, ibv_query_device_ex_input, ibv_values_ex,
    ibv_values_mask,
};

use super::device::Device;
use super::failure;
use super::kind::Kind;
use super::port::PORT;
use crate::sys::clock;
use crate::sys::errno::Errno;
use crate::wire::limits;

/// Every page size of at least 4 KiB is reported, because the host manages the pages.
const PAGE_SIZES: u64 = 0xffff_ffff_ffff_f000;
/// The frequency of the device's clock in kHz. The clock counts nanoseconds.
const CLOCK: u64 = 1_000_000;

/// Converts a value to a C number. A larger value becomes the largest C number.
fn number(value: u32) -> c_int {
    c_int::try_from(value).unwrap_or(c_int::MAX)
}

pub(super) fn attributes(device: &Device) -> ibv_device_attr {
    let (guid, own) = (device.guid(), device.kind().limits);
    // SAFETY: the struct consists of numbers, for which zero is valid.
    let mut attr: ibv_device_attr = unsafe { mem::zeroed() };
    let version = env!("CARGO_PKG_VERSION").bytes();
    let length = attr.fw_ver.len() - 1;
    for (to, from) in attr.fw_ver.iter_mut().zip(version.take(length)) {
        *to = from as c_char;
    }
    attr.node_guid = guid;
    attr.sys_image_guid = guid;
    attr.max_mr_size = limits::MAX_MR_SIZE;
    attr.page_size_cap = PAGE_SIZES;
    (attr.vendor_id, attr.vendor_part_id) = (own.vendor_id, own.vendor_part_id);
    attr.max_qp = number(limits::MAX_QP);
    attr.max_qp_wr = number(limits::MAX_QP_WR);
    attr.device_cap_flags = own.capabilities;
    attr.max_sge = number(own.max_sge);
    attr.max_sge_rd = number(own.max_sge);
    attr.max_cq = number(limits::MAX_CQ);
    attr.max_cqe = number(limits::MAX_CQE);
    attr.max_mr = number(limits::MAX_MR);
    attr.max_pd = number(limits::MAX_PD);
    attr.max_qp_rd_atom = number(own.max_rd_atomic);
    attr.max_res_rd_atom = number(own.max_rd_atomic.saturating_mul(limits::MAX_QP));
    attr.max_qp_init_rd_atom = number(own.max_rd_atomic);
    // Atomics in host memory are also atomic with respect to the atomic instructions of programs, as IBV_ATOMIC_GLOB
    // promises. But UCX 1.13 uses only the atomics of devices that report IBV_ATOMIC_HCA.
    attr.atomic_cap = ibv_atomic_cap::IBV_ATOMIC_HCA;
    attr.max_mw = number(own.max_mw);
    attr.max_mcast_grp = number(limits::MAX_MCAST_GRP);
    attr.max_mcast_qp_attach = number(limits::MAX_MCAST_QP_ATTACH);
    attr.max_total_mcast_qp_attach = number(limits::MAX_MCAST_GRP.saturating_mul(limits::MAX_MCAST_QP_ATTACH));
    attr.max_ah = number(limits::MAX_AH);
    attr.max_srq = number(limits::MAX_SRQ);
    attr.max_srq_wr = number(own.max_srq_wr);
    attr.max_srq_sge = number(own.max_srq_sge);
    attr.max_pkeys = 1;
    attr.phys_port_cnt = PORT;
    attr
}

fn on_demand_operations(attr: &mut ibv_device_attr_ex, kind: &Kind) {
    attr.odp_caps.general_caps = ibv_odp_general_caps::IBV_ODP_SUPPORT.0.into();
    let transports = &mut attr.odp_caps.per_transport_caps;
    transports.rc_odp_caps = kind.on_demand(ibv_qp_type::IBV_QPT_RC);
    transports.uc_odp_caps = kind.on_demand(ibv_qp_type::IBV_QPT_UC);
    transports.ud_odp_caps = kind.on_demand(ibv_qp_type::IBV_QPT_UD);
    attr.xrc_odp_caps = kind.on_demand(ibv_qp_type::IBV_QPT_XRC_SEND);
}

fn extended_attributes(device: &Device) -> ibv_device_attr_ex {
    // SAFETY: the struct consists of numbers, for which zero is valid.
    let mut attr: ibv_device_attr_ex = unsafe { mem::zeroed() };
    let own = device.kind().limits;
    attr.orig_attr = attributes(device);
    attr.completion_timestamp_mask = u64::MAX;
    attr.hca_core_clock = CLOCK;
    attr.device_cap_flags_ex = u64::from(own.capabilities) | own.more_capabilities;
    // Any values for moderation are accepted.
    attr.cq_mod_caps = ibv_cq_moderation_caps { max_cq_count: u16::MAX, max_cq_period: u16::MAX };
    attr.max_dm_size = own.max_dm_size;
    // The operations that are atomic with respect to those of programs. RDMA has no swap.
    let size = ibv_pci_atomic_op_size::IBV_PCI_ATOMIC_OPERATION_8_BYTE_SIZE_SUP.0 as u16;
    attr.pci_atomic_caps = ibv_pci_atomic_caps { fetch_add: size, swap: 0, compare_swap: size };
    attr.phys_port_cnt_ex = PORT.into();
    on_demand_operations(&mut attr, device.kind());
    attr
}

/// Returns the device of a context.
///
/// # Safety
///
/// The context belongs to this provider and is open.
unsafe fn device_of(context: *mut ibv_context) -> &'static Device {
    // SAFETY: guaranteed by the caller; the device belongs to this provider.
    unsafe { Device::of((*context).device) }
}

pub(crate) unsafe extern "C" fn query_device(context: *mut ibv_context, device_attr: *mut ibv_device_attr) -> c_int {
    // SAFETY: the context belongs to this provider, and the program provides space for the attributes.
    unsafe { device_attr.write(attributes(device_of(context))) };
    0
}

/// Writes as many attributes as the program's struct has space for, but at least the basic ones.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    attr_size: usize,
) -> c_int {
    // SAFETY: the input is null or readable.
    let asks_more = !input.is_null() && unsafe { (*input).comp_mask } != 0;
    if asks_more || attr_size < offset_of!(ibv_device_attr_ex, comp_mask) {
        return failure::code(Errno::INVALID);
    }
    let length = attr_size.min(size_of::<ibv_device_attr_ex>());
    // SAFETY: the context belongs to this provider, and the program provides space for `length` bytes.
    unsafe {
        let full = extended_attributes(device_of(context));
        attr.cast::<u8>().copy_from_nonoverlapping(ptr::from_ref(&full).cast(), length);
    }
    0
}

/// `ibv_query_rt_values_ex(context, values)`: the value of the clock is in `tv_nsec` alone, which may exceed a second.
pub(crate) unsafe extern "C" fn query_rt_values(_context: *mut ibv_context, values: *mut ibv_values_ex) -> c_int {
    const RAW_CLOCK: u32 = ibv_values_mask::IBV_VALUES_MASK_RAW_CLOCK.0;
    // SAFETY: the program provides space for the values, and has written the mask.
    let values = unsafe { &mut *values };
    values.comp_mask &= RAW_CLOCK;
    if values.comp_mask != 0 {
        (values.raw_clock.tv_sec, values.raw_clock.tv_nsec) = (0, clock::device() as _);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reported_limits_are_the_enforced_ones() {
        let device = Device::new("soft0", 0, false, None);
        let attr = attributes(&device);
        assert_eq!((attr.node_guid, attr.sys_image_guid), (device.guid(), device.guid()));
        assert_eq!(attr.max_qp_wr, limits::MAX_QP_WR as c_int);
        assert_eq!(attr.max_cqe, limits::MAX_CQE as c_int);
        assert_eq!(attr.phys_port_cnt, 1);
        assert_eq!(number(u32::MAX), c_int::MAX);
        // All limits fit into a C number.
        for limit in [attr.max_qp, attr.max_sge, attr.max_mr, attr.max_res_rd_atom, attr.max_total_mcast_qp_attach] {
            assert!((1..c_int::MAX).contains(&limit), "{limit}");
        }
        assert_eq!(attr.fw_ver[env!("CARGO_PKG_VERSION").len()], 0);
    }

    #[test]
    fn query_writes_only_the_programs_size() {
        let device = Box::new(Device::new("soft0", 0, false, None));
        // SAFETY: the type has only numbers and nullable pointers, for which zero is valid.
        let mut context: ibv_context = unsafe { mem::zeroed() };
        context.device = device.as_c();
        let context = &raw mut context;
        let old = offset_of!(ibv_device_attr_ex, comp_mask);
        // SAFETY: as above; the context has a device, and the attributes have space for the request.
        unsafe {
            let mut attr: ibv_device_attr_ex = mem::zeroed();
            attr.hca_core_clock = 5;
            let ask = |mask, size, attr: &mut ibv_device_attr_ex| {
                query_device_ex(context, &ibv_query_device_ex_input { comp_mask: mask }, attr, size)
            };
            assert_eq!(ask(0, old - 1, &mut attr), libc::EINVAL);
            assert_eq!(ask(1, size_of::<ibv_device_attr_ex>(), &mut attr), libc::EINVAL);
            assert_eq!(ask(0, old, &mut attr), 0);
            assert_eq!((attr.orig_attr.node_guid, attr.hca_core_clock), (device.guid(), 5));
            assert_eq!(ask(0, size_of::<ibv_device_attr_ex>(), &mut attr), 0);
            assert_eq!((attr.hca_core_clock, attr.completion_timestamp_mask), (1_000_000, u64::MAX));
            assert_eq!(attr.device_cap_flags_ex, u64::from(attr.orig_attr.device_cap_flags) | 0x140_0000_0000);
            assert_eq!(query_device_ex(context, ptr::null(), &raw mut attr, old), 0);
            let atomics = attr.pci_atomic_caps;
            assert_eq!(attr.orig_attr.atomic_cap, ibv_atomic_cap::IBV_ATOMIC_HCA);
            assert_eq!((atomics.fetch_add, atomics.swap, atomics.compare_swap), (2, 0, 2));
            let mut plain: ibv_device_attr = mem::zeroed();
            assert_eq!(query_device(context, &raw mut plain), 0);
            assert_eq!(plain.max_qp, attr.orig_attr.max_qp);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn clock_advances_and_sets_its_mask() {
        let read = |mask| {
            // SAFETY: the type has only numbers, for which zero is valid.
            let mut values: ibv_values_ex = unsafe { mem::zeroed() };
            values.comp_mask = mask;
            // SAFETY: the values are writable, and the function ignores the context.
            assert_eq!(unsafe { query_rt_values(ptr::null_mut(), &raw mut values) }, 0);
            (values.comp_mask, values.raw_clock.tv_nsec)
        };
        let (mask, first) = read(u32::MAX);
        assert_eq!(mask, 1);
        assert_ne!(first, 0);
        // With 32 bits, the field has the low bits of the clock.
        assert!(cfg!(target_pointer_width = "32") || read(1).1 >= first);
        assert_eq!(read(2), (0, 0));
    }
}
