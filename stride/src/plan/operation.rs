//! What is done, and what of it is measured.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What is done with each message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// RDMA write.
    Write,
    /// RDMA write that takes a receive for its immediate.
    WriteWithImmediate,
    /// RDMA read.
    Read,
    /// Send into a receive.
    Send,
    /// Send with an immediate.
    SendWithImmediate,
    /// Atomic fetch-and-add, of eight bytes.
    FetchAdd,
    /// Atomic compare-and-swap, of eight bytes.
    CompareSwap,
}

impl Operation {
    /// The same without an immediate.
    pub fn without_immediate(self) -> Self {
        match self {
            Self::WriteWithImmediate => Self::Write,
            Self::SendWithImmediate => Self::Send,
            other => other,
        }
    }

    /// Whether each message takes a receive of the other side's.
    pub fn takes_receive(self) -> bool {
        matches!(self, Self::WriteWithImmediate | Self::Send | Self::SendWithImmediate)
    }

    /// Whether the data goes from the other side to the one that asks.
    pub fn fetches(self) -> bool {
        matches!(self, Self::Read | Self::FetchAdd | Self::CompareSwap)
    }

    /// Whether it is of eight bytes, whatever else is said.
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
        })
    }
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// Bytes and messages in a time.
    Bandwidth,
    /// The time of a message.
    Latency(Semantics),
}

/// From when to when a latency is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Semantics {
    /// Half of a message and its answer.
    Oneway,
    /// From the post to the completion.
    Ack,
    /// A message and its answer.
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

/// The service of the queue pairs.
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
    /// Dynamic connections, of mlx5 devices.
    Dc,
    /// Scalable reliable datagrams, of EFA devices.
    Srd,
}

impl Transport {
    /// That which devices alone have whose driver in the kernel has this name.
    pub fn of_driver(name: &str) -> Option<Self> {
        match name {
            "mlx5_core" => Some(Self::Dc),
            "efa" => Some(Self::Srd),
            _ => None,
        }
    }

    /// Whether messages are acknowledged.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Dc | Self::Srd)
    }

    /// Whether messages come, and are done, in the order in which they were sent.
    pub fn is_ordered(self) -> bool {
        self != Self::Srd
    }

    /// Whether it has the operation: as the InfiniBand specification says (volume 1, table 42), dynamic connections what a
    /// reliable connection has, and scalable reliable datagrams all but atomics.
    pub fn has(self, operation: Operation) -> bool {
        match self {
            Self::Rc | Self::Xrc | Self::Dc => true,
            Self::Srd => !operation.is_atomic(),
            Self::Uc => !operation.fetches(),
            Self::Ud => matches!(operation, Operation::Send | Operation::SendWithImmediate),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Xrc => "XRC",
            Self::Dc => "DC",
            Self::Srd => "SRD",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_may_have_a_service_of_their_own() {
        let of = ["mlx5_core", "efa", "mlx4_core", "softrnic", ""].map(Transport::of_driver);
        assert_eq!(of, [Some(Transport::Dc), Some(Transport::Srd), None, None, None]);
    }

    #[test]
    fn services_have_the_operations_of_the_specification() {
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
