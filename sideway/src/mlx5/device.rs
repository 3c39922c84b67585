//! Whether a device is one of mlx5, what it reports beyond the verbs, and its clock.

use std::mem;

use rdma_mummy_sys::load;
use rdma_mummy_sys::mlx5dv::{
    self as sys, mlx5dv_clock_info, mlx5dv_context, mlx5dv_context_comp_mask as mask, mlx5dv_context_flags as flag_bits,
};

use crate::error::{Errno, VerbError};
use crate::ffi::check_errno;
use crate::ibverbs::device::DeviceInfo;
use crate::ibverbs::device_context::DeviceContext;

/// `mlx5dv_is_supported(device)` — whether a device is one of mlx5: `false` where libmlx5 is not installed, and for devices of
/// providers in this process.
///
/// # References
///
/// [mlx5dv_is_supported(3)](https://man7.org/linux/man-pages/man3/mlx5dv_is_supported.3.html)
#[doc(alias = "mlx5dv_is_supported")]
pub fn is_mlx5<D: DeviceInfo>(device: &D) -> bool {
    // SAFETY: the device is live as long as the value.
    unsafe { sys::mlx5dv_is_supported(device.device()) }
}

/// Sees to it that a device is one of mlx5.
///
/// # Errors
///
/// `EOPNOTSUPP` with the reason, as `verb` would have it.
pub(super) fn require(verb: &'static str, context: &DeviceContext) -> Result<(), VerbError> {
    if is_mlx5(context) {
        return Ok(());
    }
    Err(explain(VerbError::new(verb, Errno::EOPNOTSUPP), context))
}

/// Says why libmlx5 does not have a function for a device.
#[cold]
pub(super) fn explain(error: VerbError, context: &DeviceContext) -> VerbError {
    if error.errno().raw() != libc::EOPNOTSUPP || error.hint().is_some() {
        return error;
    }
    match load::mlx5::library() {
        Err(missing) => error.with_hint(missing.to_string()),
        Ok(_) if !is_mlx5(context) => error.with_hint(format!("{} is not an mlx5 device", context.name())),
        Ok(_) => error.with_hint("the device, its kernel driver or libmlx5 is too old for it"),
    }
}

bitflags::bitflags! {
    /// `enum mlx5dv_context_flags`: what a device has.
    #[doc(alias = "mlx5dv_context_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Mlx5DeviceFlags: u64 {
        /// Completions are of version 1.
        const CompletionVersion1 = flag_bits::MLX5DV_CONTEXT_FLAGS_CQE_V1.0 as u64;
        /// Several packets in one request.
        const MultiPacketAllowed = flag_bits::MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED.0 as u64;
        /// The same, with inline data.
        const EnhancedMultiPacket = flag_bits::MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW.0 as u64;
        /// Compressed completions of 128 bytes.
        const Compressed128ByteCompletions = flag_bits::MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP.0 as u64;
        /// Padded completions of 128 bytes.
        const Padded128ByteCompletions = flag_bits::MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD.0 as u64;
        /// Credits by packet.
        const PacketBasedCreditMode = flag_bits::MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE.0 as u64;
        /// Time stamps of completions are nanoseconds, not cycles.
        const RealTimeTimestamps = flag_bits::MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS.0 as u64;
        // Later rdma-core versions' flags pass through.
        const _ = !0;
    }
}

/// `struct mlx5dv_dci_streams`: how many streams of an initiator work side by side, and how many may fail before it does, as
/// powers of two (binary logarithms).
#[doc(alias = "mlx5dv_dci_streams")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DciStreams {
    /// The logarithm of the number of streams.
    pub log_num_concurrent: u8,
    /// The logarithm of the number of streams in error.
    pub log_num_errored: u8,
}

/// `struct mlx5dv_context`: what an mlx5 device says of itself beyond the verbs.
#[doc(alias = "mlx5dv_context")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlx5DeviceAttr {
    version: u8,
    flags: Mlx5DeviceFlags,
    max_clock_info_update_nsec: Option<u64>,
    num_lag_ports: Option<u8>,
    dci_streams: Option<DciStreams>,
}

/// The fields that are asked for.
const ASKED: mask = mask(
    mask::MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE.0
        | mask::MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS.0
        | mask::MLX5DV_CONTEXT_MASK_DCI_STREAMS.0,
);

impl Mlx5DeviceAttr {
    fn from_raw(raw: &mlx5dv_context) -> Self {
        let given = |field: mask| raw.comp_mask & u64::from(field.0) != 0;
        let streams = DciStreams {
            log_num_concurrent: raw.dci_streams_caps.max_log_num_concurent,
            log_num_errored: raw.dci_streams_caps.max_log_num_errored,
        };
        let has_streams = given(mask::MLX5DV_CONTEXT_MASK_DCI_STREAMS) && streams.log_num_concurrent > 0;
        Self {
            version: raw.version,
            flags: Mlx5DeviceFlags::from_bits_retain(raw.flags),
            max_clock_info_update_nsec: given(mask::MLX5DV_CONTEXT_MASK_CLOCK_INFO_UPDATE)
                .then_some(raw.max_clock_info_update_nsec),
            num_lag_ports: given(mask::MLX5DV_CONTEXT_MASK_NUM_LAG_PORTS).then_some(raw.num_lag_ports),
            dci_streams: has_streams.then_some(streams),
        }
    }

