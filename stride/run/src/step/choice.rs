//! Selects the types with which the loops are compiled: the types of the queues and of the requests.

use anyhow::{Context, Result, bail};
use sideway::efa::ScalableReliableDatagram;
use sideway::ibverbs::queue_pair::{
    BasicSendQueue, Connected, Datagram, ExtendedSendQueue, GenericSendQueue, Service, Xrc,
};
use sideway::mlx5::DynamicallyConnected;

use super::{Operation, Outcome, Queue, Step};
use crate::cas_check::CasCheck;
use crate::list_queue::ListQueue;
use crate::qp_driver::{AnyDriver, QpDriver, slot_offsets};
use crate::receive::{Intake, Receives};
use crate::request::{
    Any, Chosen, DatagramSend, DatagramSendImmediate, Message, PeerQueue, Read, Request, SendPlain, Target, Write,
};

/// The queues of a queue pair, and the destination of its requests, if requests contain one.
#[derive(Debug)]
pub struct Pair<'q, S, T = ()> {
    /// The queue to which requests are posted.
    pub send: &'q mut S,
    /// The queue to which receives are posted.
    pub intake: Intake<'q>,
    /// The destination of the requests.
    pub to: T,
}

/// The queue pairs of a thread. Each variant is a transport or a group of transports.
#[derive(Debug)]
pub enum Pairs<'q> {
    /// RC and UC.
    Connected(Vec<Pair<'q, GenericSendQueue<Connected>>>),
    /// UD.
    Datagram(Vec<Pair<'q, GenericSendQueue<Datagram>, Option<DatagramSend>>>),
    /// XRC, with the number of the peer's shared receive queue.
    Xrc(Vec<Pair<'q, GenericSendQueue<Xrc>, u32>>),
    /// DC.
    Dynamic(Vec<Pair<'q, ExtendedSendQueue<DynamicallyConnected>, Option<Target>>>),
    /// SRD.
    Scalable(Vec<Pair<'q, ExtendedSendQueue<ScalableReliableDatagram>, Option<DatagramSend>>>),
}

impl<'q> Pairs<'q> {
    /// Returns the queues to which receives are posted.
    pub(super) fn intakes(self) -> Vec<Intake<'q>> {
        match self {
            Self::Connected(pairs) => pairs.into_iter().map(|pair| pair.intake).collect(),
            Self::Datagram(pairs) => pairs.into_iter().map(|pair| pair.intake).collect(),
            Self::Xrc(pairs) => pairs.into_iter().map(|pair| pair.intake).collect(),
            Self::Dynamic(pairs) => pairs.into_iter().map(|pair| pair.intake).collect(),
            Self::Scalable(pairs) => pairs.into_iter().map(|pair| pair.intake).collect(),
        }
    }
}

/// The queues of some queue pairs, together with the request that each of them posts.
struct Set<'q, S, R> {
    sends: Vec<&'q mut S>,
    intakes: Vec<Intake<'q>>,
    requests: Vec<R>,
}

impl<'q, S, R> Set<'q, S, R> {
    /// Calls `request` with the index and the destination of each queue pair.
    fn new<T>(pairs: Vec<Pair<'q, S, T>>, request: impl Fn(usize, T) -> Result<R>) -> Result<Self> {
        let mut set = Self { sends: Vec::new(), intakes: Vec::new(), requests: Vec::new() };
        for (qp, Pair { send, intake, to }) in pairs.into_iter().enumerate() {
            set.sends.push(send);
            set.intakes.push(intake);
            set.requests.push(request(qp, to)?);
        }
        Ok(set)
    }
}

/// The send queues of all queue pairs, which have either the basic or the extended interface.
enum Kinds<'q, T> {
    Basic(Vec<&'q mut BasicSendQueue<T>>),
    Extended(Vec<&'q mut ExtendedSendQueue<T>>),
}

fn kinds<T>(sends: Vec<&mut GenericSendQueue<T>>) -> Result<Kinds<'_, T>> {
    let (mut basic, mut extended) = (Vec::new(), Vec::new());
    for send in sends {
        match send {
            GenericSendQueue::Basic(send) => basic.push(send),
            GenericSendQueue::Extended(send) => extended.push(send),
        }
    }
    match (basic.is_empty(), extended.is_empty()) {
        (_, true) => Ok(Kinds::Basic(basic)),
        (true, _) => Ok(Kinds::Extended(extended)),
        _ => bail!("the device created queue pairs of different kinds"),
    }
}

fn message(operation: Operation) -> Option<Message> {
    match operation {
        Operation::Write => Some(Message::Write),
        Operation::WriteImmediate => Some(Message::WriteImmediate),
        Operation::Read => Some(Message::Read),
        Operation::Send => Some(Message::Send),
        Operation::SendImmediate => Some(Message::SendImmediate),
        Operation::FetchAdd | Operation::CompareSwap | Operation::ChainedSwap => None,
    }
}

/// Returns the operation for a queue pair. If swaps are validated, each queue pair has a chain of its own.
fn any(operation: Operation, qp: usize) -> Any {
    match message(operation) {
        Some(message) => Any::Message(message),
        None if operation == Operation::FetchAdd => Any::FetchAdd,
        None if operation == Operation::ChainedSwap => {
            Any::ChainedSwap(CasCheck::new(qp, slot_offsets(8, false).count()))
        }
        None => Any::CompareSwap,
    }
}

/// Returns the destination of requests, which exists once the queue pair is connected.
fn known<T>(to: Option<T>) -> Result<T> {
    to.context("a queue pair has no destination")
}

impl Step<'_> {
    /// Runs the loops for these queue pairs. Separate loops are compiled for writes, reads and sends over RC and UC,
    /// for sends over UD, and for each interface. Other operations share loops, which call the queue pair through a
    /// table of functions.
    ///
    /// # Safety
    ///
    /// The requirements of [`run`](Self::run) apply.
    pub(super) unsafe fn with<'q>(
        &mut self,
        pairs: Pairs<'_>,
        sends: &mut Queue<'q>,
        receives: &mut Queue<'q>,
    ) -> Result<Outcome> {
        let operation = self.operation;
        // SAFETY: the caller guarantees what the functions require.
        unsafe {
            match pairs {
                Pairs::Connected(pairs) => match operation {
                    Operation::Write => self.of_one_kind(Set::new(pairs, |_, ()| Ok(Write))?, sends, receives),
                    Operation::Read => self.of_one_kind(Set::new(pairs, |_, ()| Ok(Read))?, sends, receives),
                    Operation::Send => self.of_one_kind(Set::new(pairs, |_, ()| Ok(SendPlain))?, sends, receives),
                    _ => {
                        let request = |qp, to| Ok(Chosen { operation: any(operation, qp), to });
                        self.of_any_kind(Set::new(pairs, request)?, sends, receives)
                    }
                },
                Pairs::Datagram(pairs) if operation == Operation::SendImmediate => {
                    let request = |_, to| known(to).map(DatagramSendImmediate);
                    self.of_any_kind(Set::new(pairs, request)?, sends, receives)
                }
                Pairs::Datagram(pairs) => self.of_one_kind(Set::new(pairs, |_, to| known(to))?, sends, receives),
                Pairs::Xrc(pairs) => {
                    let request = |qp, srq| Ok(Chosen { operation: any(operation, qp), to: PeerQueue(srq) });
                    self.of_any_kind(Set::new(pairs, request)?, sends, receives)
                }
                Pairs::Dynamic(pairs) => {
                    let request = |qp, to| Ok(Chosen { operation: any(operation, qp), to: known(to)? });
                    self.of_any_kind(Set::new(pairs, request)?, sends, receives)
                }
                Pairs::Scalable(pairs) => {
                    let operation = message(operation).context("SRD has no atomics")?;
                    let request = |_, to| Ok(Chosen { operation, to: known(to)? });
                    self.of_any_kind(Set::new(pairs, request)?, sends, receives)
                }
            }
        }
    }

    /// Runs the loops that are compiled for this request and for the interface of the queue pairs.
    ///
    /// # Safety
    ///
    /// The requirements of [`run`](Self::run) apply.
    unsafe fn of_one_kind<'q, T, R>(
        &mut self,
        Set { sends, intakes, requests }: Set<'_, GenericSendQueue<T>, R>,
        queue: &mut Queue<'q>,
        receives: &mut Queue<'q>,
    ) -> Result<Outcome>
    where
        T: Service,
        R: Request<Service = T>,
    {
        // SAFETY: the caller guarantees what the functions require.
        unsafe {
            let mut receives = Receives::new(receives, self.refills(intakes));
            match kinds(sends)? {
                Kinds::Basic(sends) => self.act(self.drivers(sends, &requests)?, queue, &mut receives),
                Kinds::Extended(sends) => self.act(self.drivers(sends, &requests)?, queue, &mut receives),
            }
        }
    }

    /// Runs the loops that all other types share.
    ///
    /// # Safety
    ///
    /// The requirements of [`run`](Self::run) apply.
    unsafe fn of_any_kind<'q, S, R>(
        &mut self,
        Set { sends, intakes, requests }: Set<'_, S, R>,
        queue: &mut Queue<'q>,
        receives: &mut Queue<'q>,
    ) -> Result<Outcome>
    where
        S: ListQueue,
        R: Request<Service = S::Service>,
    {
        // SAFETY: the caller guarantees what the functions require.
        unsafe {
            let mut receives = Receives::new(receives, self.refills(intakes));
            let drivers = self.drivers(sends, &requests)?.into_iter();
            self.act(drivers.map(|driver| Box::new(driver) as AnyDriver<'_>).collect(), queue, &mut receives)
        }
    }

    /// # Safety
    ///
    /// The requirements of [`run`](Self::run) apply.
    unsafe fn drivers<'q, S, R>(&self, sends: Vec<&'q mut S>, requests: &'q [R]) -> Result<Vec<QpDriver<'q, S, R>>>
    where
        S: ListQueue,
        R: Request<Service = S::Service>,
    {
        let pairs = sends.into_iter().zip(requests).enumerate();
        // SAFETY: the caller guarantees what the function requires.
        pairs.map(|(qp, (send, request))| unsafe { self.driver(qp, send, request) }).collect()
    }
}
