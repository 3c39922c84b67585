//! Detecting mlx5 devices, and querying their attributes that the verbs do not report, and their clock.

use std::mem;

use rdma_mummy_sys::load;
use rdma_mummy_sys::mlx5dv::{
    self as sys, mlx5dv_clock_info, mlx5dv_context, mlx5dv_context_comp_mask as mask, mlx5dv_context_flags as flag_bits,
};

use crate::error::{Errno, VerbError};
use crate::ffi::check_errno;
use crate::ibverbs::device::DeviceInfo;
use crate::ibverbs::device_context::DeviceContext;

/// `mlx5dv_is_supported(device)` — returns whether a device is an mlx5 device. Returns `false` if libmlx5 is not
/// installed, and for devices of in-process providers.
///
/// # References
///
/// [mlx5dv_is_supported(3)](https://man7.org/linux/man-pages/man3/mlx5dv_is_supported.3.html)
#[doc(alias = "mlx5dv_is_supported")]
pub fn is_mlx5<D: DeviceInfo>(device: &D) -> bool {
    // SAFETY: the device is live as long as the value.
    unsafe { sys::mlx5dv_is_supported(device.device()) }
}

/// Fails unless the device is an mlx5 device.
///
/// # Errors
///
/// Returns `EOPNOTSUPP` with the reason, as an error of `verb`.
pub(super) fn require(verb: &'static str, context: &DeviceContext) -> Result<(), VerbError> {
    if is_mlx5(context) {
        return Ok(());
    }
    Err(explain(VerbError::new(verb, Errno::EOPNOTSUPP), context))
}

/// Adds the reason why libmlx5 does not support a function on a device.
#[cold]
pub(super) fn explain(error: VerbError, context: &DeviceContext) -> VerbError {
    if error.errno().raw() != libc::EOPNOTSUPP || error.hint().is_some() {
        return error;
    }
    match load::mlx5::library() {
        Err(missing) => error.with_hint(missing.to_string()),
        Ok(_) if !is_mlx5(context) => error.with_hint(format!("{} is not an mlx5 device", context.name())),
        Ok(_) => error.with_hint(
            "the device, its kernel driver or libmlx5 is too old for this; upgrade the driver \
            and rdma-core",
        ),
    }
}

bitflags::bitflags! {
    /// `enum mlx5dv_context_flags`: features of a device.
    #[doc(alias = "mlx5dv_context_flags")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Mlx5DeviceFlags: u64 {
        /// Completions have the layout of version 1.
        const CompletionVersion1 = flag_bits::MLX5DV_CONTEXT_FLAGS_CQE_V1.0 as u64;
        /// A request can contain several packets.
        const MultiPacketAllowed = flag_bits::MLX5DV_CONTEXT_FLAGS_MPW_ALLOWED.0 as u64;
        /// One request can contain several packets with inline data.
        const EnhancedMultiPacket = flag_bits::MLX5DV_CONTEXT_FLAGS_ENHANCED_MPW.0 as u64;
        /// The device supports compressed completions of 128 bytes.
        const Compressed128ByteCompletions = flag_bits::MLX5DV_CONTEXT_FLAGS_CQE_128B_COMP.0 as u64;
        /// The device supports padded completions of 128 bytes.
        const Padded128ByteCompletions = flag_bits::MLX5DV_CONTEXT_FLAGS_CQE_128B_PAD.0 as u64;
        /// The device supports packet-based credits.
        const PacketBasedCreditMode = flag_bits::MLX5DV_CONTEXT_FLAGS_PACKET_BASED_CREDIT_MODE.0 as u64;
        /// Completion timestamps are in nanoseconds, not in cycles.
        const RealTimeTimestamps = flag_bits::MLX5DV_CONTEXT_FLAGS_REAL_TIME_TS.0 as u64;
        // Unnamed bits are kept.
        const _ = !0;
    }
}

/// `struct mlx5dv_dci_streams`: the number of concurrent streams of an initiator, and the number of failed streams
/// after which the initiator enters the Error state. Both are stored as binary logarithms.
#[doc(alias = "mlx5dv_dci_streams")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DciStreams {
    /// The logarithm of the number of concurrent streams.
    pub log_num_concurrent: u8,
    /// The logarithm of the number of failed streams.
    pub log_num_errored: u8,
}

