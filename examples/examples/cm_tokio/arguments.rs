//! The command line.

use clap::Parser;
use sideway_examples::cm::Crowd;

const ABOUT: &str = "\
Makes a crowd of connections by address, each of them a task of the tokio runtime, and serves them by tasks as well: an accept loop \
takes requests and starts a task for each. On a connection a message goes to and fro. One task takes all events off the event \
channel and hands them to whom they concern.

Without HOST both sides are in this program. With --listen it serves as many connections as --connections says and ends; with HOST it \
makes as many.";

const EXAMPLES: &str = "\
Examples:
  cm_tokio                                 200 connections of this program with itself, by the first device
  cm_tokio --listen -n 500                 on the first machine
  cm_tokio -n 500 server.example.org       on the second

Exit status: 0 when every message came back, 1 when something failed, 2 for arguments that make no sense.";

/// Make and serve many connections in an async runtime
#[derive(Clone, Debug, Parser)]
#[command(name = "cm_tokio", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) crowd: Crowd,
}
