//! Segments of a pipeline.

use serde::{Deserialize, Serialize};

use crate::link::Peer;

/// A segment of a pipeline.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// The command, or a file that is lifted in or out.
    pub action: Action,
    /// Whether the segment has an input stream.
    pub has_input: bool,
    /// Where the output goes: to a peer that it connects to, or to the one that connects.
    pub next: Next,
}

/// What a segment does with its stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Runs a command of the shell.
    Run(String),
    /// Sends a file, after the input has ended.
    Read(String),
    /// Writes the input to a file.
    Write(String),
    /// Appends the input to a file.
    Append(String),
}

/// Where a segment's output goes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Next {
    /// To the next segment.
    Connect(Peer),
    /// To the starter, which connects.
    Accept,
}
