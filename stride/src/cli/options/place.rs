//! Where the sides stand.

use clap::{Args, ValueEnum};

use super::super::values::{self, Cpus};
use crate::plan::{GpuRegistration, Memory, Place};

/// This side.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "This side")]
pub(in crate::cli) struct Local {
    /// RDMA device; where it is left out, the first with a port that is up.
    #[arg(short = 'd', long, value_name = "NAME")]
    pub(in crate::cli) device: Option<String>,
    /// Port of the device, from 1.
    #[arg(short = 'i', long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(in crate::cli) ib_port: Option<u8>,
    /// Index in the port's table of GIDs; where it is left out, a pair is chosen from the tables of both sides.
    #[arg(short = 'x', long, value_name = "N")]
    pub(in crate::cli) gid_index: Option<u32>,
    /// Index in the port's table of P_Keys, of the partition that queue pairs are in; not with --rdma-cm [default: 0].
    #[arg(long, value_name = "N")]
    pub(in crate::cli) pkey_index: Option<u16>,
    /// The LID that packets go to, for another way than that of the one which the other side says of itself; InfiniBand only.
    #[arg(long, value_name = "LID", value_parser = values::lid)]
    pub(in crate::cli) dlid: Option<u16>,
    /// Messages lie in the memory of a GPU: its index, or its PCI address.
    #[arg(long, value_name = "GPU", value_parser = values::gpu)]
    pub(in crate::cli) use_cuda: Option<Memory>,
    /// Messages lie in huge pages of 2 MiB: reserved ones, else transparent ones as the kernel gives them.
    #[arg(long)]
    pub(in crate::cli) huge_pages: bool,
    /// Processors of the threads, in turn, such as 0,2-5.
    #[arg(long, value_name = "LIST", value_parser = values::cpus)]
    pub(in crate::cli) cpu: Option<Cpus>,
    /// The only way in which the GPU's memory is registered [default: dmabuf, else address].
    #[arg(long, value_name = "WAY", value_enum, requires = "use_cuda")]
    pub(in crate::cli) gpu_registration: Option<Way>,
    /// Threads stay where the system has them: without this and --cpu they are bound to the processors of the device's NUMA node,
    /// and with them their memory, unless the process was bound already (taskset, numactl).
    #[arg(long, conflicts_with = "cpu")]
    pub(in crate::cli) no_numa: bool,
}

/// How memory of a GPU is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Way {
    /// As a DMA buffer.
    Dmabuf,
    /// By its address (module nvidia_peermem).
    Address,
}

impl From<Way> for GpuRegistration {
    fn from(way: Way) -> Self {
        match way {
            Way::Dmabuf => Self::DmaBuf,
            Way::Address => Self::Address,
        }
    }
}

/// The other side, as the client wants it.
#[derive(Debug, Args)]
#[command(next_help_heading = "The server's side, said by the client")]
pub(in crate::cli) struct Remote {
    /// RDMA device of the server.
    #[arg(long, value_name = "NAME")]
    pub(in crate::cli) remote_device: Option<String>,
    /// Port of the server's device, from 1.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..))]
    pub(in crate::cli) remote_ib_port: Option<u8>,
    /// Index in the table of GIDs of the server's port.
    #[arg(long, value_name = "N")]
    pub(in crate::cli) remote_gid_index: Option<u32>,
    /// Index in the table of P_Keys of the server's port.
    #[arg(long, value_name = "N")]
    pub(in crate::cli) remote_pkey_index: Option<u16>,
    /// The LID that the server's packets go to; InfiniBand only.
    #[arg(long, value_name = "LID", value_parser = values::lid)]
    pub(in crate::cli) remote_dlid: Option<u16>,
    /// The server's messages lie in the memory of this GPU of its.
    #[arg(long, value_name = "GPU", value_parser = values::gpu)]
    pub(in crate::cli) remote_use_cuda: Option<Memory>,
    /// The server's messages lie in huge pages.
    #[arg(long, conflicts_with = "remote_use_cuda")]
    pub(in crate::cli) remote_huge_pages: bool,
    /// Processors of the server's threads.
    #[arg(long, value_name = "LIST", value_parser = values::cpus)]
    pub(in crate::cli) remote_cpu: Option<Cpus>,
    /// The only way in which the memory of the server's GPU is registered.
    #[arg(long, value_name = "WAY", value_enum, conflicts_with = "remote_huge_pages")]
    pub(in crate::cli) remote_gpu_registration: Option<Way>,
    /// The server's threads stay where its system has them.
    #[arg(long, conflicts_with = "remote_cpu")]
    pub(in crate::cli) remote_no_numa: bool,
}

impl Local {
    /// As a plan has it.
    ///
    /// # Errors
    ///
    /// A sentence, where memory is to be at two places.
    pub(in crate::cli) fn place(&self) -> Result<Place, String> {
        let memory = match (&self.use_cuda, self.huge_pages) {
            (Some(_), true) => {
                return Err("--huge-pages are of the host, and --use-cuda is of a GPU: give one of them".to_owned());
            }
            (Some(gpu), false) => Some(gpu.clone()),
            (None, true) => Some(Memory::HugePages),
            (None, false) => None,
        };
        Ok(Place {
            device: self.device.clone(),
            port: self.ib_port,
            gid_index: self.gid_index,
            pkey_index: self.pkey_index,
            dlid: self.dlid,
            memory,
            cpus: self.cpu.clone().map(|cpus| cpus.0),
            gpu_registration: self.gpu_registration.map(GpuRegistration::from),
            is_bound: self.no_numa.then_some(false),
        })
    }
}

impl Remote {
    /// As a plan has it.
    pub(in crate::cli) fn place(&self) -> Place {
        Place {
            device: self.remote_device.clone(),
            port: self.remote_ib_port,
            gid_index: self.remote_gid_index,
            pkey_index: self.remote_pkey_index,
            dlid: self.remote_dlid,
            memory: self.remote_use_cuda.clone().or(self.remote_huge_pages.then_some(Memory::HugePages)),
            cpus: self.remote_cpu.clone().map(|cpus| cpus.0),
            gpu_registration: self.remote_gpu_registration.map(GpuRegistration::from),
            is_bound: self.remote_no_numa.then_some(false),
        }
    }
}
