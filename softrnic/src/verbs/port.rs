//! The only port of a device.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use rdma_mummy_sys::{
    _compat_ibv_port_attr, IBV_LINK_LAYER_ETHERNET, ibv_context, ibv_mtu, ibv_port_attr, ibv_port_state,
};

use super::failure;
use super::gid;
use super::kind::Kind;
use crate::net::roce::socket;
use crate::sys::errno::Errno;
use crate::wire::condition::Condition;
use crate::wire::limits;
use crate::wire::transport::Fabric;

/// The path MTU of an interface with an unknown MTU: the one of Ethernet.
const SMALL_MTU: u32 = 1024;
/// The port number.
pub(crate) const PORT: u8 = 1;
/// The only partition key: the default partition with full membership.
pub(crate) const PKEY: u16 = 0xffff;
/// The reported speed in units of 100 Mbit/s. It is that of four lanes of 25 Gbit/s, but it does not limit the device.
pub(super) const SPEED: u64 = 1000;
/// The code for four lanes.
const WIDTH_4X: u8 = 2;
/// The code for 25 Gbit/s per lane.
const SPEED_EDR: u8 = 32;
const LINK_UP: u8 = 5;
/// The physical state that the kernel reports for an Ethernet port without a link.
const DISABLED: u8 = 3;

// The reported MTU must equal the MTU that limits datagrams and by which QPs count packets.
const _: () = assert!(limits::MTU == 4096);

/// Returns the path MTU of a device in bytes. On a network, it is that of the interface with the first GID.
pub(super) fn mtu(kind: &Kind) -> u32 {
    match kind.fabric {
        Fabric::Roce => {
            let interface = gid::by_index(0).and_then(|gid| socket::mtu(gid).ok());
            interface.map_or(SMALL_MTU, |mtu| socket::path_mtu(mtu, socket::HEADERS))
        }
        Fabric::Host | Fabric::Iwarp => 128 << kind.limits.active_mtu.0,
    }
}

pub(super) fn attributes(kind: &Kind, is_down: bool) -> ibv_port_attr {
    // The codes of the MTUs are the logarithms of 256, 512 and so on, plus one.
    let active_mtu = ibv_mtu(mtu(kind).ilog2() - 7);
    ibv_port_attr {
        state: if is_down { ibv_port_state::IBV_PORT_DOWN } else { ibv_port_state::IBV_PORT_ACTIVE },
        max_mtu: ibv_mtu::IBV_MTU_4096,
        active_mtu,
        gid_tbl_len: kind.gids as c_int,
        port_cap_flags: kind.port_capabilities,
        max_msg_sz: kind.limits.max_msg_size,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        max_vl_num: 1,
        sm_sl: 0,
        subnet_timeout: 0,
        init_type_reply: 0,
        active_width: WIDTH_4X,
        active_speed: SPEED_EDR,
        phys_state: if is_down { DISABLED } else { LINK_UP },
        link_layer: IBV_LINK_LAYER_ETHERNET as u8,
        flags: kind.port_flags,
        port_cap_flags2: 0,
    }
}

/// The function in the extended context. `port_attr_len` is the size of the program's struct.
pub(crate) unsafe extern "C" fn query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
    port_attr_len: usize,
) -> c_int {
    if port_num != PORT {
        return failure::code(Errno::INVALID);
    }
    let length = port_attr_len.min(size_of::<ibv_port_attr>());
    // SAFETY: the context is null in tests, or belongs to this provider; the program provides space for `length` bytes.
    unsafe {
        let attributes = attributes(Kind::of(context), Condition::of(context).is_down());
        port_attr.cast::<u8>().copy_from_nonoverlapping(ptr::from_ref(&attributes).cast(), length);
    }
    0
}

/// The function of the library. Its C struct ends before the second capability flags.
pub(crate) unsafe extern "C" fn query_port_compat(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the program provides space for these fields.
    unsafe { query_port(context, port_num, port_attr.cast(), offset_of!(ibv_port_attr, port_cap_flags2)) }
}

pub(crate) unsafe extern "C" fn query_port_speed(
    _context: *mut ibv_context,
    port_num: u32,
    port_speed: *mut u64,
) -> c_int {
    if port_num != u32::from(PORT) {
        return failure::code(Errno::INVALID);
    }
    // SAFETY: the program provides space for a number.
    unsafe { port_speed.write(SPEED) };
    0
}

pub(crate) unsafe extern "C" fn query_pkey(
    _context: *mut ibv_context,
    port_num: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    if port_num != PORT || index != 0 {
        return failure::minus_one(Errno::INVALID);
    }
    // SAFETY: the program provides space for a key.
    unsafe { pkey.write(PKEY.to_be()) };
    0
}

pub(crate) unsafe extern "C" fn get_pkey_index(_context: *mut ibv_context, port_num: u8, pkey: u16) -> c_int {
    if port_num != PORT || u16::from_be(pkey) != PKEY {
        return failure::minus_one(Errno::INVALID);
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_CONTEXT: *mut ibv_context = ptr::null_mut();

    #[test]
    fn query_port_writes_only_the_programs_size() {
        let mut buffer = [0xa5_u8; 64];
        let short = offset_of!(ibv_port_attr, port_cap_flags2);
        // SAFETY: the buffer is larger than the given size, and the functions ignore the context.
        unsafe {
            assert_eq!(query_port(NO_CONTEXT, PORT, buffer.as_mut_ptr().cast(), 8), 0);
            assert_eq!(buffer[..9], [4, 0, 0, 0, 5, 0, 0, 0, 0xa5]);
            assert_eq!(query_port_compat(NO_CONTEXT, PORT, buffer.as_mut_ptr().cast()), 0);
            assert_eq!(buffer[short - 2..=short], [2, 1, 0xa5]);
            assert_eq!(query_port(NO_CONTEXT, PORT, buffer.as_mut_ptr().cast(), 64), 0);
            let size = size_of::<ibv_port_attr>();
            assert_eq!((&buffer[short..short + 2], buffer[size]), (&[0, 0][..], 0xa5));
            for port in [0, 2] {
                assert_eq!(query_port(NO_CONTEXT, port, buffer.as_mut_ptr().cast(), 64), libc::EINVAL);
            }
        }
    }

    #[test]
    fn there_is_one_partition() {
        let mut pkey = 0;
        // SAFETY: the key is writable, and the functions ignore the context.
        unsafe {
            assert_eq!(query_pkey(NO_CONTEXT, PORT, 0, &raw mut pkey), 0);
            assert_eq!(pkey, 0xffff);
            for (port, index) in [(0, 0), (2, 0), (PORT, 1), (PORT, -1)] {
                assert_eq!(query_pkey(NO_CONTEXT, port, index, &raw mut pkey), -1);
            }
            assert_eq!(get_pkey_index(NO_CONTEXT, PORT, 0xffff), 0);
            assert_eq!(get_pkey_index(NO_CONTEXT, PORT, 0x7fff_u16.to_be()), -1);
        }
    }

    #[test]
    fn speed_is_the_sum_of_the_lanes() {
        let mut speed = 0;
        // SAFETY: the number is writable, and the functions ignore the context.
        unsafe {
            assert_eq!(query_port_speed(NO_CONTEXT, 1, &raw mut speed), 0);
            assert_eq!(query_port_speed(NO_CONTEXT, 2, &raw mut speed), libc::EINVAL);
        }
        let attributes = attributes(Kind::named("soft0", None), false);
        // Four lanes of 25 Gbit/s.
        assert_eq!((attributes.active_width, attributes.active_speed, speed), (2, 32, 4 * 250));
    }
}
