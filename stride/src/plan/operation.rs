//! The operation and the kind of measurement.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The operation of each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// RDMA write.
    Write,
    /// RDMA write with immediate data, which consumes a receive.
    WriteWithImmediate,
    /// RDMA read.
    Read,
    /// Send.
    Send,
    /// Send with immediate data.
    SendWithImmediate,
    /// 8-byte fetch-and-add.
    FetchAdd,
    /// 8-byte compare-and-swap.
    CompareSwap,
    /// Message of the trespass library.
    Message,
}

impl Operation {
    /// Returns the same operation without immediate data.
    pub fn without_immediate(self) -> Self {
        match self {
            Self::WriteWithImmediate => Self::Write,
            Self::SendWithImmediate => Self::Send,
            other => other,
        }
    }

    /// Whether each message consumes a receive of the peer.
    pub fn takes_receive(self) -> bool {
        matches!(self, Self::WriteWithImmediate | Self::Send | Self::SendWithImmediate)
    }

    /// Whether data flows from the responder to the requester.
    pub fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::FetchAdd | Self::CompareSwap)
    }

    /// Whether the size is always eight bytes.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd | Self::CompareSwap)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Write => "write",
            Self::WriteWithImmediate => "write with immediate",
            Self::Read => "read",
            Self::Send => "send",
            Self::SendWithImmediate => "send with immediate",
            Self::FetchAdd => "fetch-and-add",
            Self::CompareSwap => "compare-and-swap",
            Self::Message => "message",
        })
    }
}

/// The kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Bandwidth and message rate.
    Bandwidth,
    /// Latency of a message, measured between these points in time.
    Latency(Semantics),
}

/// The points in time between which a latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Semantics {
    /// Half of the time from the post to the arrival of the peer's response.
    Oneway,
    /// The time from the post to the completion of the request.
    Ack,
    /// The whole time from the post to the arrival of the peer's response.
    Rtt,
}

impl fmt::Display for Semantics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Oneway => "oneway",
            Self::Ack => "ack",
            Self::Rtt => "rtt",
        })
    }
}

/// The transport of the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagrams.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Dynamically connected transport, which mlx5 devices support.
    Dc,
    /// Scalable reliable datagrams, which EFA devices support.
    Srd,
}

/// Returns the module of a kernel driver: `mlx5_core` also for `mlx5_core.sf`, the driver of subfunctions.
pub fn family(driver: &str) -> &str {
    driver.split('.').next().unwrap_or(driver)
}

impl Transport {
    /// Returns the vendor's transport that devices with this kernel driver support, if there is one.
    pub fn of_driver(name: &str) -> Option<Self> {
        match family(name) {
            "mlx5_core" => Some(Self::Dc),
            "efa" => Some(Self::Srd),
            _ => None,
        }
    }

    /// Returns the name of the transport in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Xrc => "XRC",
            Self::Dc => "DC",
            Self::Srd => "SRD",
        }
    }

    /// Whether the peer acknowledges messages, so that none is lost silently.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Dc | Self::Srd)
    }

    /// Whether messages arrive and complete in order.
    pub fn is_ordered(self) -> bool {
        self != Self::Srd
    }

    /// Whether the transport supports the operation. RC, UC, UD and XRC support what the InfiniBand specification
    /// (volume 1, table 42) requires, DC supports the same as RC, and SRD supports everything but atomics. Only RC
    /// supports messages of trespass.
    pub fn has(self, operation: Operation) -> bool {
        match self {
            _ if operation == Operation::Message => self == Self::Rc,
            Self::Rc | Self::Xrc | Self::Dc => true,
            Self::Srd => !operation.is_atomic(),
            Self::Uc => !operation.fetches(),
            Self::Ud => matches!(operation, Operation::Send | Operation::SendWithImmediate),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn driver_name_selects_its_transport() {
        let of = ["mlx5_core", "mlx5_core.sf", "efa", "mlx4_core", "softrnic", ""].map(Transport::of_driver);
        assert_eq!(of, [Some(Transport::Dc), Some(Transport::Dc), Some(Transport::Srd), None, None, None]);
    }

    #[test]
    fn transports_support_the_operations_of_the_specification() {
        use Operation::{CompareSwap, FetchAdd, Read, Send, SendWithImmediate, Write, WriteWithImmediate};
        let all = [Write, WriteWithImmediate, Read, Send, SendWithImmediate, FetchAdd, CompareSwap];
        let of = |transport: Transport| all.map(|operation| transport.has(operation));
        assert_eq!(of(Transport::Rc), [true; 7]);
        assert_eq!(of(Transport::Xrc), [true; 7]);
        assert_eq!(of(Transport::Dc), [true; 7]);
        assert_eq!(of(Transport::Srd), [true, true, true, true, true, false, false]);
        assert_eq!(of(Transport::Uc), [true, true, false, true, true, false, false]);
        assert_eq!(of(Transport::Ud), [false, false, false, true, true, false, false]);
    }
}
