//! Contexts and streams of the driver.

use std::marker::PhantomData;
use std::ptr;

use crate::{CUcontext, CUdevice, CUstream, Driver, Failure};

/// Declares a handle of the driver.
macro_rules! handle {
    ($(#[$doc:meta])* $Name:ident($Raw:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $Name(usize);

        impl $Name {
            /// Returns the driver's pointer.
            pub fn raw(self) -> $Raw {
                ptr::with_exposed_provenance_mut(self.0)
            }
        }

        impl From<$Raw> for $Name {
            fn from(raw: $Raw) -> Self {
                Self(raw.expose_provenance())
            }
        }
    };
}

handle! {
    /// A `CUcontext`, which only the driver dereferences. Any thread may use it.
    Context(CUcontext)
}
handle! {
    /// A `CUstream`, which only the driver dereferences. Any thread may use it.
    Stream(CUstream)
}

impl Driver {
    /// Retains the primary context of a GPU, which the CUDA runtime shares.
    ///
    /// # Errors
    ///
    /// The driver cannot create the context.
    pub fn primary_context(&self, device: CUdevice) -> Result<Context, Failure> {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: the pointer is to a local variable; the driver checks the number of the device.
        self.result("cuDevicePrimaryCtxRetain", unsafe { (self.cuDevicePrimaryCtxRetain)(&raw mut raw, device) })?;
        Ok(raw.into())
    }
}

/// A guard that makes a context current on this thread. When the guard is dropped, the previous context is current
/// again.
#[derive(Debug)]
pub struct Current<'d>(&'d Driver, PhantomData<*const ()>);

impl<'d> Current<'d> {
    /// Makes the context current.
    ///
    /// # Errors
    ///
    /// The context has been destroyed.
    pub fn new(driver: &'d Driver, context: Context) -> Result<Self, Failure> {
        // SAFETY: the driver has returned this context, and checks its argument.
        driver.result("cuCtxPushCurrent", unsafe { (driver.cuCtxPushCurrent_v2)(context.raw()) })?;
        Ok(Self(driver, PhantomData))
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let mut raw: CUcontext = ptr::null_mut();
        // SAFETY: the pointer is to a local variable. The popped context is the one that `new` pushed, because the guard
        // stays on its thread.
        unsafe { (self.0.cuCtxPopCurrent_v2)(&raw mut raw) };
    }
}
