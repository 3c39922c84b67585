//! Selects the types with which the loops are compiled, according to the plan: the types of the queues and of the
//! requests.

use anyhow::{Context, Result, bail};
use sideway::ibverbs::queue_pair::{BasicSendQueue, ExtendedSendQueue, GenericSendQueue, Service};
use sideway::ibverbs::work_request::ReceiveQueue;

use super::{Outcome, Step};
use crate::endpoint::QpAddress;
use crate::endpoint::verbs::pairs::{Pairs, XrcPair};
use crate::endpoint::verbs::vendor_pairs::Dynamic;
use crate::plan::{Operation, Workload};
use crate::run::cas_check::CasCheck;
use crate::run::{
    Any, Chosen, DatagramSendImmediate, Intake, Message, PeerQueue, Places, Poll, Read, Request, SendPlain, Write,
};

/// The queues of a queue pair: the one to which requests are posted, and the one to which receives are posted.
pub(super) type Both<'q, S> = (&'q mut S, Intake<'q>);

/// The queues of all queue pairs, which have either the basic or the extended interface.
enum Kinds<'q, T> {
    Basic(Vec<Both<'q, BasicSendQueue<T>>>),
    Extended(Vec<Both<'q, ExtendedSendQueue<T>>>),
}

fn kinds<'q, T>(queues: impl Iterator<Item = Both<'q, GenericSendQueue<T>>>) -> Result<Kinds<'q, T>> {
    let (mut basic, mut extended) = (Vec::new(), Vec::new());
    for (send, receive) in queues {
        match send {
            GenericSendQueue::Basic(send) => basic.push((send, receive)),
            GenericSendQueue::Extended(send) => extended.push((send, receive)),
        }
    }
    match (basic.is_empty(), extended.is_empty()) {
        (_, true) => Ok(Kinds::Basic(basic)),
        (true, _) => Ok(Kinds::Extended(extended)),
        _ => bail!("the device created queue pairs of different kinds"),
    }
}

/// Returns the queues of a queue pair that has a receive queue of its own.
fn own<'q, S>((send, receive): (&'q mut S, &'q mut ReceiveQueue)) -> Both<'q, S> {
    (send, Intake::Own(receive))
}

fn message(operation: Operation) -> Option<Message> {
    match operation {
        Operation::Write => Some(Message::Write),
        Operation::WriteWithImmediate => Some(Message::WriteImmediate),
        Operation::Read => Some(Message::Read),
        Operation::Send => Some(Message::Send),
        Operation::SendWithImmediate => Some(Message::SendImmediate),
        Operation::FetchAdd | Operation::CompareSwap | Operation::Message => None,
    }
}

/// Returns the operation for a queue pair. If swaps are validated, each queue pair has a chain of its own.
fn any(workload: &Workload, qp: usize) -> Any {
    match message(workload.operation) {
        Some(message) => Any::Message(message),
        None if workload.operation == Operation::FetchAdd => Any::FetchAdd,
        None if workload.is_validated => Any::ChainedSwap(CasCheck::new(qp, Places::offsets(8, false).count())),
        None => Any::CompareSwap,
    }
}

impl Step<'_> {
    /// Runs the loops for these queue pairs. Separate loops are compiled for writes, reads and sends over RC, UC and
    /// UD, and for each interface. All other loops select the operation, and the interface, at each request.
    pub(super) fn with<C: Poll>(&mut self, pairs: &mut Pairs, sends: &mut C, receives: &mut C) -> Result<Outcome> {
        let workload = &self.plan.workload;
        match pairs {
            Pairs::Connected(pairs) => {
                let queues = pairs.iter_mut().map(|pair| own(pair.queues()));
                match workload.operation {
                    Operation::Write => self.of_one_kind(queues, |_| Write, sends, receives),
                    Operation::Read => self.of_one_kind(queues, |_| Read, sends, receives),
                    Operation::Send => self.of_one_kind(queues, |_| SendPlain, sends, receives),
                    _ => {
                        let request = |qp| Chosen { operation: any(workload, qp), to: () };
                        self.act(queues.collect(), request, sends, receives)
                    }
                }
            }
            Pairs::Datagram(pairs) => {
                let targets: Vec<_> = pairs.iter().filter_map(|(_, target)| target.clone()).collect();
                let queues = pairs.iter_mut().map(|(pair, _)| own(pair.queues()));
                if workload.operation == Operation::SendWithImmediate {
                    let request = |qp: usize| DatagramSendImmediate(targets[qp].clone());
                    return self.act(queues.collect(), request, sends, receives);
                }
                self.of_one_kind(queues, |qp| targets[qp].clone(), sends, receives)
            }
            Pairs::Dynamic(pairs) => {
                let targets: Vec<_> = pairs.iter().filter_map(|pair| pair.there.clone()).collect();
                let request = |qp: usize| Chosen { operation: any(workload, qp), to: targets[qp].clone() };
                self.act(pairs.iter_mut().map(Dynamic::queues).collect(), request, sends, receives)
            }
            Pairs::Scalable(pairs) => {
                let operation = message(workload.operation).context("SRD has no atomics")?;
                let targets: Vec<_> = pairs.iter().filter_map(|pair| pair.there.clone()).collect();
                let request = |qp: usize| Chosen { operation, to: targets[qp].clone() };
                self.act(pairs.iter_mut().map(|pair| own(pair.queues())).collect(), request, sends, receives)
            }
            Pairs::Xrc(pairs) => {
                let of = |end: &QpAddress| match end.intake {
                    Some(crate::endpoint::Intake::Xrc { srq, .. }) => PeerQueue(srq),
                    _ => PeerQueue(0),
                };
                let numbers: Vec<_> = self.theirs.iter().map(of).collect();
                let request = |qp: usize| Chosen { operation: any(workload, qp), to: numbers[qp] };
                self.act(pairs.iter_mut().map(XrcPair::queues).collect(), request, sends, receives)
            }
        }
    }

    /// Runs the loops for queue pairs with either interface.
    fn of_one_kind<'q, T, R, C>(
        &mut self,
        queues: impl Iterator<Item = Both<'q, GenericSendQueue<T>>>,
        request: impl Fn(usize) -> R,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome>
    where
        T: Service,
        R: Request<Service = T>,
        C: Poll,
    {
        match kinds(queues)? {
            Kinds::Basic(queues) => self.act(queues, request, sends, receives),
            Kinds::Extended(queues) => self.act(queues, request, sends, receives),
        }
    }
}
