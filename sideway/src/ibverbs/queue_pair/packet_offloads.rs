//! Offloads for raw packets, and what this crate checks before requesting them from the driver.
//!
//! If a driver rejects a request when it is started, the request has no queue entry. The data setters of mlx5 do not
//! check this. They then write to the entry of an earlier request, or to an address near null. So this crate does not
//! pass such requests to the driver.

use std::sync::atomic::{AtomicBool, Ordering};

use super::SendOperationFlags;
use crate::ibverbs::device_context::{DeviceCapabilityFlags, DeviceContext, LinkLayer};
use crate::ibverbs::work_request::RefusalReason;

/// The length of an Ethernet header, the minimum of a packet.
const LEAST_HEADER: usize = 14;

/// The maximum header of a segmented send, or `None` if the queue pair was not built for such sends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SegmentHeaders(pub(crate) Option<u16>);

impl SegmentHeaders {
    /// Returns the header length, if the driver accepts that length.
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

/// Whether the driver lets the device write checksums into packets of a queue pair. The answer is known once the queue
/// pair has a port. That port may be set by another thread than the one that posts.
#[derive(Debug, Default)]
pub(crate) struct PacketOffloads {
    checksums: AtomicBool,
}

impl PacketOffloads {
    /// Records the port that was passed to the driver. Once checksums were found to be supported, that result is kept.
    pub(crate) fn note_port(&self, context: &DeviceContext, port: u8) {
        let writes = context
            .query_device()
            .is_ok_and(|device| device.device_cap_flags().contains(DeviceCapabilityFlags::RawIpChecksum));
        if writes && context.query_port(port).is_ok_and(|port| port.link_layer() == LinkLayer::Ethernet) {
            // A thread that reads this flag also sees the driver's earlier writes.
            self.checksums.store(true, Ordering::Release);
        }
    }

    /// Returns the reason why a request for checksums is rejected.
    #[inline]
    pub(crate) fn refuses_checksums(&self) -> Option<RefusalReason> {
        if self.checksums.load(Ordering::Acquire) {
            return None;
        }
        Some(RefusalReason::Invalid(
            "IpChecksum needs a queue pair with an Ethernet port (modify it to Init with setup_port) of a device \
            with RawIpChecksum (DeviceAttr::device_cap_flags); otherwise omit it",
        ))
    }
}
