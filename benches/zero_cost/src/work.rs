//! The tasks of the loops, and their values.

use clap::ValueEnum;

/// Requests of a batch.
pub const BATCH: u32 = 32;

/// The task of one round of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Task {
    /// Post a write, and poll its completion
    #[value(name = "post1")]
    Post1,
    /// Post 32 writes in a batch, and poll their completions
    #[value(name = "post32")]
    Post32,
    /// Post a write, and read number, status and opcode of its completion with `start_poll` and `next`
    #[value(name = "steps1")]
    Steps1,
    /// Post 32 writes in a batch, and read their completions in the same way
    #[value(name = "steps32")]
    Steps32,
    /// Set the number of a write that was built before the loop, post it, and poll its completion
    #[value(name = "prepared1")]
    Prepared1,
    /// Post 32 writes that were built before the loop, and poll their completions
    #[value(name = "prepared32")]
    Prepared32,
    /// Post 32 writes that were built before the loop, with a new remote address for each
    #[value(name = "moved32")]
    Moved32,
    /// Post a send with inline data that outlives the batch, and poll its completion
    Inline,
    /// Post a send with inline data that need not outlive the call, and poll its completion
    InlineCopy,
    /// Poll up to 32 completed receives, and post as many again
    Refill,
    /// Poll 32 completions, and read the standard fields of each
    Standard,
    /// Poll 32 completions, and read every field of each
    Fields,
    /// Poll an empty queue
    Empty,
}

impl Task {
    /// The number of requests or completions of one round.
    pub fn requests(self) -> u32 {
        match self {
            Self::Post1 | Self::Steps1 | Self::Prepared1 | Self::Inline | Self::InlineCopy | Self::Empty => 1,
            Self::Post32 | Self::Steps32 | Self::Refill | Self::Standard | Self::Fields => BATCH,
            Self::Prepared32 | Self::Moved32 => BATCH,
        }
    }

    /// Whether the task posts sends.
    pub fn posts_sends(self) -> bool {
        self.polls_by_steps()
            || self.is_prepared()
            || matches!(self, Self::Post1 | Self::Post32 | Self::Inline | Self::InlineCopy)
    }

    /// Whether every column polls with `start_poll` and `next`.
    pub fn polls_by_steps(self) -> bool {
        matches!(self, Self::Steps1 | Self::Steps32)
    }

    /// Whether the task posts a list that was built before the loop; only the basic interface supports this.
    pub fn is_prepared(self) -> bool {
        matches!(self, Self::Prepared1 | Self::Prepared32 | Self::Moved32)
    }

    /// The name in the table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Post1 => "post 1, poll 1",
            Self::Post32 => "post 32, poll 32",
            Self::Steps1 => "post 1, 3 fields by steps",
            Self::Steps32 => "post 32, 3 fields by steps",
            Self::Prepared1 => "post a prepared list of 1",
            Self::Prepared32 => "post a prepared list of 32",
            Self::Moved32 => "post a prepared list of 32, moved",
            Self::Inline => "inline send, poll 1",
            Self::InlineCopy => "inline send by a copy, poll 1",
            Self::Refill => "refill 32 receives",
            Self::Standard => "read the standard fields",
            Self::Fields => "read every field",
            Self::Empty => "poll an empty queue",
        }
    }
}

/// The functions of C that a loop uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Interface {
    /// `ibv_wr_*`, and `ibv_start_poll` with its related functions
    Extended,
    /// `ibv_post_send`, `ibv_poll_cq`
    Basic,
}

/// The field values of the requests of a loop.
#[derive(Clone, Copy, Debug)]
pub struct Values {
    /// The address of local memory.
    pub addr: u64,
    /// The address of the peer's memory.
    pub remote_addr: u64,
    /// The length in bytes.
    pub length: u32,
    /// The local key.
    pub lkey: u32,
    /// The remote key.
    pub rkey: u32,
}

/// The inline data.
static BYTES: [u8; 32] = *b"thirty-two bytes of inline data.";

impl Values {
    /// The values of every loop.
    pub fn new() -> Self {
        Self { addr: 0x4000, remote_addr: 0x5000, length: BYTES.len() as u32, lkey: 7, rkey: 9 }
    }

    /// The inline data, with a length that is not known at compile time.
    pub fn data(&self) -> &'static [u8] {
        BYTES.get(..self.length as usize).unwrap_or(&BYTES)
    }
}

impl Default for Values {
    fn default() -> Self {
        Self::new()
    }
}
