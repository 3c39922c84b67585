//! The one port of a device.

use std::ffi::c_int;
use std::mem::offset_of;
use std::ptr;

use rdma_mummy_sys::{
    _compat_ibv_port_attr, IBV_LINK_LAYER_ETHERNET, ib_uverbs_query_port_flags, ibv_context, ibv_mtu, ibv_port_attr,
    ibv_port_cap_flags, ibv_port_state,
};

use super::failure;
use super::gid::TABLE_LENGTH;
use crate::sys::errno::Errno;
use crate::wire::limits;

/// Its number.
pub(crate) const PORT: u8 = 1;
/// The only partition key, of the default partition with full membership.
pub(crate) const PKEY: u16 = 0xffff;
/// In units of 100 Mbit/s: what the width and the speed below amount to.
const SPEED: u64 = 1000;
/// Four lanes.
const WIDTH_4X: u8 = 2;
/// 25 Gbit/s each.
const SPEED_EDR: u8 = 32;
const LINK_UP: u8 = 5;

// The MTU by which queue pairs count packets, and which bounds datagrams, is the one that is reported.
const _: () = assert!(limits::MTU == 4096);

fn attributes() -> ibv_port_attr {
    ibv_port_attr {
        state: ibv_port_state::IBV_PORT_ACTIVE,
        max_mtu: ibv_mtu::IBV_MTU_4096,
        active_mtu: ibv_mtu::IBV_MTU_4096,
        gid_tbl_len: TABLE_LENGTH as c_int,
        port_cap_flags: ibv_port_cap_flags::IBV_PORT_IP_BASED_GIDS.0,
        max_msg_sz: limits::MAX_MSG_SIZE,
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
        phys_state: LINK_UP,
        link_layer: IBV_LINK_LAYER_ETHERNET as u8,
        flags: ib_uverbs_query_port_flags::IB_UVERBS_QPF_GRH_REQUIRED.0 as u8,
        port_cap_flags2: 0,
    }
}

/// The operation of the extended context, which is told how much the program has room for.
pub(crate) unsafe extern "C" fn query_port(
    _context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
    port_attr_len: usize,
) -> c_int {
    if port_num != PORT {
        return failure::code(Errno::INVALID);
    }
    let length = port_attr_len.min(size_of::<ibv_port_attr>());
    // SAFETY: the program has room for so many bytes.
    unsafe { port_attr.cast::<u8>().copy_from_nonoverlapping(ptr::from_ref(&attributes()).cast(), length) };
    0
}

/// The function of the library, which knows the fields before the second capability flags alone.
pub(crate) unsafe extern "C" fn query_port_compat(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut _compat_ibv_port_attr,
) -> c_int {
    // SAFETY: the program has room for these fields.
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
    // SAFETY: the program has room for a number.
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
    // SAFETY: the program has room for a key.
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

    const NOBODY: *mut ibv_context = ptr::null_mut();

    #[test]
    fn no_more_is_written_than_the_program_has_room_for() {
        let mut room = [0xa5_u8; 64];
        let short = offset_of!(ibv_port_attr, port_cap_flags2);
        // SAFETY: the room is larger than what is told, and no function looks at the context.
        unsafe {
            assert_eq!(query_port(NOBODY, PORT, room.as_mut_ptr().cast(), 8), 0);
            assert_eq!(room[..9], [4, 0, 0, 0, 5, 0, 0, 0, 0xa5]);
            assert_eq!(query_port_compat(NOBODY, PORT, room.as_mut_ptr().cast()), 0);
            assert_eq!(room[short - 2..=short], [2, 1, 0xa5]);
            assert_eq!(query_port(NOBODY, PORT, room.as_mut_ptr().cast(), 64), 0);
            let size = size_of::<ibv_port_attr>();
            assert_eq!((&room[short..short + 2], room[size]), (&[0, 0][..], 0xa5));
            for port in [0, 2] {
                assert_eq!(query_port(NOBODY, port, room.as_mut_ptr().cast(), 64), libc::EINVAL);
            }
        }
    }

    #[test]
    fn there_is_one_partition() {
        let mut pkey = 0;
        // SAFETY: the key can be written, and no function looks at the context.
        unsafe {
            assert_eq!(query_pkey(NOBODY, PORT, 0, &raw mut pkey), 0);
            assert_eq!(pkey, 0xffff);
            for (port, index) in [(0, 0), (2, 0), (PORT, 1), (PORT, -1)] {
                assert_eq!(query_pkey(NOBODY, port, index, &raw mut pkey), -1);
            }
            assert_eq!(get_pkey_index(NOBODY, PORT, 0xffff), 0);
            assert_eq!(get_pkey_index(NOBODY, PORT, 0x7fff_u16.to_be()), -1);
        }
    }

    #[test]
    fn the_speed_is_that_of_its_lanes() {
        let mut speed = 0;
        // SAFETY: the number can be written, and no function looks at the context.
        unsafe {
            assert_eq!(query_port_speed(NOBODY, 1, &raw mut speed), 0);
            assert_eq!(query_port_speed(NOBODY, 2, &raw mut speed), libc::EINVAL);
        }
        let attributes = attributes();
        // 4 lanes of 25 Gbit/s.
        assert_eq!((attributes.active_width, attributes.active_speed, speed), (2, 32, 4 * 250));
    }
}
