//! A port of a side, with its device, its memory and its counters.

use std::sync::Arc;

use anyhow::{Error, Result, bail};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;

use super::memory::Source;
use super::vendor;
use super::{description, device};
use crate::endpoint::counters::Counters;
use crate::endpoint::{PortInfo, Role};
use crate::plan::{Plan, SideConfig};

/// A port of a side, without the threads that use the port.
pub(super) struct PortContext {
    pub(super) port: u8,
    pub(super) memory: Source,
    /// The counters that the plan names.
    pub(super) counters: Option<Counters>,
    pub(super) pd: Arc<ProtectionDomain>,
}

impl PortContext {
    /// Opens everything that the plan requires of a port, and describes the port.
    pub(super) fn new(
        context: &Arc<DeviceContext>,
        port: u8,
        plan: &Plan,
        config: &SideConfig,
        role: Role,
    ) -> Result<(Self, PortInfo)> {
        device::can(context, plan)?;
        let mut port_info = description::port_info(context, port, config)?;
        if plan.attributes.uses_rdma_cm {
            port_info.partition = None;
        }
        let owner = format!("port {port} of {}", port_info.device);
        let folder = context.sysfs_path().map(|path| path.join("ports").join(port.to_string()));
        let counters = Counters::open(folder, &plan.sampling.counters, &owner).map_err(Error::msg)?;
        if role == Role::Client && counters.is_none() && !plan.sampling.counters.is_empty() {
            bail!("--counters: {owner} has no readable counters; leave it out, or name another device with -d");
        }
        port_info.longest = vendor::check(context, plan, &port_info, role)?;
        let pd = context.alloc_pd()?;
        let memory = Source::open(&pd, plan, config)?;
        memory.describe(&mut port_info);
        Ok((Self { port, memory, counters, pd }, port_info))
    }

    pub(super) fn context(&self) -> &Arc<DeviceContext> {
        self.pd.device_context()
    }
}

/// Checks that the things that `config` names exist at this port.
pub(super) fn look(context: &Arc<DeviceContext>, port: u8, config: &SideConfig) -> Result<()> {
    let port_info = description::port_info(context, port, config)?;
    if let Some(index) = config.gid_index
        && !port_info.gids.iter().any(|gid| gid.index == index)
    {
        bail!("--gid-index {index}: port {port} of {} has no such GID; see `stride-perf devices`", port_info.device);
    }
    Source::find(&context.alloc_pd()?, config).map(drop)
}

/// Returns the configuration of each port of a side. Each configuration contains the processors for the threads of its
/// port.
pub(super) fn configs(plan: &Plan, config: &SideConfig) -> Vec<SideConfig> {
    let mut all = config.each_port();
    let threads = (plan.queues.threads / plan.ports()).max(1) as usize;
    if let (Some(cpus), 2..) = (&config.cpus, all.len()) {
        for (at, config) in all.iter_mut().enumerate() {
            let own = (at * threads..(at + 1) * threads).filter_map(|thread| cpus.get(thread % cpus.len().max(1)));
            config.cpus = Some(own.copied().collect());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Placement, Queues};

    #[test]
    fn processors_follow_the_distribution_of_threads() {
        let config = |count| SideConfig { cpus: Some(vec![0, 1, 32]), ..SideConfig::default() }.spread(count);
        let of = |ports, threads| {
            let plan = Plan {
                placement: Placement { client: config(ports), ..Placement::default() },
                queues: Queues { threads, ..Queues::default() },
                ..Plan::default()
            };
            configs(&plan, &plan.placement.client).into_iter().map(|config| config.cpus.unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(of(1, 2), [vec![0, 1, 32]]);
        assert_eq!(of(2, 2), [[0], [1]]);
        assert_eq!(of(2, 4), [[0, 1], [32, 0]]);
    }
}
