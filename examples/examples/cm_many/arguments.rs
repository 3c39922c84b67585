//! The command line.

use clap::Parser;
use sideway_examples::cm::Crowd;

const ABOUT: &str = "\
Makes a crowd of connections by address, sends a message to and fro on each, and ends them, all on one thread and one event \
channel: the program sleeps in poll(2) until an event or a completion comes, and takes the connection that it is of one step further.

Without HOST both sides are in this program. With --listen it serves as many connections as --connections says and ends; with HOST it \
makes as many.";

const EXAMPLES: &str = "\
Examples:
  cm_many                                 200 connections of this program with itself, by the first device
  cm_many -n 1000 --at-once 100           1000, no more than 100 at a time
  cm_many --listen -n 500                 on the first machine
  cm_many -n 500 server.example.org       on the second

Exit status: 0 when every message came back, 1 when something failed, 2 for arguments that make no sense.";

/// Drive many connections on one thread, with poll(2)
#[derive(Clone, Debug, Parser)]
#[command(name = "cm_many", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) crowd: Crowd,

    /// Connections that are made and used at a time; a listener has room for 1024 that nobody has looked at yet
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) at_once: u32,
}
