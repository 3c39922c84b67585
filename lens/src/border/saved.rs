//! Copies of completions, which are held back, and the functions that read them from an extended completion queue.

use std::ffi::c_uint;

use rdma_mummy_sys::*;

use super::adopt::extended_queue_of;
use super::completion::{Attributed, Completion};
use super::extended_cq::ExtendedQueue;
use super::original::{Original, Step};

/// A completion that is held back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Saved {
    pub(super) completion: Completion,
    pub(super) attributed: Attributed,
    values: Values,
}

impl Saved {
    pub(super) fn of_basic(wc: ibv_wc, completion: Completion, attributed: Attributed) -> Self {
        let values = Values {
            read_opcode: wc.opcode,
            read_vendor_err: wc.vendor_err,
            read_byte_len: wc.byte_len,
            // SAFETY: both members of the union are numbers of this size.
            read_imm_data: unsafe { wc.__bindgen_anon_1.imm_data },
            read_qp_num: wc.qp_num,
            read_src_qp: wc.src_qp,
            read_wc_flags: wc.wc_flags,
            read_slid: wc.slid.into(),
            read_sl: wc.sl,
            read_dlid_path_bits: wc.dlid_path_bits,
            pkey_index: wc.pkey_index,
            ..NOTHING
        };
        Self { completion, attributed, values }
    }

    /// # Safety
    ///
    /// The queue has a current completion of the driver, and `record` is its record.
    pub(super) unsafe fn of_extended(
        record: &ExtendedQueue,
        cq: *mut ibv_cq_ex,
        number: u32,
        completion: Completion,
        attributed: Attributed,
    ) -> Self {
        // SAFETY: guaranteed by the caller.
        let mut values = unsafe { record.readers.values(cq) };
        values.read_qp_num = number;
        Self { completion, attributed, values }
    }

    /// The completion as `ibv_poll_cq` returns it.
    pub(super) fn wc(&self) -> ibv_wc {
        let Values { read_opcode, read_vendor_err, read_byte_len, read_imm_data, read_qp_num, .. } = self.values;
        ibv_wc {
            wr_id: self.completion.wr_id,
            status: self.completion.status,
            opcode: read_opcode,
            vendor_err: read_vendor_err,
            byte_len: read_byte_len,
            __bindgen_anon_1: ibv_wc__bindgen_ty_1 { imm_data: read_imm_data },
            qp_num: read_qp_num,
            src_qp: self.values.read_src_qp,
            wc_flags: self.values.read_wc_flags,
            pkey_index: self.values.pkey_index,
            slid: self.values.read_slid as u16,
            sl: self.values.read_sl,
            dlid_path_bits: self.values.read_dlid_path_bits,
        }
    }
}

macro_rules! readers {
    ($($name:ident -> $Type:ty = $none:expr;)*) => {
        /// The fields of a completion, each under the name of the function that reads it.
        #[derive(Clone, Copy, Debug)]
        struct Values {
            $($name: $Type,)*
            read_tm_info: (u64, u32),
            pkey_index: u16,
        }

        const NOTHING: Values = Values { $($name: $none,)* read_tm_info: (0, 0), pkey_index: 0 };

        /// The driver's functions that read the fields of a completion.
        #[derive(Debug)]
        pub(super) struct Readers {
            $($name: Original<unsafe extern "C" fn(*mut ibv_cq_ex) -> $Type>,)*
            read_tm_info: Original<unsafe extern "C" fn(*mut ibv_cq_ex, *mut ibv_wc_tm_info)>,
        }

        impl Readers {
            pub(super) const fn none() -> Self {
                Self { $($name: Original::none(),)* read_tm_info: Original::none() }
            }

            /// # Safety
            ///
            /// The queue is live, and no other thread uses it.
            pub(super) unsafe fn take(&self, step: Step, cq: *mut ibv_cq_ex) {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    $(self.$name.take(step, &raw mut (*cq).$name, $name);)*
                    self.read_tm_info.take(step, &raw mut (*cq).read_tm_info, read_tm_info);
                }
            }

            /// # Safety
            ///
            /// The queue has a current completion of the driver.
            unsafe fn values(&self, cq: *mut ibv_cq_ex) -> Values {
                let mut tag = ibv_wc_tm_info { tag: 0, priv_: 0 };
                // SAFETY: guaranteed by the caller.
                unsafe {
                    if let Some(read) = self.read_tm_info.get() {
                        read(cq, &raw mut tag);
                    }
                    Values {
                        $($name: self.$name.get().map_or($none, |read| read(cq)),)*
                        read_tm_info: (tag.tag, tag.priv_),
                        pkey_index: 0,
                    }
                }
            }
        }

        $(
            unsafe extern "C" fn $name(cq: *mut ibv_cq_ex) -> $Type {
                let Some(record) = extended_queue_of(cq) else { return $none };
                record.with_selected(|saved| saved.values.$name).unwrap_or_else(|| {
                    // SAFETY: the program reads the current completion.
                    record.readers.$name.get().map_or($none, |read| unsafe { read(cq) })
                })
            }
        )*
    };
}

readers! {
    read_opcode -> ibv_wc_opcode = ibv_wc_opcode(0);
    read_vendor_err -> u32 = 0;
    read_byte_len -> u32 = 0;
    read_imm_data -> __be32 = 0;
    read_qp_num -> u32 = 0;
    read_src_qp -> u32 = 0;
    read_wc_flags -> c_uint = 0;
    read_slid -> u32 = 0;
    read_sl -> u8 = 0;
    read_dlid_path_bits -> u8 = 0;
    read_completion_ts -> u64 = 0;
    read_cvlan -> u16 = 0;
    read_flow_tag -> u32 = 0;
    read_completion_wallclock_ns -> u64 = 0;
}

unsafe extern "C" fn read_tm_info(cq: *mut ibv_cq_ex, info: *mut ibv_wc_tm_info) {
    let Some(record) = extended_queue_of(cq) else { return };
    // SAFETY: the program passes a struct that can be written, and reads the current completion.
    unsafe {
        match record.with_selected(|saved| saved.values.read_tm_info) {
            Some((tag, priv_)) => info.write(ibv_wc_tm_info { tag, priv_ }),
            None => {
                if let Some(read) = record.readers.read_tm_info.get() {
                    read(cq, info);
                }
            }
        }
    }
}
