//! Segments of a pipeline.

use serde::{Deserialize, Serialize};

use crate::proto::Peer;

/// A segment of a pipeline, as the starter describes it to the far side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Segment {
    /// The command, or a file to read or write.
    pub action: Action,
    /// The name of the peer that sends the input, for errors.
    pub previous: String,
    /// Whether the segment has an input stream.
    pub has_input: bool,
    /// The peer that receives the output: the segment connects to it, or accepts its connection.
    pub next: Next,
}

/// What a segment does with its stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Action {
    /// Runs a command of the shell.
    Run(String),
    /// Sends a file after the input has ended.
    Read(String),
    /// Writes the input to a file.
    Write(String),
    /// Appends the input to a file.
    Append(String),
}

/// The receiver of a segment's output.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Next {
    /// The next segment.
    Connect(Peer),
    /// The starter, which connects to this segment.
    Accept,
}
