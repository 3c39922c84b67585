//! The options by which a user chooses device, port and GID.

use anyhow::Result;
use clap::Args;

use crate::LocalPort;

// Which port.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would take the words for those of the program")]
pub struct PortChoice {
    /// RDMA device, such as mlx5_0 [default: the first with an active port; soft0, which is in this process, where there is none]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub ib_dev: Option<String>,

    /// Port of the device, from 1
    #[arg(short = 'i', long, value_name = "PORT", default_value_t = 1)]
    pub ib_port: u8,

    /// Index of the GID to send from; show_gids lists them [default: on Ethernet the best, RoCE v2 with an IPv4 address first;
    /// on InfiniBand none]
    #[arg(short = 'g', long, value_name = "INDEX")]
    pub gid_idx: Option<u32>,
}

impl PortChoice {
    /// Opens the device and sees to it that the port is active.
    ///
    /// # Errors
    ///
    /// As [`LocalPort::open`].
    pub fn open(&self) -> Result<LocalPort> {
        LocalPort::open(self.ib_dev.as_deref(), self.ib_port, self.gid_idx, 0)
    }
}
