//! Converts the work requests of programs from C.

use std::ptr;
use std::slice;
use std::sync::Arc;

use rdma_mummy_sys::{
    ibv_access_flags, ibv_ah, ibv_mw, ibv_mw_bind_info, ibv_mw_type, ibv_send_flags as flag, ibv_send_wr, ibv_sge,
    ibv_wr_opcode as opcode,
};

use crate::mem::{Bind, Piece};
use crate::qp::{Destination, Parts, SendWork};
use crate::sys::errno::Errno;
use crate::verbs::address_handle::AddressHandle;
use crate::verbs::memory_window::MemoryWindow;
use crate::verbs::object::Object;
use crate::verbs::protection_domain::ProtectionDomain;
use crate::wire::operation::{Operation, Service};

/// The number of bytes in an atomic write.
pub(super) const WORD: usize = 8;

/// Sets the fields of a request from the arguments of `ibv_post_send`.
///
/// # Errors
///
/// `EINVAL` if the QP does not support the request; `EOPNOTSUPP` if the device does not support it.
///
/// # Safety
///
/// All data of the request exists: its pieces, inline data, address handle, window and region.
pub(super) unsafe fn fill(work: &mut SendWork, wr: &ibv_send_wr, parts: &Parts) -> Result<(), Errno> {
    // SAFETY: the union members of the opcode are valid.
    let operation = unsafe { operation(wr)? };
    if !parts.service.sends(operation) {
        return Err(Errno::INVALID);
    }
    if wr.send_flags & flag::IBV_SEND_IP_CSUM.0 != 0 {
        return Err(Errno::INVALID);
    }
    set_flags(work, wr.wr_id, wr.send_flags, parts);
    work.operation = operation;
    // SAFETY: the opcode and the service select the union members; the caller guarantees the rest.
    unsafe {
        match work.operation {
            Operation::LocalInvalidate { .. } => return Ok(()),
            Operation::Bind => {
                let asked = wr.__bindgen_anon_2.bind_mw;
                work.bind = Some(bind(asked.mw, asked.rkey, &asked.bind_info, ibv_mw_type::IBV_MW_TYPE_2)?);
                return Ok(());
            }
            _ => {}
        }
        match parts.service {
            Service::UnreliableDatagram => {
                let to = wr.wr.ud;
                work.destination = Some(destination(to.ah, to.remote_qpn, to.remote_qkey, parts)?);
            }
            Service::XrcSend => work.srq_number = wr.qp_type.xrc.remote_srqn,
            _ => {}
        }
        let count = usize::try_from(wr.num_sge).map_err(|_| Errno::INVALID)?;
        let pieces = pieces(wr.sg_list, count, parts)?;
        if wr.send_flags & flag::IBV_SEND_INLINE.0 != 0 {
            let data = pieces
                .iter()
                .map(|piece| (ptr::with_exposed_provenance::<u8>(piece.addr as usize), piece.length as usize));
            inline(work, data, parts)
        } else {
            gather(work, pieces);
            if matches!(work.operation, Operation::AtomicWrite { .. }) && work.length() != WORD as u64 {
                return Err(Errno::INVALID);
            }
            Ok(())
        }
    }
}

/// Sets the fields that every request has.
pub(super) fn set_flags(work: &mut SendWork, wr_id: u64, flags: u32, parts: &Parts) {
    work.wr_id = wr_id;
    work.is_signaled = parts.signals_all || flags & flag::IBV_SEND_SIGNALED.0 != 0;
    work.is_solicited = flags & flag::IBV_SEND_SOLICITED.0 != 0;
    work.is_fenced = flags & flag::IBV_SEND_FENCE.0 != 0;
}

/// Reads the operation of a request.
///
/// # Safety
///
/// The union members of the opcode are valid.
unsafe fn operation(wr: &ibv_send_wr) -> Result<Operation, Errno> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (address, rkey) = (wr.wr.rdma.remote_addr, wr.wr.rdma.rkey);
        let immediate = wr.__bindgen_anon_1.imm_data;
        let atomic = wr.wr.atomic;
        Ok(match wr.opcode {
            opcode::IBV_WR_SEND => Operation::Send,
            opcode::IBV_WR_SEND_WITH_IMM => Operation::SendImmediate { immediate },
            opcode::IBV_WR_SEND_WITH_INV => Operation::SendInvalidate { rkey: wr.__bindgen_anon_1.invalidate_rkey },
            opcode::IBV_WR_RDMA_WRITE => Operation::Write { address, rkey },
            opcode::IBV_WR_RDMA_WRITE_WITH_IMM => Operation::WriteImmediate { address, rkey, immediate },
            opcode::IBV_WR_RDMA_READ => Operation::Read { address, rkey },
            opcode::IBV_WR_ATOMIC_CMP_AND_SWP => Operation::CompareSwap {
                address: atomic.remote_addr,
                rkey: atomic.rkey,
                compare: atomic.compare_add,
                swap: atomic.swap,
            },
            opcode::IBV_WR_ATOMIC_FETCH_AND_ADD => {
                Operation::FetchAdd { address: atomic.remote_addr, rkey: atomic.rkey, add: atomic.compare_add }
            }
            opcode::IBV_WR_ATOMIC_WRITE => Operation::AtomicWrite { address, rkey },
            opcode::IBV_WR_LOCAL_INV => Operation::LocalInvalidate { rkey: wr.__bindgen_anon_1.invalidate_rkey },
            opcode::IBV_WR_BIND_MW => Operation::Bind,
            opcode::IBV_WR_TSO | opcode::IBV_WR_DRIVER1 => return Err(Errno::NOT_SUPPORTED),
            // A flush is refused too, because `ibv_send_wr` has no fields for its arguments.
            _ => return Err(Errno::INVALID),
        })
    }
}

