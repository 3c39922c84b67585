//! `struct ibv_dmah`: hints for the memory accesses of a device.

use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::since_v44::{
    IBV_DMAH_INIT_ATTR_MASK_CPU_ID, IBV_DMAH_INIT_ATTR_MASK_PH, IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE,
    IBV_TPH_MEM_TYPE_PM, IBV_TPH_MEM_TYPE_VM, ibv_dmah, ibv_dmah_init_attr,
};

use super::device_context::DeviceContext;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer, open_enum};

/// A DMA handle: hints for the device's accesses to the regions that are registered with the handle
/// ([`reg_mr_ex`](super::protection_domain::ProtectionDomain::reg_mr_ex)). One hint is the CPU whose cache should
/// receive the data. PCI Express calls them TLP processing hints.
#[doc(alias = "ibv_dmah")]
#[derive(Debug)]
pub struct DmaHandle {
    // This is the first field, so it is dropped first, because the context must outlive it.
    handle: Handle<ibv_dmah>,
    context: Arc<DeviceContext>,
}

open_enum! {
    /// The kind of memory that the hints are for.
    #[doc(alias = "ibv_tph_mem_type")]
    pub enum HintedMemory {
        /// Volatile memory.
        Volatile = IBV_TPH_MEM_TYPE_VM,
        /// Persistent memory.
        Persistent = IBV_TPH_MEM_TYPE_PM,
    }
}

/// `struct ibv_dmah_init_attr`: the hints of a [`DmaHandle`]. `None` omits a hint.
#[doc(alias = "ibv_dmah_init_attr")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DmaHandleAttributes {
    /// The number of the CPU that will read the data, as Linux counts CPUs.
    pub cpu_id: Option<u32>,
    /// The processing hint (PH) of PCI Express, 0 to 3.
    pub processing_hint: Option<u8>,
    /// The kind of memory.
    pub memory: Option<HintedMemory>,
}

/// `ibv_dealloc_dmah` as a function with a C signature.
unsafe extern "C" fn dealloc(dmah: *mut ibv_dmah) -> libc::c_int {
    // SAFETY: the caller upholds the contract of this function.
    unsafe { sys::ibv_dealloc_dmah(dmah) }
}

impl DeviceContext {
    /// `ibv_alloc_dmah(context, attr)` — creates a DMA handle. Requires IBVERBS_1.15.
    ///
    /// # Errors
    ///
    /// Returns `EOPNOTSUPP` if the library, the driver or the device does not support DMA handles, and `EINVAL` if a
    /// hint is out of range or missing. Otherwise returns the driver's errno.
    ///
    /// # References
    ///
    /// [ibv_alloc_dmah(3)](https://man7.org/linux/man-pages/man3/ibv_alloc_dmah.3.html)
    #[doc(alias = "ibv_alloc_dmah")]
    pub fn alloc_dmah(self: &Arc<Self>, attributes: &DmaHandleAttributes) -> Result<Arc<DmaHandle>, VerbError> {
        const VERB: &str = "ibv_alloc_dmah";
        let DmaHandleAttributes { cpu_id, processing_hint, memory } = *attributes;
        let tph_mem_type = u8::try_from(memory.map_or(0, HintedMemory::raw)).map_err(|_| {
            VerbError::invalid(VERB, format!("{memory:?} exceeds 8 bits; use a constant of HintedMemory"))
        })?;
        let mut attr = ibv_dmah_init_attr {
            comp_mask: 0,
            cpu_id: cpu_id.unwrap_or(0),
            ph: processing_hint.unwrap_or(0),
            tph_mem_type,
        };
        for (given, mask) in [
            (cpu_id.is_some(), IBV_DMAH_INIT_ATTR_MASK_CPU_ID),
            (processing_hint.is_some(), IBV_DMAH_INIT_ATTR_MASK_PH),
            (memory.is_some(), IBV_DMAH_INIT_ATTR_MASK_TPH_MEM_TYPE),
        ] {
            if given {
                attr.comp_mask |= mask;
            }
        }
        // SAFETY: the context is open as long as `self` lives, and the attributes are initialised according to their
        // mask.
        let dmah = check_pointer(VERB, unsafe { sys::ibv_alloc_dmah(self.raw(), &mut attr) })
            .map_err(|error| explain(error, attributes))?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(dmah, dealloc, "ibv_dealloc_dmah") };
        Ok(Arc::new(DmaHandle { handle, context: Arc::clone(self) }))
    }
}

impl DmaHandle {
    /// `ibv_dealloc_dmah(dmah)` — frees the handle. This method returns an error of the verb, whereas drop only logs
    /// it.
    ///
    /// Take a handle out of its `Arc` with [`Arc::into_inner`], which succeeds once its regions are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the handle is then leaked.
    #[doc(alias = "ibv_dealloc_dmah")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the handle's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object for this crate.
    pub(crate) fn raw(&self) -> *mut ibv_dmah {
        self.handle.as_ptr()
    }
}

/// Adds to the error what the mlx5 kernel driver requires. It is the only driver that supports DMA handles.
#[cold]
fn explain(error: VerbError, attributes: &DmaHandleAttributes) -> VerbError {
    if error.errno().raw() != libc::EINVAL {
        return error;
    }
    match attributes {
        DmaHandleAttributes { processing_hint: None, .. } => error.with_hint(
            "mlx5 needs a processing hint; set \
            processing_hint",
        ),
        DmaHandleAttributes { cpu_id: None, memory: Some(_), .. }
        | DmaHandleAttributes { cpu_id: Some(_), memory: None, .. } => {
            error.with_hint("mlx5 needs cpu_id and memory together; set both or neither")
        }
        DmaHandleAttributes { processing_hint: Some(4..), .. } => error.with_hint(
            "processing_hint is out of range; \
            use 0 to 3",
        ),
        _ => error,
    }
}
