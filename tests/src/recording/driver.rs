//! Faults of rdma-core's drivers that would crash a program. The recording device behaves like one of these drivers,
//! and logs a violation when the driver would access memory out of bounds.

use std::ffi::c_void;
use std::path::Path;

use libc::c_int;
use rdma_mummy_sys as ffi;

use super::completion;
use crate::requirements::c_compiler;

/// An action that a driver performs without a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Extended: copies inline data of any length.
    InlineOfAnyLength,
    /// Extended: reads the first entry of a list, also of an empty one.
    FirstOfNone,
    /// Dereferences the region of `ibv_bind_mw`.
    NullRegion,
    /// Has no memory for a completion queue after a failed resize.
    ResizeLosesQueue,
    /// Basic: looks an opcode up in a table of 12.
    TableOfOpcodes,
    /// Writes the key of a bind request into the window.
    BindWritesKey,
}

/// A driver of rdma-core.
#[derive(Clone, Copy, Debug)]
pub struct Driver {
    /// The name in the driver's file name, `lib{name}-rdmavNN.so`.
    pub name: &'static str,
    pub(super) faults: &'static [Fault],
}

impl Driver {
    /// Broadcom.
    pub const BNXT_RE: Self = Self { name: "bnxt_re", faults: &[Fault::InlineOfAnyLength, Fault::ResizeLosesQueue] };
    /// HiSilicon. (Its sum of the lengths of inline data wraps.)
    pub const HNS: Self = Self { name: "hns", faults: &[Fault::InlineOfAnyLength, Fault::FirstOfNone] };
    /// Soft-RoCE.
    pub const RXE: Self = Self { name: "rxe", faults: &[Fault::NullRegion, Fault::ResizeLosesQueue] };
    /// ConnectX-3.
    pub const MLX4: Self = Self { name: "mlx4", faults: &[Fault::NullRegion] };
    /// ConnectX-4 and later.
    pub const MLX5: Self = Self { name: "mlx5", faults: &[] };
    /// Intel.
    pub const IRDMA: Self = Self { name: "irdma", faults: &[Fault::NullRegion, Fault::BindWritesKey] };
    /// Pensando. (It cuts the length of inline data to 32 bits.)
    pub const IONIC: Self = Self { name: "ionic", faults: &[Fault::NullRegion, Fault::InlineOfAnyLength] };
    /// Soft-iWARP.
    pub const SIW: Self = Self { name: "siw", faults: &[Fault::TableOfOpcodes] };

    /// All drivers.
    pub const ALL: [Self; 8] =
        [Self::BNXT_RE, Self::HNS, Self::RXE, Self::MLX4, Self::MLX5, Self::IRDMA, Self::IONIC, Self::SIW];
}

pub(super) type PollCq = unsafe extern "C" fn(*mut ffi::ibv_cq, c_int, *mut ffi::ibv_wc) -> c_int;

/// Returns a polling function from a file with the driver's name. Without a C compiler, prints a message and returns
/// `None`.
pub(super) fn poll_cq_of(driver: Driver, directory: &Path) -> Option<PollCq> {
    const SOURCE: &str = "int (*recording_poll)(void *, int, void *);\n\
                          int poll_cq(void *cq, int n, void *wc) { return recording_poll(cq, n, wc); }\n";
    let name = format!("{}-rdmav99", driver.name);
    let library = c_compiler()?.load(directory, &name, SOURCE, &[]);
    // SAFETY: the source above defines both symbols with these types, and the library stays loaded.
    unsafe {
        let target = library.get::<*mut *mut c_void>(b"recording_poll\0").unwrap_or_else(|error| panic!("{error}"));
        target.write(completion::poll_cq as PollCq as *mut c_void);
        let poll_cq = *library.get::<PollCq>(b"poll_cq\0").unwrap_or_else(|error| panic!("{error}"));
        std::mem::forget(library);
        Some(poll_cq)
    }
}
