//! Queue pairs and transports, wired together.

use crate::ipc::{self, Peers, Processes};
use crate::qp::registry::{QpRegistry, ToQueuePairs};
use crate::sys::fork::PerProcess;

/// The other processes of the host, which deliver to the queue pairs of this one.
static PEERS: PerProcess<Peers> = PerProcess::new(Peers::new(&ToQueuePairs), || Box::new(Peers::new(&ToQueuePairs)));

static PROCESSES: Processes = Processes(&PEERS);

/// Lets the queue pairs of this process reach those of others; does nothing that another process could see until one has a number.
pub(crate) fn connect() {
    if ipc::is_enabled() {
        QpRegistry::set_transport(&PROCESSES);
    }
}
