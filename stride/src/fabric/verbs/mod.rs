//! A side of sideway.

mod abilities;
mod arrival;
mod code;
mod connect;
mod contents;
mod corner;
mod device;
mod dynamic;
mod lookout;
mod memory;
mod pairs;
mod ports;
mod scalable;
mod side;
mod stand;
mod step;
mod sum;
mod vendor;
mod worker;

use anyhow::Result;

pub use self::abilities::Abilities;
pub use self::device::{Found, PortFacts, ports};
pub use self::memory::{Gpus, NearGpus, Nearness};
use self::side::VerbsSide;
use super::{Fabric, Role, Side};
use crate::plan::{Place, Plan};

/// The devices of this machine, and those of softrnic.
#[derive(Clone, Copy, Debug, Default)]
pub struct Verbs;

impl Fabric for Verbs {
    fn open(&self, plan: &Plan, place: &Place, role: Role) -> Result<Box<dyn Side>> {
        Ok(Box::new(VerbsSide::open(plan, place, role)?))
    }

    fn look(&self, place: &Place) -> Result<()> {
        VerbsSide::look(place)
    }
}

/// The GPUs of this machine, or why there is nothing to say of any.
pub fn gpus() -> Gpus {
    memory::gpus()
}
