//! The attributes that the driver reports for an address.

use std::ffi::{c_int, c_uint, c_void};

use cudarc::driver::sys::CUmemorytype;

use crate::{CUcontext, CUpointer_attribute, Context, Driver, Failure};

/// The attributes that the driver reports for an address.
#[derive(Clone, Copy, Debug)]
pub struct Pointer {
    /// The context, or `None` if the memory belongs to none.
    pub context: Option<Context>,
    /// The index of the GPU.
    pub ordinal: c_int,
    /// The start of the allocation.
    pub start: u64,
    /// The size of the allocation in bytes.
    pub size: u64,
    kind: u32,
    number: u64,
    is_managed: bool,
}

impl Pointer {
    /// Whether only the driver can access the memory.
    pub fn is_on_device(&self) -> bool {
        self.kind == CUmemorytype::CU_MEMORYTYPE_DEVICE as u32 && !self.is_managed
    }

    /// The ID of the allocation, truncated to 32 bits. The driver never reuses an ID in this process. The last 32 bits
    /// are unique among the allocations that exist.
    pub fn buffer(&self) -> u32 {
        self.number as u32
    }
}

impl Driver {
    /// Queries the attributes of an address. An unknown address is not on a device.
    ///
    /// # Errors
    ///
    /// The driver is not initialized, or fails.
    pub fn query(&self, address: u64) -> Result<Pointer, Failure> {
        let mut attributes = [
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_CONTEXT,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_BUFFER_ID,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
            CUpointer_attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        ];
        // Some values have only one or four bytes. These are the low bytes of a word, because all platforms for which a
        // driver exists are little-endian.
        let mut values = [0u64; 7];
        let mut pointers = values.each_mut().map(|value| std::ptr::from_mut(value).cast::<c_void>());
        // SAFETY: the attributes and the values have this count, and no value exceeds eight bytes. The driver only
        // looks up the address.
        let code = unsafe {
            (self.cuPointerGetAttributes)(
                attributes.len() as c_uint,
                attributes.as_mut_ptr(),
                pointers.as_mut_ptr(),
                address,
            )
        };
        self.result("cuPointerGetAttributes", code)?;
        let [context, kind, number, is_managed, ordinal, start, size] = values;
        let context: CUcontext = std::ptr::with_exposed_provenance_mut(context as usize);
        Ok(Pointer {
            context: (!context.is_null()).then(|| context.into()),
            ordinal: ordinal as c_int,
            start,
            size,
            kind: kind as u32,
            number,
            is_managed: is_managed != 0,
        })
    }
}