/// Returns the destination of a datagram.
///
/// # Safety
///
/// The address handle is null or alive.
pub(super) unsafe fn destination(ah: *mut ibv_ah, number: u32, key: u32, parts: &Parts) -> Result<Destination, Errno> {
    if ah.is_null() {
        return Err(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller; the handle keeps its protection domain alive.
    let (handle, domain) = unsafe { (AddressHandle::of(ah), ProtectionDomain::of((*ah).pd)) };
    if !domain.domain.is(&parts.domain) {
        return Err(Errno::INVALID);
    }
    Ok(Destination { path: handle.path, number, key })
}

/// Returns the parameters of a bind request.
///
/// # Safety
///
/// The window is null or alive; so is the region.
pub(super) unsafe fn bind(
    mw: *mut ibv_mw,
    rkey: u32,
    info: &ibv_mw_bind_info,
    kind: ibv_mw_type,
) -> Result<Box<Bind>, Errno> {
    const ACCESS: u32 = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_READ.0
        | ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0
        | ibv_access_flags::IBV_ACCESS_LOCAL_WRITE.0
        | ibv_access_flags::IBV_ACCESS_ZERO_BASED.0;
    if mw.is_null() || info.mw_access_flags & !ACCESS != 0 || (info.mr.is_null() && info.length != 0) {
        return Err(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    let (window, lkey) = unsafe {
        if (*mw).type_ != kind {
            return Err(Errno::INVALID);
        }
        // The reference is to this field only, because the program and other threads write the key of the window.
        let window = &(*mw.cast::<MemoryWindow>()).window;
        (Arc::clone(window), info.mr.as_ref().map_or(0, |region| region.lkey))
    };
    let (address, length, access) = (info.addr, info.length, info.mw_access_flags);
    Ok(Box::new(Bind { window, rkey, lkey, address, length, access }))
}

/// Returns the pieces of a request, of which there may be at most `max_send_sge`.
///
/// # Safety
///
/// `count` pieces are readable.
pub(super) unsafe fn pieces<'p>(list: *const ibv_sge, count: usize, parts: &Parts) -> Result<&'p [ibv_sge], Errno> {
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() || count > parts.max_send_sge as usize {
        return Err(Errno::INVALID);
    }
    // SAFETY: guaranteed by the caller.
    Ok(unsafe { slice::from_raw_parts(list, count) })
}

/// Adds pieces of memory to a request. Empty pieces are ignored.
pub(super) fn gather(work: &mut SendWork, pieces: &[ibv_sge]) {
    let pieces = pieces.iter().filter(|piece| piece.length != 0);
    work.pieces.extend(pieces.map(|piece| Piece { address: piece.addr, length: piece.length, lkey: piece.lkey }));
}

/// Copies the inline data of a request.
///
/// # Safety
///
/// The data is readable.
pub(super) unsafe fn inline(
    work: &mut SendWork,
    data: impl Iterator<Item = (*const u8, usize)> + Clone,
    parts: &Parts,
) -> Result<(), Errno> {
    let length = data.clone().try_fold(0_usize, |sum, (_, length)| sum.checked_add(length));
    let fits = length.is_some_and(|length| match work.operation {
        Operation::Send
        | Operation::SendImmediate { .. }
        | Operation::SendInvalidate { .. }
        | Operation::Write { .. }
        | Operation::WriteImmediate { .. } => length <= parts.max_inline as usize,
        Operation::AtomicWrite { .. } => length == WORD,
        _ => false,
    });
    if !fits {
        return Err(Errno::INVALID);
    }
    work.is_inline = true;
    for (from, length) in data.filter(|&(_, length)| length != 0) {
        // SAFETY: guaranteed by the caller.
        unsafe { append(&mut work.inline, from, length) };
    }
    Ok(())
}

/// Copies memory of the program. No reference to this memory is created, because another thread may write it.
///
/// # Safety
///
/// `length` bytes are readable.
unsafe fn append(to: &mut Vec<u8>, from: *const u8, length: usize) {
    to.reserve(length);
    let end = to.len();
    // SAFETY: the vector has reserved the space after its elements; the caller guarantees the rest.
    unsafe {
        to.as_mut_ptr().add(end).copy_from_nonoverlapping(from, length);
        to.set_len(end + length);
    }
}
