//! What a device does to raw packets, and what its driver has to know before it is asked for that.
//!
//! A driver that refuses a request as it is begun leaves it without a place for its data; mlx5's setters of data do not look, and
//! write to where the place of a request before was, or close to null. So what it would refuse does not reach it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::SendOperationFlags;
use crate::ibverbs::device_context::{DeviceCapabilityFlags, DeviceContext, LinkLayer};
use crate::ibverbs::work_request::RefusalReason;

/// Bytes of an Ethernet header: none of a packet is shorter.
const LEAST_HEADER: usize = 14;

/// The bytes that the header of a segmented send may have: those that a queue pair was built for, or none where it was not built
/// for such sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentHeaders(pub(crate) Option<u16>);

impl SegmentHeaders {
    /// The length of a header that the driver takes.
    #[inline]
    pub(crate) fn check(self, given: usize) -> Result<u16, RefusalReason> {
        let Some(limit) = self.0 else {
            return Err(RefusalReason::NotEnabled(SendOperationFlags::TcpSegmentationOffload));
        };
        match u16::try_from(given) {
            Ok(_) if given < LEAST_HEADER => Err(RefusalReason::HeaderTooShort { given, least: LEAST_HEADER }),
            Ok(length) if length <= limit => Ok(length),
            _ => Err(RefusalReason::HeaderTooLong { given, limit: limit.into() }),
        }
    }
}

/// Whether the driver lets the device write checksums into packets of a queue pair. It finds out when the queue pair is given a
/// port, which threads other than the one that posts may do.
#[derive(Debug, Default)]
pub(crate) struct PacketOffloads {
    checksums: AtomicBool,
}

impl PacketOffloads {
    /// The driver was given this port. What it once found, stays.
    pub(crate) fn note_port(&self, context: &DeviceContext, port: u8) {
        let writes = context
            .query_device()
            .is_ok_and(|device| device.device_cap_flags().contains(DeviceCapabilityFlags::RawIpChecksum));
        if writes && context.query_port(port).is_ok_and(|port| port.link_layer() == LinkLayer::Ethernet) {
            // Who sees this sees what the driver has written before.
            self.checksums.store(true, Ordering::Release);
        }
    }

    /// Why a request that asks for checksums is refused.
    #[inline]
    pub(crate) fn refuses_checksums(&self) -> Option<RefusalReason> {
        if self.checksums.load(Ordering::Acquire) {
            return None;
        }
        Some(RefusalReason::Invalid(
            "IpChecksum needs a queue pair that was given an Ethernet port (modify it to Init with setup_port) of a device with \
             RawIpChecksum (DeviceAttr::device_cap_flags): else leave it out",
        ))
    }
}