    /// The version of the layout of the device's queues.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// What the device has.
    pub fn flags(&self) -> Mlx5DeviceFlags {
        self.flags
    }

    /// Nanoseconds for which a [`ClockInfo`](super::ClockInfo) is good at most; `None` where it is not known.
    pub fn max_clock_info_update_nsec(&self) -> Option<u64> {
        self.max_clock_info_update_nsec
    }

    /// Ports that the device bundles into one; `None` where it is not known.
    pub fn num_lag_ports(&self) -> Option<u8> {
        self.num_lag_ports
    }

    /// The most streams that an initiator of dynamic connections can have; `None` where it is not known, or there are none.
    pub fn dci_streams(&self) -> Option<DciStreams> {
        self.dci_streams
    }
}

impl DeviceContext {
    /// `mlx5dv_query_device(ctx_in, attrs_out)` — asks an mlx5 device what it has beyond the verbs.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` where the device is not one of mlx5, or libmlx5 is not installed: the hint tells which.
    ///
    /// # References
    ///
    /// [mlx5dv_query_device(3)](https://man7.org/linux/man-pages/man3/mlx5dv_query_device.3.html)
    #[doc(alias = "mlx5dv_query_device")]
    pub fn query_mlx5_device(&self) -> Result<Mlx5DeviceAttr, VerbError> {
        const VERB: &str = "mlx5dv_query_device";
        // SAFETY: all-zero is legal: the struct has integers and a nullable pointer alone.
        let mut raw: mlx5dv_context = unsafe { mem::zeroed() };
        raw.comp_mask = ASKED.0.into();
        // SAFETY: the context is open as long as `self`. The library fills in fields that were asked for, which the struct has.
        let ret = unsafe { sys::mlx5dv_query_device(self.raw(), &mut raw) };
        check_errno(VERB, ret).map_err(|error| explain(error, self))?;
        Ok(Mlx5DeviceAttr::from_raw(&raw))
    }
}

/// `struct mlx5dv_clock_info`: how cycles of the device's clock become nanoseconds, as of the moment when it was asked for.
#[doc(alias = "mlx5dv_clock_info")]
#[derive(Clone, Copy, Debug)]
pub struct ClockInfo {
    raw: mlx5dv_clock_info,
}

impl ClockInfo {
    /// `mlx5dv_ts_to_ns(clock_info, device_timestamp)` — the time stamp of a completion, in cycles of the device's clock, as
    /// nanoseconds of the wall clock. It may lie before or behind the moment when the information was asked for; the further
    /// off, the less exact, up to [`max_clock_info_update_nsec`](super::Mlx5DeviceAttr::max_clock_info_update_nsec).
    ///
    /// # References
    ///
    /// [mlx5dv_ts_to_ns(3)](https://man7.org/linux/man-pages/man3/mlx5dv_ts_to_ns.3.html)
    #[doc(alias = "mlx5dv_ts_to_ns")]
    #[inline]
    pub fn timestamp_to_ns(&self, device_timestamp: u64) -> u64 {
        // SAFETY: the function only reads the struct.
        unsafe { sys::mlx5dv_ts_to_ns((&raw const self.raw).cast_mut(), device_timestamp) }
    }
}

impl DeviceContext {
    /// `mlx5dv_get_clock_info(context, clock_info)` — asks how the device's clock stands against the wall's. The driver keeps
    /// that in memory: no device is asked, and asking often is cheap.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device is not one of mlx5, or libmlx5 is not installed (the hint tells which), or the kernel does not
    ///   tell.
    /// - `EINVAL`: the kernel does not tell.
    ///
    /// # References
    ///
    /// [mlx5dv_get_clock_info(3)](https://man7.org/linux/man-pages/man3/mlx5dv_get_clock_info.3.html)
    #[doc(alias = "mlx5dv_get_clock_info")]
    pub fn mlx5_clock_info(&self) -> Result<ClockInfo, VerbError> {
        // SAFETY: all-zero is legal: the struct has integers alone.
        let mut raw: mlx5dv_clock_info = unsafe { mem::zeroed() };
        // SAFETY: the context is open as long as `self`, and the struct can be written.
        let ret = unsafe { sys::mlx5dv_get_clock_info(self.raw(), &mut raw) };
        check_errno("mlx5dv_get_clock_info", ret).map_err(|error| explain(error, self))?;
        Ok(ClockInfo { raw })
    }
}
