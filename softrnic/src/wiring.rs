//! Connects QPs and transports.

use crate::ipc::{self, Peers, Processes};
use crate::qp::registry::{QpRegistry, ToQueuePairs};
use crate::sys::fork::PerProcess;

/// The transport to other processes, which delivers to the QPs of this one.
static PEERS: PerProcess<Peers> = PerProcess::new(Peers::new(&ToQueuePairs), || Box::new(Peers::new(&ToQueuePairs)));

static PROCESSES: Processes = Processes(&PEERS);

/// Enables QPs to reach other processes. Has no effect visible to other processes until a QP has a number.
pub(crate) fn connect() {
    if ipc::is_enabled() {
        QpRegistry::set_transport(&PROCESSES);
    }
}
