//! The tests.

use clap::ValueEnum;

/// A test of both programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Test {
    WriteBw,
    ReadBw,
    SendBw,
    AtomicBw,
    WriteLat,
    ReadLat,
    SendLat,
    AtomicLat,
}

impl Test {
    /// The operation, in the name that both programs have.
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::WriteBw | Self::WriteLat => "write",
            Self::ReadBw | Self::ReadLat => "read",
            Self::SendBw | Self::SendLat => "send",
            Self::AtomicBw | Self::AtomicLat => "atomic",
        }
    }

    /// The measured quantity, in the name that both programs have.
    pub(crate) fn measure(self) -> &'static str {
        if self.is_latency() { "lat" } else { "bw" }
    }

    pub(crate) fn is_latency(self) -> bool {
        matches!(self, Self::WriteLat | Self::ReadLat | Self::SendLat | Self::AtomicLat)
    }

    /// Whether both sides wait for completions.
    pub(crate) fn takes_receives(self) -> bool {
        matches!(self, Self::SendBw | Self::SendLat)
    }

    /// Atomics have eight bytes.
    pub(crate) fn has_one_size(self) -> bool {
        matches!(self, Self::AtomicBw | Self::AtomicLat)
    }
}
