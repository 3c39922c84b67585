//! STUB until the memory part arrives.
use crate::ffi::Handle;
use rdma_mummy_sys::{ibv_context, ibv_mw, ibv_mw_bind_info};
use std::marker::PhantomData;
/// Window.
#[derive(Debug)]
pub struct MemoryWindow {
    handle: Handle<ibv_mw>,
}
impl MemoryWindow {
    #[inline]
    pub(crate) fn raw(&self) -> *mut ibv_mw {
        self.handle.as_ptr()
    }
}
/// Bind.
#[derive(Clone, Copy, Debug)]
pub struct BindInformation<'a> {
    info: ibv_mw_bind_info,
    region: PhantomData<&'a ()>,
}
impl BindInformation<'_> {
    pub(crate) fn raw(&self) -> ibv_mw_bind_info {
        self.info
    }
    /// ctx
    pub(crate) fn context(&self) -> *mut ibv_context {
        unsafe { (*self.info.mr).context }
    }
}
