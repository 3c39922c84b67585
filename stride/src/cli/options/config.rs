//! Options for device and memory of both sides.

use clap::Args;

use crate::plan::values::{self, Cpus};
use crate::plan::{GpuRegistration, Memory, PortSelector, SideConfig};

/// Options for device and memory of this side.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "This side")]
pub(in crate::cli) struct Local {
    /// RDMA device [default: the first with an active port].
    ///
    /// If several devices are given, such as mlx5_0,mlx5_1, a bandwidth test uses all of them at once. The values of
    /// --qp-count and --threads are totals, which are divided equally among the ports; perftest's -q with -O counts per
    /// port. `stride-perf devices` lists the devices.
    #[arg(short = 'd', long, value_name = "NAMES", value_delimiter = ',')]
    pub(in crate::cli) device: Option<Vec<String>>,
    /// Port of the device, from 1 [default: the first active one].
    ///
    /// Give one port per device, or one for all devices. Several ports of one device, such as 1,2, are used at once;
    /// without --device, the first device on which all of them are active is used.
    #[arg(short = 'i', long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..), hide_short_help = true)]
    pub(in crate::cli) ib_port: Option<Vec<u8>>,
    /// Both ports of a dual-port device: --ib-port 1,2.
    ///
    /// On the client, this option also sets --remote-ib-port 1,2. Without --device, the first device with both ports
    /// active is used. If each port is a device of its own, as on most NICs, give --device mlx5_0,mlx5_1.
    #[arg(short = 'O', long, conflicts_with = "ib_port", hide_short_help = true)]
    pub(in crate::cli) dualport: bool,
    /// Index in the port's GID table [default: chosen from both tables].
    ///
    /// Give one index per port, or one for all ports.
    #[arg(short = 'x', long, value_name = "LIST", value_delimiter = ',', hide_short_help = true)]
    pub(in crate::cli) gid_index: Option<Vec<u32>>,
    /// Index in the port's P_Key table [default: 0].
    ///
    /// Both sides must be in the same partition. This option cannot be given with --rdma-cm, which chooses the
    /// partition itself.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(in crate::cli) pkey_index: Option<u16>,
    /// Destination LID, instead of the one the peer reports (InfiniBand only).
    ///
    /// This option cannot be given with --rdma-cm or with several ports.
    #[arg(long, value_name = "LID", value_parser = values::lid, hide_short_help = true)]
    pub(in crate::cli) dlid: Option<u16>,
    /// Put messages in the memory of this GPU: index or PCI address.
    ///
    /// Indices are in CUDA's order, which CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER change. `stride-perf devices`
    /// lists the GPUs. The processor never accesses this memory. Therefore no message is sent inline, and a plain write
    /// has only the latency `ack` (add --imm for the others).
    #[arg(long, value_name = "GPU", value_parser = values::gpu)]
    pub(in crate::cli) use_cuda: Option<Memory>,
    /// Put messages in huge pages of 2 MiB.
    ///
    /// If enough reserved huge pages are free, these are used. Otherwise the memory has transparent huge pages, if the
    /// kernel grants them.
    #[arg(long, hide_short_help = true)]
    pub(in crate::cli) huge_pages: bool,
    /// Processors for the threads, assigned in turn, such as 0,2-5.
    ///
    /// The memory of a thread is on the NUMA node of its processor.
    #[arg(long, value_name = "LIST", value_parser = values::cpus, hide_short_help = true)]
    pub(in crate::cli) cpu: Option<Cpus>,
    /// How to register GPU memory [default: dmabuf, else address].
    ///
    /// dmabuf: as a DMA buffer, which requires Linux 5.12, CUDA 11.7 and NVIDIA's open kernel modules. address: by
    /// virtual address, which requires the kernel module nvidia_peermem, except with softrnic. With this option, the
    /// test fails if that method is unavailable.
    #[arg(long, value_name = "WAY", value_enum, requires = "use_cuda", hide_short_help = true)]
    pub(in crate::cli) gpu_registration: Option<GpuRegistration>,
    /// Do not bind threads and memory to the device's NUMA node.
    ///
    /// By default, threads are bound to the processors of the device's NUMA node, and their memory is allocated there.
    /// Threads are not bound if --cpu is given or if the process is already bound (taskset, numactl, a container).
    #[arg(long, conflicts_with = "cpu", hide_short_help = true)]
    pub(in crate::cli) no_numa: bool,
}

