//! The destination of an initiator's request.

use std::marker::PhantomData;

use rdma_mummy_sys::mlx5dv::mlx5dv_qp_ex;
use rdma_mummy_sys::{ibv_ah, ibv_qp, ibv_qp_ex, ibv_send_wr};

use crate::ffi::Sealed;
use crate::ibverbs::address::AddressHandle;
use crate::ibverbs::queue_pair::{SendContext, refuse};
use crate::ibverbs::work_request::operation::check_device;
use crate::ibverbs::work_request::{
    Addressed, HoldsFor, LocalBufferHandle, PostSendGuard, RefusalReason, SendAddress, SendOperation,
};

type SetAddress = unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64);
type SetStreamAddress = unsafe extern "C" fn(*mut mlx5dv_qp_ex, *mut ibv_ah, u32, u64, u16);

/// The functions of a queue pair that set addresses. They were looked up when the queue pair was built.
#[derive(Debug)]
pub(super) struct DciFunctions {
    pub(super) qp: *mut mlx5dv_qp_ex,
    pub(super) set_address: SetAddress,
    /// The function that also sets a stream. It exists only if the queue pair was built with streams.
    pub(super) set_stream_address: Option<SetStreamAddress>,
}

// SAFETY: the pointer refers to a part of the queue pair, and is used only with exclusive access to its send queue.
unsafe impl Send for DciFunctions {}

/// `mlx5dv_wr_set_dc_addr`: the address of a target. With `CHECKED`, posting checks that the handle belongs to the same
/// device.
#[derive(Clone, Copy, Debug)]
pub struct DcAddress<'a, const CHECKED: bool> {
    ah: *mut ibv_ah,
    remote_dctn: u32,
    remote_dc_key: u64,
    stream: Option<u16>,
    handle: PhantomData<&'a AddressHandle>,
}

impl<'a, const CHECKED: bool> DcAddress<'a, CHECKED> {
    #[inline]
    fn new(handle: &'a AddressHandle, remote_dctn: u32, remote_dc_key: u64, stream: Option<u16>) -> Self {
        Self { ah: handle.raw(), remote_dctn, remote_dc_key, stream, handle: PhantomData }
    }
}

impl<const CHECKED: bool> Sealed for DcAddress<'_, CHECKED> {}

// SAFETY: the handle lives as long as the lifetime in the type. It belongs to the queue pair's device, which is either
// checked here or guaranteed by the caller of the unchecked function. The driver's function is called only while the
// batch is not refused.
unsafe impl<const CHECKED: bool> SendAddress for DcAddress<'_, CHECKED> {
    #[inline]
    unsafe fn give(self, qp: *mut ibv_qp_ex) {
        let Self { ah, remote_dctn, remote_dc_key, stream, .. } = self;
        // SAFETY: only queue pairs that `build_dci` has built accept such addresses, and their data has this type. The
        // handle is live.
        unsafe {
            let Some(functions) = SendContext::vendor_data::<DciFunctions>(qp) else { return };
            if CHECKED && let Err(reason) = check_device((*ah).context, &raw mut (*qp).qp_base) {
                return refuse(qp, reason);
            }
            let functions = functions.as_ref();
            match (stream, functions.set_stream_address) {
                (None, _) => (functions.set_address)(functions.qp, ah, remote_dctn, remote_dc_key),
                (Some(stream), Some(set)) => set(functions.qp, ah, remote_dctn, remote_dc_key, stream),
                (Some(_), None) => refuse(qp, NO_STREAMS),
            }
        }
    }

    /// Always fails, because the basic verbs do not support such addresses.
    unsafe fn write(self, _wr: &mut ibv_send_wr, _qp: *mut ibv_qp) -> Result<(), RefusalReason> {
        Err(RefusalReason::DriverFault("the basic verbs do not support dynamic connections"))
    }
}

const NO_STREAMS: RefusalReason =
    RefusalReason::DriverFault("the queue pair was built without streams; build it with build_dci_with_streams");

/// Methods that set the target of a request.
impl<'g, G: PostSendGuard, O: SendOperation> LocalBufferHandle<'g, G, O> {
    /// `mlx5dv_wr_set_dc_addr(mqp, ah, remote_dctn, remote_dc_key)` — sets the target of the request: the address
    /// handle, the number of the target (24 bits) and the key of the target (in host byte order).
    ///
    /// Posting the batch fails if the handle belongs to another device.
    ///
    /// # References
    ///
    /// [mlx5dv_wr_post(3)](https://man7.org/linux/man-pages/man3/mlx5dv_wr_post.3.html)
    #[doc(alias = "mlx5dv_wr_set_dc_addr")]
    #[inline]
    pub fn setup_dc_addr<'q>(
        self,
        ah: &'q AddressHandle,
        remote_dctn: u32,
        remote_dc_key: u64,
    ) -> LocalBufferHandle<'g, G, Addressed<O, DcAddress<'q, true>>>
    where
        G: HoldsFor<'q>,
    {
        self.setup_address(DcAddress::new(ah, remote_dctn, remote_dc_key, None))
    }

    /// Sets the target of the request without checking that the handle belongs to the same device. This saves one
    /// comparison.
    ///
    /// # Safety
    ///
    /// `ah` belongs to the queue pair's device context.
    #[inline]
    pub unsafe fn setup_dc_addr_unchecked<'q>(
        self,
        ah: &'q AddressHandle,
        remote_dctn: u32,
        remote_dc_key: u64,
    ) -> LocalBufferHandle<'g, G, Addressed<O, DcAddress<'q, false>>>
    where
        G: HoldsFor<'q>,
    {
        self.setup_address(DcAddress::new(ah, remote_dctn, remote_dc_key, None))
    }

    /// `mlx5dv_wr_set_dc_addr_stream(mqp, ah, remote_dctn, remote_dc_key,
    /// stream_id)` — sets the request's target and one of the queue pair's streams. Requests of one stream stay in
    /// order, and an error stops only its stream.
    ///
    /// # References
    ///
    /// [mlx5dv_wr_post(3)](https://man7.org/linux/man-pages/man3/mlx5dv_wr_post.3.html)
    #[doc(alias = "mlx5dv_wr_set_dc_addr_stream")]
    #[inline]
    pub fn setup_dc_addr_stream<'q>(
        self,
        ah: &'q AddressHandle,
        remote_dctn: u32,
        remote_dc_key: u64,
        stream_id: u16,
    ) -> LocalBufferHandle<'g, G, Addressed<O, DcAddress<'q, true>>>
    where
        G: HoldsFor<'q>,
    {
        self.setup_address(DcAddress::new(ah, remote_dctn, remote_dc_key, Some(stream_id)))
    }
}
