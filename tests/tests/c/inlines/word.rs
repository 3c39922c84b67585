//! Arguments and return values as plain numbers.

use rdma_mummy_sys::{ib_uverbs_advise_mr_advice, ibv_mw_type, ibv_qp_type, ibv_wc_opcode};

/// A type that fits a register.
pub(crate) trait Word: Copy {
    fn word(self) -> u64;
    fn from_word(word: u64) -> Self;
}

impl Word for () {
    fn word(self) -> u64 {
        0
    }

    fn from_word(_: u64) -> Self {}
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl Word for $type {
            fn word(self) -> u64 {
                self as u64
            }

            fn from_word(word: u64) -> Self {
                word as Self
            }
        }
    )*};
}

integers!(u8, u16, u32, u64, usize, i32, isize);

macro_rules! enums {
    ($($type:ident),*) => {$(
        impl Word for $type {
            fn word(self) -> u64 {
                self.0.into()
            }

            fn from_word(word: u64) -> Self {
                $type(word as u32)
            }
        }
    )*};
}

enums!(ib_uverbs_advise_mr_advice, ibv_mw_type, ibv_qp_type, ibv_wc_opcode);

impl<T> Word for *const T {
    fn word(self) -> u64 {
        self.expose_provenance() as u64
    }

    fn from_word(word: u64) -> Self {
        std::ptr::with_exposed_provenance(word as usize)
    }
}

impl<T> Word for *mut T {
    fn word(self) -> u64 {
        self.expose_provenance() as u64
    }

    fn from_word(word: u64) -> Self {
        std::ptr::with_exposed_provenance_mut(word as usize)
    }
}
