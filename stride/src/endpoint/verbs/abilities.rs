//! The capabilities of a device. Verbs report some capabilities; to determine the others, the program creates objects.

use anyhow::{Error, Result};
use sideway::ibverbs::completion::GenericCompletionQueue;
use sideway::ibverbs::device_context::AtomicCapability;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use std::sync::Arc;

use super::memory::on_demand;
use super::pairs::Pairs;
use crate::endpoint::is_unsupported;
use crate::plan::{Operation, Plan, QpAttributes, Queues, Transport, Workload};

/// The transports that the device of any vendor may support.
const TRANSPORTS: [Transport; 4] = [Transport::Rc, Transport::Uc, Transport::Ud, Transport::Xrc];

/// A number of inline bytes that no device supports.
const MOST: u32 = 1 << 16;

/// The capabilities of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// The transports for which queue pairs can be created.
    pub transports: Vec<Transport>,
    /// The reasons why queue pairs of other transports could not be created, except if the device reports that it does
    /// not support the transport.
    pub refusals: Vec<(Transport, String)>,
    /// The transport of the device's vendor. Whether the device supports it is only checked if a test requires this
    /// transport, because the check loads the vendor's library.
    pub vendors: Option<Transport>,
    /// How many reads and atomics a queue pair can have outstanding, first as requester and then as responder.
    pub reads: [u32; 2],
    /// Whether the device supports atomics.
    pub has_atomics: bool,
    /// The operations that support on-demand paging, for each transport.
    pub on_demand: Vec<(Transport, Vec<Operation>)>,
    /// Whether completion queues have the extended interface.
    pub has_extended_queues: bool,
    /// The inline limit of the first transport. `None` if there is no transport.
    pub inline: Option<u32>,
}

impl Abilities {
    /// Determines the capabilities of the device to which the protection domain belongs. `driver` is the name of its
    /// kernel driver.
    pub(super) fn of(pd: &Arc<ProtectionDomain>, driver: &str) -> Result<Self> {
        let context = pd.device_context();
        let device = context.query_device()?;
        // The queue has two entries: one for a send, and one for the additional request that `set_send_queue` allows
        // for.
        let queue = || context.create_cq_builder().setup_cqe(2).build_generic();
        let (sends, receives) = (queue()?, queue()?);
        let make = |transport, inline| {
            let plan = Plan {
                workload: Workload { operation: Operation::Send, ..Workload::default() },
                attributes: QpAttributes { transport, ..QpAttributes::default() },
                queues: Queues { tx_depth: 1, rx_depth: 1, inline: Some(inline), ..Queues::default() },
                ..Plan::default()
            };
            Pairs::new(pd, &plan, (&sends, &receives), 1, true).map(drop)
        };
        let (mut transports, mut refusals) = (Vec::new(), Vec::new());
        for transport in TRANSPORTS {
            match make(transport, 0) {
                Ok(()) => transports.push(transport),
                Err(error) if is_unsupported(&error) => {}
                Err(error) => refusals.push((transport, cause(&error))),
            }
        }
        let paging = TRANSPORTS.map(|transport| (transport, on_demand(&device.odp_caps(), transport)));
        let first = transports.first().copied();
        Ok(Self {
            inline: first.map(|transport| most(|inline| make(transport, inline).is_ok())),
            transports,
            refusals,
            vendors: Transport::of_driver(driver),
            reads: [device.max_qp_init_rd_atom(), device.max_qp_rd_atom()],
            has_atomics: device.atomic_cap() != AtomicCapability::None,
            on_demand: paging.into_iter().filter(|(_, operations)| !operations.is_empty()).collect(),
            has_extended_queues: matches!(sends, GenericCompletionQueue::Extended(_)),
        })
    }
}

/// Returns the cause of an error without the operation that was attempted.
fn cause(error: &Error) -> String {
    error.root_cause().to_string()
}

/// Returns the largest number up to [`MOST`] that `takes` accepts. If `takes` accepts a number, it must also accept all
/// smaller numbers.
fn most(takes: impl Fn(u32) -> bool) -> u32 {
    // `least` is the largest number known to be accepted, and `above` is the smallest number known to be rejected.
    let (mut least, mut above) = (0, 16);
    while above < MOST && takes(above) {
        (least, above) = (above, above * 2);
    }
    while above - least > 1 {
        let middle = least + (above - least) / 2;
        if takes(middle) { least = middle } else { above = middle }
    }
    least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::SOFTRNIC;
    use crate::endpoint::verbs::device;
    use crate::plan::SideConfig;

    #[test]
    fn largest_accepted_number_is_found() {
        for limit in [0, 1, 15, 16, 17, 220, 512, 4095, 4096, 30_000] {
            let asked = std::cell::Cell::new(0);
            let found = most(|inline| {
                asked.set(asked.get() + 1);
                inline <= limit
            });
            assert_eq!(found, limit);
            assert!(asked.get() < 32, "{limit}: {}", asked.get());
        }
        assert!(most(|_| true) >= MOST / 2, "it ends");
    }

    #[test]
    fn softrnic_reports_its_capabilities() {
        let config = SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() };
        let (context, _) = device::open_one(&config, &[], |_| true).unwrap();
        let abilities = Abilities::of(&context.alloc_pd().unwrap(), SOFTRNIC).unwrap();
        assert_eq!(abilities.transports, TRANSPORTS);
        assert!(abilities.has_atomics && abilities.has_extended_queues && abilities.refusals.is_empty());
        assert!(abilities.inline >= Some(220) && abilities.reads[0] > 0, "{abilities:?}");
        assert_eq!(abilities.vendors, None);
        let odp = context.query_device().unwrap().odp_caps();
        assert_eq!(abilities.on_demand.is_empty(), !odp.is_supported(), "{abilities:?}");
    }
}
