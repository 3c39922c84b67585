//! What is measured, and what a loop gets.

use clap::ValueEnum;

/// Requests of a batch.
pub const BATCH: u32 = 32;

/// What one round of a loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Task {
    /// Posts a write, and takes its completion
    #[value(name = "post1")]
    Post1,
    /// Posts 32 writes at once, and takes their completions
    #[value(name = "post32")]
    Post32,
    /// Posts a write, and reads number, status and opcode of its completion, by `start_poll` and `next`
    #[value(name = "steps1")]
    Steps1,
    /// Posts 32 writes at once, and reads their completions in the same way
    #[value(name = "steps32")]
    Steps32,
    /// Posts a send with inline data that outlives the batch, and takes its completion
    Inline,
    /// The same with data that need not outlive the call
    InlineCopy,
    /// Takes up to 32 completed receives, and posts as many again
    Refill,
    /// Takes 32 completions, and reads the standard fields of each
    Standard,
    /// Takes 32 completions, and reads every field of each
    Fields,
    /// Asks a queue that is empty
    Empty,
}

impl Task {
    /// How many requests or completions one round has.
    pub fn requests(self) -> u32 {
        match self {
            Self::Post1 | Self::Steps1 | Self::Inline | Self::InlineCopy | Self::Empty => 1,
            Self::Post32 | Self::Steps32 | Self::Refill | Self::Standard | Self::Fields => BATCH,
        }
    }

    /// Whether it posts sends.
    pub fn posts_sends(self) -> bool {
        self.polls_by_steps() || matches!(self, Self::Post1 | Self::Post32 | Self::Inline | Self::InlineCopy)
    }

    /// Whether every column polls by `start_poll` and `next`.
    pub fn polls_by_steps(self) -> bool {
        matches!(self, Self::Steps1 | Self::Steps32)
    }

    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Post1 => "post 1, poll 1",
            Self::Post32 => "post 32, poll 32",
            Self::Steps1 => "post 1, 3 fields by steps",
            Self::Steps32 => "post 32, 3 fields by steps",
            Self::Inline => "inline send, poll 1",
            Self::InlineCopy => "inline send by a copy, poll 1",
            Self::Refill => "refill 32 receives",
            Self::Standard => "read the standard fields",
            Self::Fields => "read every field",
            Self::Empty => "poll an empty queue",
        }
    }
}

/// Which functions of C a loop comes down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Interface {
    /// `ibv_wr_*`, `ibv_start_poll` and what follows it
    Extended,
    /// `ibv_post_send`, `ibv_poll_cq`
    Basic,
}

/// What the requests of a loop say.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// Where the memory of this side begins.
    pub addr: u64,
    /// Where that of the peer begins.
    pub remote_addr: u64,
    /// Bytes.
    pub length: u32,
    /// The key of the memory of this side.
    pub lkey: u32,
    /// That of the peer's.
    pub rkey: u32,
}

/// Bytes that inline data is taken from.
static BYTES: [u8; 32] = *b"thirty-two bytes of inline data.";

impl Words {
    /// Those of every loop.
    pub fn new() -> Self {
        Self { addr: 0x4000, remote_addr: 0x5000, length: BYTES.len() as u32, lkey: 7, rkey: 9 }
    }

    /// The inline data: the same bytes, by their length at run time.
    pub fn data(&self) -> &'static [u8] {
        BYTES.get(..self.length as usize).unwrap_or(&BYTES)
    }
}

impl Default for Words {
    fn default() -> Self {
        Self::new()
    }
}