/// `struct mlx5dv_context`: the attributes of an mlx5 device that the verbs do not report.
#[doc(alias = "mlx5dv_context")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mlx5DeviceAttr {
    version: u8,
    flags: Mlx5DeviceFlags,
    max_clock_info_update_nsec: Option<u64>,
    num_lag_ports: Option<u8>,
    dci_streams: Option<DciStreams>,
}

/// The fields that the query requests.
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

    /// Returns the layout version of the device's queues.
    pub fn version(&self) -> u8 {
        self.version
    }

    /// Returns the device's features.
    pub fn flags(&self) -> Mlx5DeviceFlags {
        self.flags
    }

    /// Returns how long a [`ClockInfo`](super::ClockInfo) is valid at most, in nanoseconds, or `None` if this is
    /// unknown.
    pub fn max_clock_info_update_nsec(&self) -> Option<u64> {
        self.max_clock_info_update_nsec
    }

    /// Returns the number of ports that are aggregated into one (LAG), or `None` if it is unknown.
    pub fn num_lag_ports(&self) -> Option<u8> {
        self.num_lag_ports
    }

    /// Returns the maximum numbers of streams of an initiator, or `None` if they are unknown or streams are
    /// unsupported.
    pub fn dci_streams(&self) -> Option<DciStreams> {
        self.dci_streams
    }
}

impl DeviceContext {
    /// `mlx5dv_query_device(ctx_in, attrs_out)` — queries the attributes of an mlx5 device that the verbs do not
    /// report.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP`: the device is not an mlx5 device, or libmlx5 is not installed; the hint reports which.
    ///
    /// # References
    ///
    /// [mlx5dv_query_device(3)](https://man7.org/linux/man-pages/man3/mlx5dv_query_device.3.html)
    #[doc(alias = "mlx5dv_query_device")]
    pub fn query_mlx5_device(&self) -> Result<Mlx5DeviceAttr, VerbError> {
        const VERB: &str = "mlx5dv_query_device";
        // SAFETY: all zeros are a valid value, because the struct has only integers and a nullable pointer.
        let mut raw: mlx5dv_context = unsafe { mem::zeroed() };
        raw.comp_mask = ASKED.0.into();
        // SAFETY: the context is open as long as `self` lives. The library fills in the requested fields, which the
        // struct has.
        let ret = unsafe { sys::mlx5dv_query_device(self.raw(), &mut raw) };
        check_errno(VERB, ret).map_err(|error| explain(error, self))?;
        Ok(Mlx5DeviceAttr::from_raw(&raw))
    }
}

/// `struct mlx5dv_clock_info`: the parameters, at the time of the query, for converting cycles of the device's clock to
/// nanoseconds.
#[doc(alias = "mlx5dv_clock_info")]
#[derive(Clone, Copy, Debug)]
pub struct ClockInfo {
    raw: mlx5dv_clock_info,
}

impl ClockInfo {
    /// `mlx5dv_ts_to_ns(clock_info, device_timestamp)` — converts the timestamp of a completion, in cycles of the
    /// device's clock, to nanoseconds of the wall clock. The timestamp may be older or newer than the query. The larger
    /// the difference between them, the less exact is the result. The difference must not exceed
    /// [`max_clock_info_update_nsec`](super::Mlx5DeviceAttr::max_clock_info_update_nsec).
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
    /// `mlx5dv_get_clock_info(context, clock_info)` — queries the parameters of the device's clock. The driver keeps
    /// them in memory, so the call does not access the device and is cheap.
    ///
    /// # Errors
    ///
    /// - `EOPNOTSUPP`: the device is not an mlx5 device, or libmlx5 is not installed; the hint reports which. Or the
    ///   kernel does not support the query.
    /// - `EINVAL`: the kernel does not support the query.
    ///
    /// # References
    ///
    /// [mlx5dv_get_clock_info(3)](https://man7.org/linux/man-pages/man3/mlx5dv_get_clock_info.3.html)
    #[doc(alias = "mlx5dv_get_clock_info")]
    pub fn mlx5_clock_info(&self) -> Result<ClockInfo, VerbError> {
        // SAFETY: all zeros are a valid value, because the struct has only integers.
        let mut raw: mlx5dv_clock_info = unsafe { mem::zeroed() };
        // SAFETY: the context is open as long as `self` lives, and the call may write to the struct.
        let ret = unsafe { sys::mlx5dv_get_clock_info(self.raw(), &mut raw) };
        check_errno("mlx5dv_get_clock_info", ret).map_err(|error| explain(error, self))?;
        Ok(ClockInfo { raw })
    }
}
