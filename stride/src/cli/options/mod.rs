//! The options, a topic a file. What is none was not given.

mod control;
mod load;
mod messages;
mod network;
mod output;
mod place;

pub(super) use self::control::{ControlArgs, Meeting};
pub(super) use self::load::Load;
pub(super) use self::messages::{Atomic, Messages};
pub(super) use self::network::Network;
pub use self::output::Output;
pub(super) use self::place::{Local, Remote};

/// All options of a test.
#[derive(Debug, clap::Args)]
pub(super) struct Test {
    /// Name or address of the server; without it this is the server, unless --loopback is given.
    #[arg(value_name = "SERVER")]
    pub(super) server: Option<String>,
    #[command(flatten)]
    pub(super) local: Local,
    #[command(flatten)]
    pub(super) remote: Remote,
    #[command(flatten)]
    pub(super) messages: Messages,
    #[command(flatten)]
    pub(super) load: Load,
    #[command(flatten)]
    pub(super) network: Network,
    #[command(flatten)]
    pub(super) contact: ControlArgs,
    #[command(flatten)]
    pub(super) meeting: Meeting,
    #[command(flatten)]
    pub(super) output: Output,
}

/// The options of a server for any test.
#[derive(Debug, Default, clap::Args)]
pub(super) struct Server {
    #[command(flatten)]
    pub(super) local: Local,
    #[command(flatten)]
    pub(super) contact: ControlArgs,
}
