//! The destinations of requests, on services without a fixed peer.

use std::marker::PhantomData;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_ah, ibv_qp, ibv_qp_ex, ibv_send_wr};

use super::RefusalReason;
use super::operation::{SendOperation, check_device};
use crate::ffi::Sealed;
use crate::ibverbs::address::AddressHandle;
use crate::ibverbs::queue_pair::refuse;

/// The destination of a request. It is set after the operation and before the data. This trait is sealed.
///
/// # Safety
///
/// The contract of [`SendOperation`] applies.
pub unsafe trait SendAddress: Sealed + Copy {
    /// Sets the address of the request that an operation has begun.
    ///
    /// # Safety
    ///
    /// `qp` is a live extended queue pair of this crate between `wr_start` and `wr_complete`, built for a service with
    /// such addresses. An operation was begun, or the batch is rejected. None of the functions in the original struct
    /// (up to `wr_abort`) is null.
    unsafe fn give(self, qp: *mut ibv_qp_ex);

    /// Writes the address into a request, after its operation.
    ///
    /// # Errors
    ///
    /// Returns the reason for the rejection of the request. The batch is then rejected too.
    ///
    /// # Safety
    ///
    /// `qp` is a live queue pair.
    unsafe fn write(self, wr: &mut ibv_send_wr, qp: *mut ibv_qp) -> Result<(), RefusalReason>;
}

/// An operation together with its destination.
#[derive(Clone, Copy, Debug)]
pub struct Addressed<O, A> {
    operation: O,
    address: A,
}

impl<O, A> Addressed<O, A> {
    #[inline]
    pub(crate) fn new(operation: O, address: A) -> Self {
        Self { operation, address }
    }
}

impl<O, A> Sealed for Addressed<O, A> {}

// SAFETY: both parts uphold the contract.
unsafe impl<O: SendOperation, A: SendAddress> SendOperation for Addressed<O, A> {
    const IS_ATOMIC_WRITE: bool = O::IS_ATOMIC_WRITE;

    #[inline]
    unsafe fn begin(self, qp: *mut ibv_qp_ex) {
        // SAFETY: by the contract of this function. The address follows the operation, as in C.
        unsafe {
            self.operation.begin(qp);
            self.address.give(qp);
        }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            self.operation.write(wr, qp)?;
            self.address.write(wr, qp)
        }
    }
}

/// `ibv_wr_set_ud_addr`: the address of a datagram. `CHECKED` states whether the device of the address handle must be
/// compared with that of the queue pair.
#[derive(Clone, Copy, Debug)]
pub struct DatagramAddress<'a, const CHECKED: bool> {
    ah: *mut ibv_ah,
    remote_qpn: u32,
    remote_qkey: u32,
    handle: PhantomData<&'a AddressHandle>,
}

impl<'a, const CHECKED: bool> DatagramAddress<'a, CHECKED> {
    #[inline]
    pub(crate) fn new(handle: &'a AddressHandle, remote_qpn: u32, remote_qkey: u32) -> Self {
        Self { ah: handle.raw(), remote_qpn, remote_qkey, handle: PhantomData }
    }

    /// # Safety
    ///
    /// `qp` is live.
    #[inline]
    unsafe fn check(&self, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        // SAFETY: the handle is live while it is borrowed, and the queue pair is live by the contract of this function.
        if CHECKED { unsafe { check_device((*self.ah).context, qp) } } else { Ok(()) }
    }
}

impl<const CHECKED: bool> Sealed for DatagramAddress<'_, CHECKED> {}

// SAFETY: the handle lives as long as the lifetime in the type. It belongs to the queue pair's device, which is checked
// here or which the caller of the unchecked function guarantees.
unsafe impl<const CHECKED: bool> SendAddress for DatagramAddress<'_, CHECKED> {
    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        // SAFETY: by the contract of this function, a batch is open.
        unsafe {
            match self.check(&raw mut (*qp).qp_base) {
                Ok(()) => sys::ibv_wr_set_ud_addr(qp, self.ah, self.remote_qpn, self.remote_qkey),
                Err(reason) => refuse(qp, reason),
            }
        }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { self.check(qp)? };
        let Self { ah, remote_qpn, remote_qkey, .. } = self;
        wr.wr.ud = sys::ibv_send_wr__bindgen_ty_2__bindgen_ty_3 { ah, remote_qpn, remote_qkey };
        Ok(())
    }
}

/// `ibv_wr_set_xrc_srqn`: the number of the peer's shared receive queue.
#[derive(Clone, Copy, Debug)]
pub struct SharedReceiveQueueNumber(pub(crate) u32);

impl Sealed for SharedReceiveQueueNumber {}

// SAFETY: the request contains no pointer.
unsafe impl SendAddress for SharedReceiveQueueNumber {
    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        // SAFETY: the caller upholds the contract of this function.
        unsafe { sys::ibv_wr_set_xrc_srqn(qp, self.0) }
    }

    #[inline]
    unsafe fn write(self, wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        wr.qp_type.xrc = sys::ibv_send_wr__bindgen_ty_3__bindgen_ty_1 { remote_srqn: self.0 };
        Ok(())
    }
}
