//! The options whose values do not become part of the plan unchanged. An option that was not given is `None`.

mod config;
mod control;
mod messages;
mod output;

pub(super) use self::config::{Local, Remote};
pub(super) use self::control::{ConnectArgs, ControlArgs};
pub(super) use self::messages::{Atomic, Load, Messages};
pub use self::output::Output;
use crate::plan::{Placement, QpAttributes, Queues, Sampling, Workload};

/// All options of a test.
#[derive(Debug, clap::Args)]
pub(super) struct Test {
    /// Host name or address of the server; if absent, run as the server.
    ///
    /// Not needed with --loopback.
    #[arg(value_name = "SERVER")]
    pub(super) server: Option<String>,
    #[command(flatten)]
    pub(super) local: Local,
    #[command(flatten)]
    pub(super) remote: Remote,
    #[command(flatten)]
    pub(super) messages: Messages,
    #[command(flatten)]
    pub(super) workload: Workload,
    #[command(flatten)]
    pub(super) load: Load,
    #[command(flatten)]
    pub(super) queues: Queues,
    #[command(flatten)]
    pub(super) placement: Placement,
    #[command(flatten)]
    pub(super) attributes: QpAttributes,
    #[command(flatten)]
    pub(super) contact: ControlArgs,
    #[command(flatten)]
    pub(super) connect: ConnectArgs,
    #[command(flatten)]
    pub(super) sampling: Sampling,
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
