//! Queue pairs whose programs tell each other by TCP where they are.

use anyhow::Result;
use sideway::ibverbs::device_context::PortAttr;

use super::Carrier;
use crate::exchange::Address;
use crate::{LocalPort, check_message_size};

/// A [`Carrier`] that is connected by hand, with what the peer's program has told of its queue pairs.
pub trait Link: Carrier {
    /// Addresses that each side tells, where that is the same number however many queue pairs it has: those behind its own
    /// are zero. Else it tells its own.
    const ADDRESSES_TOLD: Option<usize> = None;

    /// Whether messages of `size` bytes can be sent from this port.
    ///
    /// # Errors
    ///
    /// How long they may be.
    fn check_size(port: &PortAttr, size: u32) -> Result<()> {
        check_message_size(port, size)
    }

    /// What the peer must know: one address for each queue pair, always in the same order.
    fn addresses(&self) -> Vec<Address>;

    /// Brings the queue pairs from INIT to RTS, where they send to these of the peer; as many as there are
    /// [addresses](Self::addresses).
    ///
    /// # Errors
    ///
    /// A sentence for the user.
    fn connect(&mut self, port: &LocalPort, remotes: &[Address]) -> Result<()>;
}
