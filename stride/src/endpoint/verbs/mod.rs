//! Endpoints that use sideway.

mod abilities;
mod arrival;
mod connect;
mod contents;
mod description;
mod device;
mod endpoint;
mod memory;
mod pairs;
mod part;
mod port_context;
mod ports;
mod step;
mod sum;
mod vendor;
mod worker;
mod worker_resources;
mod worker_wait;

use anyhow::Result;

pub use self::abilities::Abilities;
pub use self::description::{DevicePort, Found, ports};
use self::endpoint::VerbsEndpoint;
pub use self::memory::{Gpus, NearGpus, Nearness};
use super::{Endpoint, EndpointFactory, Role, message};
use crate::plan::{Operation, Plan, SideConfig, Workload};

/// The factory of endpoints on the devices of this machine and of softrnic.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs;

impl EndpointFactory for Verbs {
    fn open(&self, plan: &Plan, config: &SideConfig, role: Role) -> Result<Box<dyn Endpoint>> {
        let is_message = plan.workload.operation == Operation::Message;
        let sends = |plan: &Plan| Plan {
            workload: Workload { operation: Operation::Send, ..plan.workload.clone() },
            ..plan.clone()
        };
        if is_message {
            // Opens only the port, because the library has memory and queue pairs of its own.
            let port = VerbsEndpoint::open(&sends(plan), config, role)?;
            return message::open(plan, port.port_info().clone(), role);
        }
        Ok(Box::new(VerbsEndpoint::open(plan, config, role)?))
    }

    fn look(&self, config: &SideConfig) -> Result<()> {
        VerbsEndpoint::look(config)
    }
}

/// Returns the GPUs of this machine, or the reason why there are none.
pub fn gpus() -> Gpus {
    memory::gpus()
}
