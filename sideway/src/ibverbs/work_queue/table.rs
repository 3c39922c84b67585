//! `struct ibv_rwq_ind_table`: the work queues among which packets are distributed.

use std::ptr::NonNull;
use std::sync::Arc;

use rdma_mummy_sys as sys;
use rdma_mummy_sys::{ibv_rwq_ind_table, ibv_rwq_ind_table_init_attr, ibv_wq};

use super::WorkQueue;
use super::queue::WorkQueueCore;
use crate::error::VerbError;
use crate::ffi::{Handle, check_pointer};
use crate::ibverbs::device_context::DeviceContext;

const VERB: &str = "ibv_create_rwq_ind_table";

/// A table of work queues. The table keeps its queues alive, and queue pairs that use the table keep the table alive.
#[doc(alias = "ibv_rwq_ind_table")]
#[derive(Debug)]
pub struct RwqIndirectionTable {
    // This is the first field, so it is dropped first, because the queues must outlive it.
    handle: Handle<ibv_rwq_ind_table>,
    queues: Vec<Arc<WorkQueueCore>>,
    context: Arc<DeviceContext>,
}

impl DeviceContext {
    /// `ibv_create_rwq_ind_table(context, attr)` — creates a table of these work queues, in this order. A queue may
    /// occur several times.
    ///
    /// # Errors
    ///
    /// - `EINVAL`: the number of queues is not a power of two or exceeds the device's limit, or a queue belongs to
    ///   another device context.
    /// - `EOPNOTSUPP`: the device does not support such tables.
    ///
    /// # References
    ///
    /// [ibv_create_rwq_ind_table(3)](https://man7.org/linux/man-pages/man3/ibv_create_rwq_ind_table.3.html)
    #[doc(alias = "ibv_create_rwq_ind_table")]
    pub fn create_rwq_ind_table(
        self: &Arc<Self>,
        queues: &[&WorkQueue],
    ) -> Result<Arc<RwqIndirectionTable>, VerbError> {
        if !queues.len().is_power_of_two() {
            return Err(VerbError::invalid(
                VERB,
                format!("{} work queues are not a power of two; repeat queues to fill the table", queues.len()),
            ));
        }
        if queues.iter().any(|queue| queue.device_context().raw() != self.raw()) {
            return Err(VerbError::invalid(
                VERB,
                "a work queue belongs to another device context; create all from one",
            ));
        }
        let mut list: Vec<*mut ibv_wq> = queues.iter().map(|queue| queue.core().raw()).collect();
        let mut attr = ibv_rwq_ind_table_init_attr {
            log_ind_tbl_size: queues.len().ilog2(),
            ind_tbl: list.as_mut_ptr(),
            comp_mask: 0,
        };
        // SAFETY: the context is open as long as `self` lives. The list is valid during the call and has 2 to the power
        // of its stated size entries, all of which are live queues of this context.
        let table = unsafe { sys::ibv_create_rwq_ind_table(self.raw(), &mut attr) };
        let table = check_pointer(VERB, table).map_err(|error| self.explain_table(error, queues.len()))?;
        // SAFETY: the object was just created and is not shared, and this verb destroys it.
        let handle = unsafe { Handle::new(table, destroy_table, "ibv_destroy_rwq_ind_table") };
        let queues = queues.iter().map(|queue| Arc::clone(queue.core())).collect();
        Ok(Arc::new(RwqIndirectionTable { handle, queues, context: Arc::clone(self) }))
    }

    #[cold]
    fn explain_table(&self, error: VerbError, len: usize) -> VerbError {
        match error.errno().raw() {
            libc::EOPNOTSUPP | libc::ENOSYS => error.with_hint(
                "the device or its driver does not support \
                indirection tables",
            ),
            libc::EINVAL => match self.query_device() {
                Ok(device) if len > device.rss_caps().max_rwq_indirection_table_size() as usize => {
                    error.with_hint(format!(
                        "{len} work queues exceed the device's limit of {}; use fewer",
                        device.rss_caps().max_rwq_indirection_table_size()
                    ))
                }
                _ => error,
            },
            _ => error,
        }
    }
}

impl RwqIndirectionTable {
    /// Returns the number of entries.
    #[expect(clippy::len_without_is_empty, reason = "no table is empty")]
    pub fn len(&self) -> usize {
        self.queues.len()
    }

    /// `ibv_destroy_rwq_ind_table(table)` — destroys the table. This method returns an error of the verb, whereas drop
    /// only logs it.
    ///
    /// Take a table out of its `Arc` with [`Arc::into_inner`], which succeeds once its queue pairs are dropped.
    ///
    /// # Errors
    ///
    /// The driver's errno; the table is then leaked.
    #[doc(alias = "ibv_destroy_rwq_ind_table")]
    pub fn close(self) -> Result<(), VerbError> {
        self.handle.close()
    }

    /// Returns the table's device.
    pub fn device_context(&self) -> &Arc<DeviceContext> {
        &self.context
    }

    /// Returns the C object.
    ///
    /// # Safety
    ///
    /// Use the object only while `self` lives, and do not destroy it.
    pub unsafe fn rwq_ind_table(&self) -> NonNull<ibv_rwq_ind_table> {
        self.handle.as_non_null()
    }

    pub(super) fn raw(&self) -> *mut ibv_rwq_ind_table {
        self.handle.as_ptr()
    }
}

unsafe extern "C" fn destroy_table(table: *mut ibv_rwq_ind_table) -> libc::c_int {
    // SAFETY: the handle calls this function once, with its own object.
    unsafe { sys::ibv_destroy_rwq_ind_table(table) }
}
