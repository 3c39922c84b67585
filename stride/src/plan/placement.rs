//! Where the sides are, and how their memory is registered.

use clap::{ArgAction, Args};
use serde::{Deserialize, Serialize};

use super::SideConfig;

/// Where the sides are, and how their memory is registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Args)]
#[command(next_help_heading = "Memory")]
pub struct Placement {
    /// The device writes to memory in order (PCIe); it always does where a latency watches memory.
    #[arg(long = "no-relaxed-ordering", action = ArgAction::SetFalse)]
    pub is_relaxed: bool,
    /// Memory is not pinned: the devices of both sides ask for its pages as they use them (on-demand paging).
    #[serde(default)]
    #[arg(long = "odp")]
    pub is_on_demand: bool,
    /// Each queue pair has memory regions of its own, with keys of their own, rather than a part of those of its thread.
    #[serde(default)]
    #[arg(long = "mr-per-qp")]
    pub has_own_regions: bool,
    /// Where the client is.
    #[arg(skip)]
    pub client: SideConfig,
    /// Where the server is, as far as the client chooses.
    #[arg(skip)]
    pub server: SideConfig,
}

impl Default for Placement {
    fn default() -> Self {
        Self {
            is_relaxed: true,
            is_on_demand: false,
            has_own_regions: false,
            client: SideConfig::default(),
            server: SideConfig::default(),
        }
    }
}
