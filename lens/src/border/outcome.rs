//! What a verb returns: whether it failed, how it fails, and the object that it made.

use std::ffi::c_void;

use rdma_mummy_sys::*;

use super::adopt;
use super::show::{Named, name_of};
use crate::names;

/// A type of a result.
pub(super) trait Outcome: Copy {
    /// The errno value of a failure.
    fn failure(self, verb: &str) -> Option<i32>;

    /// What `verb` returns when it fails with this errno value, which is set; `None` if it cannot fail.
    fn failed(verb: &str, code: i32) -> Option<Self>;

    /// The result as text.
    ///
    /// # Safety
    ///
    /// The call returned the value and has succeeded.
    unsafe fn text(self) -> String;

    /// Puts our functions into a new object.
    ///
    /// # Safety
    ///
    /// As for [`text`](Self::text).
    unsafe fn adopt(self) {}
}

pub(super) fn errno() -> i32 {
    // SAFETY: libc returns the address of this thread's errno.
    unsafe { *libc::__errno_location() }
}

pub(super) fn set_errno(code: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = code };
}

impl Outcome for () {
    fn failure(self, _verb: &str) -> Option<i32> {
        None
    }

    fn failed(_verb: &str, _code: i32) -> Option<Self> {
        None
    }

    unsafe fn text(self) -> String {
        String::new()
    }
}

/// The verbs of libibverbs that return -1 and set errno, and not the errno value.
const MINUS_ONE: [&str; 13] = [
    "ibv_dm_export_dmabuf_fd",
    "ibv_export_buf_dmabuf_fd",
    "ibv_close_device",
    "ibv_get_async_event",
    "ibv_get_cq_event",
    "ibv_get_pkey_index",
    "ibv_init_ah_from_wc",
    "ibv_query_gid",
    "ibv_query_gid_type",
    "ibv_query_pkey",
    "ibv_read_sysfs_file",
    "ibv_rereg_mr",
    "ibv_get_device_index",
];

/// Functions that return a number, and not whether they failed.
const NUMBERS: [&str; 8] = [
    "ibv_get_device_index",
    "ibv_get_pkey_index",
    "ibv_query_qp_data_in_order",
    "ibv_rate_to_mbps",
    "ibv_rate_to_mult",
    "ibv_read_sysfs_file",
    "ibv_dm_export_dmabuf_fd",
    "ibv_export_buf_dmabuf_fd",
];

impl Outcome for i32 {
    fn failure(self, verb: &str) -> Option<i32> {
        match self {
            0 => None,
            -1 => Some(errno()),
            _ if NUMBERS.contains(&verb) => None,
            code => Some(code.abs()),
        }
    }

    fn failed(verb: &str, code: i32) -> Option<Self> {
        if verb == "ibv_query_qp_data_in_order" {
            return None;
        }
        set_errno(code);
        Some(if verb.starts_with("rdma_") || MINUS_ONE.contains(&verb) { -1 } else { code })
    }

    unsafe fn text(self) -> String {
        self.to_string()
    }
}

impl Outcome for isize {
    fn failure(self, _verb: &str) -> Option<i32> {
        (self < 0).then(|| self.unsigned_abs().try_into().unwrap_or(i32::MAX))
    }

    fn failed(_verb: &str, code: i32) -> Option<Self> {
        set_errno(code);
        Some(-isize::try_from(code).unwrap_or(isize::MAX))
    }

    unsafe fn text(self) -> String {
        self.to_string()
    }
}

macro_rules! values {
    ($($Type:ty: |$value:ident| $text:expr;)*) => { $(
        impl Outcome for $Type {
            fn failure(self, _verb: &str) -> Option<i32> {
                None
            }

            fn failed(_verb: &str, _code: i32) -> Option<Self> {
                None
            }

            unsafe fn text(self) -> String {
                let $value = self;
                $text
            }
        }
    )* };
}

values! {
    u64: |number| format!("{number:#x}");
    u16: |number| number.to_string();
    bool: |is| is.to_string();
    ibv_rate: |rate| rate.0.to_string();
    ibv_fork_status: |status| status.0.to_string();
}