/// Options for device and memory of the peer, which the client gives.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server side, chosen by the client")]
pub(in crate::cli) struct Remote {
    /// Device of the server [default: the first with an active port].
    ///
    /// Give one device per port of the client, or one for all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', hide_short_help = true)]
    pub(in crate::cli) remote_device: Option<Vec<String>>,
    /// Port of the server's device, from 1.
    ///
    /// Give one port per port of the client, or one for all.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u8).range(1..), hide_short_help = true)]
    pub(in crate::cli) remote_ib_port: Option<Vec<u8>>,
    /// Index in the GID table of the server's port.
    ///
    /// Give one index per port, or one for all ports.
    #[arg(long, value_name = "LIST", value_delimiter = ',', hide_short_help = true)]
    pub(in crate::cli) remote_gid_index: Option<Vec<u32>>,
    /// Index in the P_Key table of the server's port.
    #[arg(long, value_name = "N", hide_short_help = true)]
    pub(in crate::cli) remote_pkey_index: Option<u16>,
    /// Destination LID of the server's packets (InfiniBand only).
    #[arg(long, value_name = "LID", value_parser = values::lid, hide_short_help = true)]
    pub(in crate::cli) remote_dlid: Option<u16>,
    /// Put the server's messages in the memory of this GPU of the server.
    #[arg(long, value_name = "GPU", value_parser = values::gpu, hide_short_help = true)]
    pub(in crate::cli) remote_use_cuda: Option<Memory>,
    /// Put the server's messages in huge pages.
    #[arg(long, conflicts_with = "remote_use_cuda", hide_short_help = true)]
    pub(in crate::cli) remote_huge_pages: bool,
    /// Processors for the server's threads.
    #[arg(long, value_name = "LIST", value_parser = values::cpus, hide_short_help = true)]
    pub(in crate::cli) remote_cpu: Option<Cpus>,
    /// How the server registers GPU memory.
    #[arg(long, value_name = "WAY", value_enum, conflicts_with = "remote_huge_pages", hide_short_help = true)]
    pub(in crate::cli) remote_gpu_registration: Option<GpuRegistration>,
    /// Do not bind the server's threads and memory to a NUMA node.
    #[arg(long, conflicts_with = "remote_cpu", hide_short_help = true)]
    pub(in crate::cli) remote_no_numa: bool,
}

impl Local {
    /// Converts the options to the form of a plan.
    ///
    /// # Errors
    ///
    /// Returns an error for the user if memory options conflict, or if the lists of port options differ in length.
    pub(in crate::cli) fn config(&self) -> Result<SideConfig, String> {
        let memory = match (&self.use_cuda, self.huge_pages) {
            (Some(_), true) => {
                return Err("--huge-pages and --use-cuda conflict; give one of them".to_owned());
            }
            (Some(gpu), false) => Some(gpu.clone()),
            (None, true) => Some(Memory::HugePages),
            (None, false) => None,
        };
        let ports = if self.dualport { Some(BOTH.as_slice()) } else { self.ib_port.as_deref() };
        // The server may have other devices than the client, so these ports need not fit this side's device.
        if let (None, Some(ports)) = (&self.device, ports)
            && (1..ports.len()).any(|at| ports[..at].contains(&ports[at]))
        {
            let list = ports.iter().map(u8::to_string).collect::<Vec<_>>().join(",");
            return Err(format!(
                "--ib-port {list} names a port twice without a device; give one device per port with --device, such as \
                 mlx5_0,mlx5_1, or one for all"
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
    /// Converts the options to the form of a plan. `local` are the options of this side.
    ///
    /// # Errors
    ///
    /// Returns an error for the user if the lists of port options differ in length.
    pub(in crate::cli) fn config(&self, local: &Local) -> Result<SideConfig, String> {
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

/// The ports of a dual-port device.
const BOTH: [u8; 2] = [1, 2];

/// An option with its values: one value per port, or one for all ports.
type Listed<'a, T> = (&'a str, Option<&'a [T]>);

/// Combines the lists of these options into one list of ports. The result has at least one port, all of whose values
/// may be missing.
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
            "{longest} has {count} values and {option} {length}; give one per port, or one for all ports"
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
    fn single_value_applies_to_all_ports() {
        let names = ["mlx5_0", "mlx5_1"].map(str::to_owned);
        let of = |devices, ports, gids| spots(("-d", devices), ("-i", ports), ("-x", gids));
        assert_eq!(of(None, None, None), Ok(vec![PortSelector::default()]));
        let found = of(Some(&names), Some(&[2]), Some(&[3, 5])).unwrap();
        assert_eq!(found[0], PortSelector { device: Some("mlx5_0".to_owned()), port: Some(2), gid_index: Some(3) });
        assert_eq!(found[1], PortSelector { device: Some("mlx5_1".to_owned()), port: Some(2), gid_index: Some(5) });
        let found = of(Some(&names[..1]), Some(&[1, 2]), None).unwrap();
        assert_eq!(found[1], PortSelector { device: Some("mlx5_0".to_owned()), port: Some(2), gid_index: None });
        let error = of(Some(&names), Some(&[1, 2, 1]), None).unwrap_err();
        assert_eq!(error, "-i has 3 values and -d 2; give one per port, or one for all ports");
    }
}
