//! The command line.

use clap::{Parser, ValueEnum};
use sideway_examples::units::parse_timeout;
use sideway_examples::{PortChoice, Timeout};

const ABOUT: &str = "\
Gives a peer leave to use a part of a region, by a memory window of type 2, and takes it back: step by step, each of which is \
printed.

The owner has a region that no peer can reach. It binds a window to a part of it, under a key of the window's own, and tells the \
peer the key. The peer reads and writes there. Then the key is invalidated: by the owner, by a request on its own queue pair, or \
by the peer, which gives it back with a message (send with invalidate). What the peer tries after that, the owner's device \
refuses, and the connection ends.

Both sides are in this process, with a queue pair each: the device does not know the difference.";

const EXAMPLES: &str = "\
Examples:
  memory_window                          the owner takes the key back; then anew, and the peer gives it back
  memory_window -d mlx5_0 --by peer      another device, and the second half alone

Exit status: 0 when everything went as told above, 1 when it did not or something failed, 2 for arguments that make no sense.";

/// Give a peer a part of a region through a memory window, and take it back
#[derive(Clone, Debug, Parser)]
#[command(name = "memory_window", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) port_choice: PortChoice,

    /// Who invalidates the key
    #[arg(long, value_enum, value_name = "SIDE", default_value_t = By::Both)]
    pub(crate) by: By,

    /// Give up when nothing completes for so long; 0 waits for ever
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = parse_timeout)]
    pub(crate) timeout: Timeout,
}

/// Which sides, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    /// The one whose memory it is
    Owner,
    /// The one that has used it
    Peer,
    /// First the one, then, with a new connection, the other
    Both,
}

impl By {
    /// One by one.
    pub(crate) fn sides(self) -> &'static [Self] {
        match self {
            Self::Owner => &[Self::Owner],
            Self::Peer => &[Self::Peer],
            Self::Both => &[Self::Owner, Self::Peer],
        }
    }
}
