//! Endpoints on sideway.

mod abilities;
mod arrival;
mod connect;
mod contents;
mod device;
mod endpoint;
mod memory;
mod pairs;
mod port_context;
mod ports;
mod step;
mod sum;
mod vendor;
mod vendor_pairs;
mod worker;
mod worker_resources;
mod worker_wait;

use anyhow::Result;

pub use self::abilities::Abilities;
pub use self::device::{DevicePort, Found, ports};
use self::endpoint::VerbsEndpoint;
pub use self::memory::{Gpus, NearGpus, Nearness};
use super::{Endpoint, EndpointFactory, Role};
use crate::plan::{Plan, SideConfig};

/// Endpoints on the devices of this machine and of softrnic.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs;

impl EndpointFactory for Verbs {
    fn open(&self, plan: &Plan, place: &SideConfig, role: Role) -> Result<Box<dyn Endpoint>> {
        Ok(Box::new(VerbsEndpoint::open(plan, place, role)?))
    }

    fn look(&self, place: &SideConfig) -> Result<()> {
        VerbsEndpoint::look(place)
    }
}

/// The GPUs of this machine, or why there is none.
pub fn gpus() -> Gpus {
    memory::gpus()
}
