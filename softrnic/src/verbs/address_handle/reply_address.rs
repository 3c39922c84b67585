//! The reply address of a received datagram.

use std::ffi::c_int;

use rdma_mummy_sys::{
    ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd, ibv_wc, ibv_wc_flags,
};

use super::header::{Header, LENGTH};
use super::{create, path};
use crate::sys::errno::Errno;
use crate::verbs::failure::{minus_one, null};
use crate::verbs::gid;
use crate::verbs::port::PORT;
use crate::wire::address::Gid;

/// `ibv_init_ah_from_wc(context, port_num, wc, grh, ah_attr)`: reads the header `grh` if the flags of the completion
/// report a header.
///
/// # Safety
///
/// As in C: the completion and the header, if any, are readable, and the attributes are writable.
pub(crate) unsafe extern "C" fn init_ah_from_wc(
    _context: *mut ibv_context,
    port_num: u8,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    attr: *mut ibv_ah_attr,
) -> c_int {
    // SAFETY: guaranteed by the caller.
    match unsafe { attributes(port_num, &*wc, grh) } {
        Ok(found) => {
            // SAFETY: guaranteed by the caller.
            unsafe { attr.write(found) };
            0
        }
        Err(errno) => minus_one(errno),
    }
}

/// `ibv_create_ah_from_wc(pd, wc, grh, port_num)`.
///
/// # Safety
///
/// As for [`init_ah_from_wc`], and the domain is alive.
pub(crate) unsafe extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *mut ibv_wc,
    grh: *mut ibv_grh,
    port_num: u8,
) -> *mut ibv_ah {
    // SAFETY: guaranteed by the caller.
    match unsafe { attributes(port_num, &*wc, grh) }.and_then(|attr| path(&attr)) {
        // SAFETY: guaranteed by the caller.
        Ok(path) => unsafe { create(pd, path) },
        Err(errno) => null(errno),
    }
}

/// Builds the attributes of a reply address.
///
/// # Safety
///
/// The header is readable if the completion reports one.
unsafe fn attributes(port_num: u8, wc: &ibv_wc, grh: *const ibv_grh) -> Result<ibv_ah_attr, Errno> {
    if port_num != PORT {
        return Err(Errno::INVALID);
    }
    let header = if wc.wc_flags & ibv_wc_flags::IBV_WC_GRH.0 != 0 {
        // SAFETY: guaranteed by the caller: forty bytes are readable, the size of the C struct; the read allows any
        // alignment.
        let bytes = unsafe { grh.cast::<[u8; LENGTH]>().read_unaligned() };
        Some(Header::parse(&bytes).ok_or(Errno(libc::EPROTONOSUPPORT))?)
    } else {
        None
    };
    reply_attributes(wc, header, gid::index_of)
}

/// Returns the attributes of the reply address. Without a header, the attributes have no global route, and creating a
/// handle fails on Ethernet.
pub(super) fn reply_attributes(
    wc: &ibv_wc,
    header: Option<Header>,
    index_of: impl FnOnce(&dyn Fn(Gid) -> bool) -> Option<u8>,
) -> Result<ibv_ah_attr, Errno> {
    let route = match &header {
        Some(header) => ibv_global_route {
            dgid: ibv_gid { raw: header.source.0 },
            flow_label: header.flow_label,
            sgid_index: index_of(&|gid| is_reply_source(header, gid)).ok_or(Errno::INVALID)?,
            hop_limit: header.hop_limit,
            traffic_class: header.traffic_class,
        },
        None => {
            let dgid = ibv_gid { raw: Gid::ZERO.0 };
            ibv_global_route { dgid, flow_label: 0, sgid_index: 0, hop_limit: 0, traffic_class: 0 }
        }
    };
    Ok(ibv_ah_attr {
        grh: route,
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        static_rate: 0,
        is_global: header.is_some().into(),
        port_num: PORT,
    })
}

/// Whether the reply is sent from `gid`: the datagram's destination, or, for a group, any GID of the sender's family.
fn is_reply_source(header: &Header, gid: Gid) -> bool {
    if header.destination.is_multicast() {
        gid.ipv4().is_some() == header.source.ipv4().is_some()
    } else {
        gid == header.destination
    }
}
