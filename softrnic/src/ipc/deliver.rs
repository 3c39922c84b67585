//! To whom things are told that come from other processes.

use std::fmt;
use std::sync::{Arc, Weak};

use crate::mem::Segment;
use crate::qp::QueuePair;
use crate::qp::registry::QpRegistry;
use crate::wire::packet::{Answer, Carrier, Part};

/// Takes what comes. It is called with no lock but the receiving one of a session, and may put packets in any.
pub(super) trait Deliver: fmt::Debug + Send + Sync {
    /// A part of a message; answers go back by `back`.
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>);
    /// An answer.
    fn answer(&self, answer: &Answer, payload: &[Segment]);
    /// The other process is gone.
    fn lost(&self, carrier: &Arc<dyn Carrier>);
    /// There may be room for what this queue pair has.
    fn room(&self, pair: &Weak<QueuePair>);
}

/// The queue pairs of this process.
#[derive(Debug)]
pub(super) struct ToNetwork;

impl Deliver for ToNetwork {
    fn part(&self, part: &Part, payload: &[Segment], back: &Arc<dyn Carrier>) {
        QpRegistry::of_process().part_arrived(part, payload, back);
    }

    fn answer(&self, answer: &Answer, payload: &[Segment]) {
        QpRegistry::of_process().answer_arrived(answer, payload);
    }

    fn lost(&self, carrier: &Arc<dyn Carrier>) {
        QpRegistry::of_process().carrier_lost(carrier);
    }

    fn room(&self, pair: &Weak<QueuePair>) {
        if let Some(pair) = pair.upgrade() {
            pair.expired();
        }
    }
}
