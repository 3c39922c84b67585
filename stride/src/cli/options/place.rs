//! Where the sides stand.

use clap::Args;

use crate::plan::values::{self, Cpus};
use crate::plan::{GpuRegistration, Memory, PortSelector, SideConfig};

/// This side.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "This side")]
pub(in crate::cli) struct Local {
    /// RDMA device; where it is left out, the first with a port that is up. Several, such as mlx5_0,mlx5_1, have a bandwidth go over all
    /// of them at once: --qp-count and --threads are dealt out to them in equal parts (perftest's -q with -O is of each port).
    #[arg(short = 'd', long, value_name = "NAMES", value_delimiter = ',')]
    pub(in crate::cli) device: Option<Vec<String>>,
    /// Port of the device, from 1; of several devices one for each, or one for all. Several of one device, such as 1,2, are used at once;
    /// where none is named, of the first with all of these up.
    #[arg(short = 'i', long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..))]
    pub(in crate::cli) ib_port: Option<Vec<u8>>,
    /// Both ports of a device that has two, the first such where none is named: the same as --ib-port 1,2, and at a client --remote-ib-port 1,2. Where each port is a device,
    /// as most are, give --device mlx5_0,mlx5_1.
    #[arg(short = 'O', long, conflicts_with = "ib_port")]
    pub(in crate::cli) dualport: bool,
    /// Index in the port's table of GIDs, one for each port or one for all; where it is left out, a pair is chosen from the tables of
    /// both sides.
    #[arg(short = 'x', long, value_name = "LIST", value_delimiter = ',')]
    pub(in crate::cli) gid_index: Option<Vec<u32>>,
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
    pub(in crate::cli) gpu_registration: Option<GpuRegistration>,
    /// Threads stay where the system has them: without this and --cpu they are bound to the processors of the device's NUMA node,
    /// and with them their memory, unless the process was bound already (taskset, numactl).
    #[arg(long, conflicts_with = "cpu")]
    pub(in crate::cli) no_numa: bool,
}

/// The other side, as the client wants it.
#[derive(Debug, Args)]
#[command(next_help_heading = "The server's side, said by the client")]
pub(in crate::cli) struct Remote {
    /// RDMA device of the server: one for each of this side's ports, or one for all; where it is left out, the first ports that are up.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(in crate::cli) remote_device: Option<Vec<String>>,
    /// Port of the server's device, from 1; likewise.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..))]
    pub(in crate::cli) remote_ib_port: Option<Vec<u8>>,
    /// Index in the table of GIDs of the server's port; likewise.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(in crate::cli) remote_gid_index: Option<Vec<u32>>,
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
    pub(in crate::cli) remote_gpu_registration: Option<GpuRegistration>,
    /// The server's threads stay where its system has them.
    #[arg(long, conflicts_with = "remote_cpu")]
    pub(in crate::cli) remote_no_numa: bool,
}

impl Local {
    /// As a plan has it.
    ///
    /// # Errors
    ///
    /// A sentence, where memory is to be at two places, or ports cannot be told apart.
    pub(in crate::cli) fn place(&self) -> Result<SideConfig, String> {
        let memory = match (&self.use_cuda, self.huge_pages) {
            (Some(_), true) => {
                return Err("--huge-pages are of the host, and --use-cuda is of a GPU: give one of them".to_owned());
            }
            (Some(gpu), false) => Some(gpu.clone()),
            (None, true) => Some(Memory::HugePages),
            (None, false) => None,
        };
        let ports = if self.dualport { Some(BOTH.as_slice()) } else { self.ib_port.as_deref() };
        // The server may have devices for those that its client names.
        if let (None, Some(ports)) = (&self.device, ports)
            && (1..ports.len()).any(|at| ports[..at].contains(&ports[at]))
        {
            let list = ports.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
            return Err(format!(
                "--ib-port {list} has a port twice, and no device is named: give one for each with --device, such as mlx5_0,mlx5_1, or one \
                 for all of them"
            ));
        }
        let spots = spots(
            ("--device", self.device.as_deref()),
            ("--ib-port", ports),
            ("--gid-index", self.gid_index.as_deref()),
        )?;
        Ok(SideConfig {
            pkey_index: self.pkey_index,
            dlid: self.dlid,
            memory,
            cpus: self.cpu.clone().map(|cpus| cpus.0),
            gpu_registration: self.gpu_registration,
            is_bound: self.no_numa.then_some(false),
            ..SideConfig::default()
        }
        .at(spots))
    }
}

