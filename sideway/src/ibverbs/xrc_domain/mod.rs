//! XRC, extended reliable connections. The processes of a host share its receiving queue pairs, and the sender of each
//! message names the shared receive queue for the message.
//!
//! ```text
//! DeviceContext::open_xrcd ─► XrcDomain ── create_recv_qp ─► XrcReceiveQueuePair   connected to the sender's XRC queue pair
//!                                       ── open_qp(qp_num) ► XrcReceiveQueuePair   the same one, in another process
//! SharedReceiveQueueBuilder::setup_xrc(&xrcd, &cq) ── build_ex ─► SharedReceiveQueue ── srq_number()  for the senders
//! ```

mod domain;
mod queue_pair;

pub use domain::{XrcDomain, XrcDomainFlags};
pub use queue_pair::XrcReceiveQueuePair;
