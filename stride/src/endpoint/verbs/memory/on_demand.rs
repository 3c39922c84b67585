//! On-demand paging (`--odp`). Pages are not pinned, but the device requests each page when it uses the page.

use anyhow::{Result, ensure};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceContext, OdpCapabilities, OdpTransportCapabilities as Can};

use crate::plan::{Operation, Plan, Transport};

/// Checks that the device supports on-demand paging for the operation and the transport of the plan.
pub(super) fn check(context: &DeviceContext, plan: &Plan) -> Result<()> {
    let (device, all) = (context.name(), context.query_device()?.odp_caps());
    ensure!(
        all.is_supported(),
        "--odp: {device} does not support on-demand paging; leave it out, or name another device with -d"
    );
    check_transport(&device, of(&all, plan.attributes.transport), plan)
}

/// Returns what a transport supports with on-demand paging.
fn of(all: &OdpCapabilities, transport: Transport) -> Can {
    match transport {
        Transport::Rc => all.reliable_connection(),
        Transport::Uc => all.unreliable_connection(),
        Transport::Ud => all.unreliable_datagram(),
        Transport::Xrc => all.reliable_connection_extended(),
        // Verbs report nothing for these transports, and plans with them are rejected earlier.
        Transport::Dc | Transport::Srd => Can::empty(),
    }
}

/// Returns the operations that support on-demand paging with a transport. Returns none for transports that libibverbs
/// itself does not have.
pub(in super::super) fn operations(all: &OdpCapabilities, transport: Transport) -> Vec<Operation> {
    possible(transport, if all.is_supported() { of(all, transport) } else { Can::empty() })
}

fn possible(transport: Transport, can: Can) -> Vec<Operation> {
    PLAIN.into_iter().filter(|operation| transport.has(*operation) && can.contains(needs(*operation))).collect()
}

/// Operations whose requirements differ. Each operation stands for others with the same requirements.
const PLAIN: [Operation; 4] = [Operation::Write, Operation::Read, Operation::Send, Operation::FetchAdd];

fn check_transport(device: &str, can: Can, plan: &Plan) -> Result<()> {
    let missing = needs(plan.workload.operation) - can;
    ensure!(
        missing.is_empty(),
        "--odp: {device} does not support on-demand paging for {} over {} ({missing:?}); leave it out, or measure \
         another operation or transport",
        plan.workload.operation,
        plan.attributes.transport
    );
    Ok(())
}

/// Returns what an operation requires of the memory of both sides.
fn needs(operation: Operation) -> Can {
    match operation {
        // Immediate data consumes a receive, but this receive has no memory.
        Operation::Write | Operation::WriteWithImmediate => Can::Write,
        Operation::Read => Can::Read,
        Operation::Send | Operation::SendWithImmediate | Operation::Message => Can::Send | Can::Receive,
        Operation::FetchAdd | Operation::CompareSwap => Can::Atomic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Workload;

    #[test]
    fn operations_follow_the_capabilities_of_the_transport() {
        assert_eq!(possible(Transport::Rc, Can::all()), PLAIN);
        assert_eq!(possible(Transport::Uc, Can::all()), [Operation::Write, Operation::Send]);
        assert_eq!(possible(Transport::Ud, Can::all()), [Operation::Send]);
        assert_eq!(possible(Transport::Xrc, Can::Write | Can::Send), [Operation::Write], "a send consumes a receive");
        assert_eq!(possible(Transport::Rc, Can::empty()), []);
    }

    #[test]
    fn operation_requires_its_own_capability() {
        let plan = |operation| Plan { workload: Workload { operation, ..Workload::default() }, ..Plan::default() };
        for (operation, needed) in [
            (Operation::Write, Can::Write),
            (Operation::WriteWithImmediate, Can::Write),
            (Operation::Read, Can::Read),
            (Operation::Send, Can::Send | Can::Receive),
            (Operation::FetchAdd, Can::Atomic),
        ] {
            assert!(check_transport("mlx5_0", needed, &plan(operation)).is_ok(), "{operation}");
            for one in needed.iter() {
                let why = check_transport("mlx5_0", Can::all() - one, &plan(operation)).unwrap_err().to_string();
                assert!(why.contains(&format!("does not support on-demand paging for {operation} over RC")), "{why}");
            }
        }
    }
}