impl Remote {
    /// As a plan has it, beside this side.
    ///
    /// # Errors
    ///
    /// A sentence, where ports cannot be told apart.
    pub(in crate::cli) fn place(&self, local: &Local) -> Result<SideConfig, String> {
        let both = local.dualport.then_some(BOTH.as_slice());
        let spots = spots(
            ("--remote-device", self.remote_device.as_deref()),
            ("--remote-ib-port", self.remote_ib_port.as_deref().or(both)),
            ("--remote-gid-index", self.remote_gid_index.as_deref()),
        )?;
        Ok(SideConfig {
            pkey_index: self.remote_pkey_index,
            dlid: self.remote_dlid,
            memory: self.remote_use_cuda.clone().or(self.remote_huge_pages.then_some(Memory::HugePages)),
            cpus: self.remote_cpu.clone().map(|cpus| cpus.0),
            gpu_registration: self.remote_gpu_registration,
            is_bound: self.remote_no_numa.then_some(false),
            ..SideConfig::default()
        }
        .at(spots))
    }
}

/// The ports of a device that has two.
const BOTH: [u8; 2] = [1, 2];

/// An option with what it was given, one for each port or one for all.
type Listed<'a, T> = (&'a str, Option<&'a [T]>);

/// The ports that these options name together; at least one, of which nothing may be said.
fn spots(
    (device_option, devices): Listed<'_, String>,
    (port_option, ports): Listed<'_, u8>,
    (gid_option, gids): Listed<'_, u32>,
) -> Result<Vec<PortSelector>, String> {
    let lengths = [
        (device_option, devices.map_or(1, <[_]>::len)),
        (port_option, ports.map_or(1, <[_]>::len)),
        (gid_option, gids.map_or(1, <[_]>::len)),
    ];
    let (longest, count) = lengths.into_iter().max_by_key(|(_, length)| *length).unwrap_or(lengths[0]);
    if let Some((option, length)) = lengths.into_iter().find(|(_, length)| ![1, count].contains(length)) {
        return Err(format!(
            "{longest} has {count} values and {option} {length}: give one for each port, or one for all of them"
        ));
    }
    fn of<T: Clone>(values: Option<&[T]>, at: usize) -> Option<T> {
        values.and_then(|values| values.get(at).or(values.first()).cloned())
    }
    let spot = |at| PortSelector { device: of(devices, at), port: of(ports, at), gid_index: of(gids, at) };
    Ok((0..count).map(spot).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_holds_for_all_ports() {
        let names = ["mlx5_0", "mlx5_1"].map(str::to_owned);
        let of = |devices, ports, gids| spots(("-d", devices), ("-i", ports), ("-x", gids));
        assert_eq!(of(None, None, None), Ok(vec![PortSelector::default()]));
        let found = of(Some(&names), Some(&[2]), Some(&[3, 5])).unwrap();
        assert_eq!(found[0], PortSelector { device: Some("mlx5_0".to_owned()), port: Some(2), gid_index: Some(3) });
        assert_eq!(found[1], PortSelector { device: Some("mlx5_1".to_owned()), port: Some(2), gid_index: Some(5) });
        let found = of(Some(&names[..1]), Some(&[1, 2]), None).unwrap();
        assert_eq!(found[1], PortSelector { device: Some("mlx5_0".to_owned()), port: Some(2), gid_index: None });
        let said = of(Some(&names), Some(&[1, 2, 1]), None).unwrap_err();
        assert_eq!(said, "-i has 3 values and -d 2: give one for each port, or one for all of them");
    }
}