fn null_failure<T>(pointer: *const T) -> Option<i32> {
    pointer.is_null().then(errno)
}

macro_rules! pointers {
    ($($Type:ty $(: $adopt:path)?;)*) => { $(
        impl Outcome for *mut $Type {
            fn failure(self, _verb: &str) -> Option<i32> {
                null_failure(self)
            }

            fn failed(_verb: &str, code: i32) -> Option<Self> {
                set_errno(code);
                Some(std::ptr::null_mut())
            }

            unsafe fn text(self) -> String {
                // SAFETY: the call made the object.
                unsafe { name_of(self) + &self.as_ref().map_or_else(String::new, Named::details) }
            }

            $(unsafe fn adopt(self) {
                // SAFETY: as above.
                unsafe { $adopt(self) };
            })?
        }
    )* };
}

pointers! {
    ibv_context: adopt::context;
    ibv_pd;
    ibv_mr;
    ibv_mw;
    ibv_cq;
    ibv_cq_ex: adopt::extended_completion_queue;
    ibv_qp: adopt::new_queue_pair;
    ibv_qp_ex: adopt::extended_queue_pair;
    ibv_srq: adopt::new_shared_queue;
    ibv_ah;
    ibv_wq;
    ibv_comp_channel;
    rdma_event_channel;
}

/// Objects without a number.
macro_rules! addresses {
    ($($Type:ty)*) => { $(
        impl Named for $Type {
            unsafe fn name_of(&self) -> String {
                format!("{:p}", std::ptr::from_ref(self))
            }
        }

        pointers! { $Type; }
    )* };
}

addresses!(ibv_dm ibv_td ibv_xrcd ibv_flow ibv_counters ibv_rwq_ind_table ibv_buf ibv_dmah ibv_comp_cntr c_void);

/// A list of devices, which the program reads.
macro_rules! lists {
    ($($Type:ty)*) => { $(
        impl Outcome for *mut *mut $Type {
            fn failure(self, _verb: &str) -> Option<i32> {
                null_failure(self)
            }

            fn failed(_verb: &str, code: i32) -> Option<Self> {
                set_errno(code);
                Some(std::ptr::null_mut())
            }

            unsafe fn text(self) -> String {
                // SAFETY: the list ends with a null pointer, and its objects are live.
                let all = unsafe { elements(self) };
                // SAFETY: as above.
                let names: Vec<String> = all.map(|object| unsafe { name_of(object) }).collect();
                format!("[{}]", names.join(" "))
            }

            unsafe fn adopt(self) {
                // SAFETY: as above.
                unsafe { elements(self).for_each(|object| object.adopt_listed()) };
            }
        }
    )* };
}

/// # Safety
///
/// `list` ends with a null pointer, and is live while the result is used.
unsafe fn elements<T>(list: *mut *mut T) -> impl Iterator<Item = *mut T> {
    // SAFETY: by contract no index is past the null pointer, because the iterator ends there.
    (0..).map(move |index| unsafe { *list.add(index) }).take_while(|object| !object.is_null())
}

trait Listed {
    /// # Safety
    ///
    /// The object is live.
    unsafe fn adopt_listed(self);
}

impl Listed for *mut ibv_device {
    unsafe fn adopt_listed(self) {}
}

impl Listed for *mut ibv_context {
    unsafe fn adopt_listed(self) {
        // SAFETY: guaranteed by the caller.
        unsafe { adopt::context(self) };
    }
}

lists!(ibv_device ibv_context);

impl Outcome for *const std::ffi::c_char {
    fn failure(self, _verb: &str) -> Option<i32> {
        null_failure(self)
    }

    fn failed(_verb: &str, _code: i32) -> Option<Self> {
        None
    }

    unsafe fn text(self) -> String {
        // SAFETY: the call returned a C string.
        format!("{:?}", unsafe { std::ffi::CStr::from_ptr(self) }.to_string_lossy())
    }
}

/// A failure as text, such as `EINVAL`.
pub(super) fn failure_text(code: i32) -> String {
    names::errno(code)
}
