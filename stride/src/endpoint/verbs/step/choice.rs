//! From the plan to the types of the loop: which queues there are, and which requests.

use anyhow::{Result, bail};
use sideway::efa::ScalableReliableDatagram;
use sideway::ibverbs::completion::CompletionQueue;
use sideway::ibverbs::queue_pair::{
    BasicSendQueue, Connected, Datagram, ExtendedSendQueue, GenericSendQueue, SendQueue, Xrc,
};
use sideway::ibverbs::work_request::ReceiveQueue;
use sideway::mlx5::DynamicallyConnected;

use super::{Outcome, Step};
use crate::endpoint::verbs::pairs::{Pairs, XrcPair};
use crate::endpoint::verbs::vendor_pairs::Dynamic;
use crate::plan::Operation;
use crate::run::cas_check::CasCheck;
use crate::run::{
    AtPeer, AtTarget, Bell, ChainedSwap, CompareSwap, DatagramSend, DatagramSendImmediate, FetchAdd, Intake, Places,
    Poll, Read, SendImmediate, SendPlain, Target, To, Waiting, Write, WriteImmediate,
};

/// Where the requests of a lane go, and its receives.
pub(super) type Both<'q, S> = (&'q mut S, Intake<'q>);

/// Those of all, of one kind.
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
        _ => bail!("the device makes queue pairs now of one kind and now of the other"),
    }
}

/// The queues of a queue pair that receives for itself.
fn own<'q, S>((send, receive): (&'q mut S, &'q mut ReceiveQueue)) -> Both<'q, S> {
    (send, Intake::Own(receive))
}

/// The swaps of a lane, where they are checked.
fn chained(lane: usize) -> ChainedSwap {
    ChainedSwap(CasCheck::new(lane, Places::offsets(8, false).count()))
}

impl Step<'_> {
    /// With a bell the thread sleeps while its queues are empty; without one it polls.
    pub(super) fn at<C: Poll + CompletionQueue>(
        &mut self,
        bell: Option<&Bell>,
        pairs: &mut Pairs,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome> {
        self.with(pairs, &mut Waiting::new(sends, bell), &mut Waiting::new(receives, bell))
    }

    /// With completion queues of one kind.
    fn with<C: Poll>(&mut self, pairs: &mut Pairs, sends: &mut C, receives: &mut C) -> Result<Outcome> {
        match pairs {
            Pairs::Connected(pairs) => match kinds(pairs.iter_mut().map(|pair| own(pair.queues())))? {
                Kinds::Basic(queues) => self.connected(queues, sends, receives),
                Kinds::Extended(queues) => self.connected(queues, sends, receives),
            },
            Pairs::Datagram(pairs) => {
                let targets: Vec<_> = pairs.iter().filter_map(|(_, target)| target.clone()).collect();
                match kinds(pairs.iter_mut().map(|(pair, _)| own(pair.queues())))? {
                    Kinds::Basic(queues) => self.datagrams(queues, targets, sends, receives),
                    Kinds::Extended(queues) => self.datagrams(queues, targets, sends, receives),
                }
            }
            Pairs::Dynamic(pairs) => {
                let targets = pairs.iter().filter_map(|pair| pair.there.clone()).collect();
                self.dynamic(pairs.iter_mut().map(Dynamic::queues).collect(), targets, sends, receives)
            }
            Pairs::Scalable(pairs) => {
                let targets = pairs.iter().filter_map(|pair| pair.there.clone()).collect();
                self.scalable(pairs.iter_mut().map(|pair| own(pair.queues())).collect(), targets, sends, receives)
            }
            Pairs::Xrc(pairs) => match kinds(pairs.iter_mut().map(XrcPair::queues))? {
                Kinds::Basic(queues) => self.xrc(queues, sends, receives),
                Kinds::Extended(queues) => self.xrc(queues, sends, receives),
            },
        }
    }

    fn connected<S, C>(&mut self, queues: Vec<Both<'_, S>>, sends: &mut C, receives: &mut C) -> Result<Outcome>
    where
        S: SendQueue<Service = Connected>,
        C: Poll,
    {
        match self.plan.workload.operation {
            Operation::Write => self.act(queues, |_| Write, sends, receives),
            Operation::WriteWithImmediate => self.act(queues, |_| WriteImmediate, sends, receives),
            Operation::Read => self.act(queues, |_| Read, sends, receives),
            Operation::Send => self.act(queues, |_| SendPlain, sends, receives),
            Operation::SendWithImmediate => self.act(queues, |_| SendImmediate, sends, receives),
            Operation::FetchAdd => self.act(queues, |_| FetchAdd, sends, receives),
            Operation::CompareSwap if self.plan.workload.is_validated => self.act(queues, chained, sends, receives),
            Operation::CompareSwap => self.act(queues, |_| CompareSwap, sends, receives),
        }
    }

    fn xrc<S, C>(&mut self, queues: Vec<Both<'_, S>>, sends: &mut C, receives: &mut C) -> Result<Outcome>
    where
        S: SendQueue<Service = Xrc>,
        C: Poll,
    {
        let numbers: Vec<u32> = self
            .theirs
            .iter()
            .map(|end| match end.intake {
                Some(crate::endpoint::Intake::Xrc { srq, .. }) => srq,
                _ => 0,
            })
            .collect();
        let to = |lane: usize| numbers[lane];
        match self.plan.workload.operation {
            Operation::Write => self.act(queues, |lane| To(Write, to(lane)), sends, receives),
            Operation::WriteWithImmediate => self.act(queues, |lane| To(WriteImmediate, to(lane)), sends, receives),
            Operation::Read => self.act(queues, |lane| To(Read, to(lane)), sends, receives),
            Operation::Send => self.act(queues, |lane| To(SendPlain, to(lane)), sends, receives),
            Operation::SendWithImmediate => self.act(queues, |lane| To(SendImmediate, to(lane)), sends, receives),
            Operation::FetchAdd => self.act(queues, |lane| To(FetchAdd, to(lane)), sends, receives),
            Operation::CompareSwap if self.plan.workload.is_validated => {
                self.act(queues, |lane| To(chained(lane), to(lane)), sends, receives)
            }
            Operation::CompareSwap => self.act(queues, |lane| To(CompareSwap, to(lane)), sends, receives),
        }
    }

    fn dynamic<C: Poll>(
        &mut self,
        queues: Vec<Both<'_, ExtendedSendQueue<DynamicallyConnected>>>,
        targets: Vec<Target>,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome> {
        let to = |lane: usize| targets[lane].clone();
        match self.plan.workload.operation {
            Operation::Write => self.act(queues, |lane| AtTarget(Write, to(lane)), sends, receives),
            Operation::WriteWithImmediate => {
                self.act(queues, |lane| AtTarget(WriteImmediate, to(lane)), sends, receives)
            }
            Operation::Read => self.act(queues, |lane| AtTarget(Read, to(lane)), sends, receives),
            Operation::Send => self.act(queues, |lane| AtTarget(SendPlain, to(lane)), sends, receives),
            Operation::SendWithImmediate => self.act(queues, |lane| AtTarget(SendImmediate, to(lane)), sends, receives),
            Operation::FetchAdd => self.act(queues, |lane| AtTarget(FetchAdd, to(lane)), sends, receives),
            Operation::CompareSwap if self.plan.workload.is_validated => {
                self.act(queues, |lane| AtTarget(chained(lane), to(lane)), sends, receives)
            }
            Operation::CompareSwap => self.act(queues, |lane| AtTarget(CompareSwap, to(lane)), sends, receives),
        }
    }

    fn scalable<C: Poll>(
        &mut self,
        queues: Vec<Both<'_, ExtendedSendQueue<ScalableReliableDatagram>>>,
        targets: Vec<DatagramSend>,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome> {
        let to = |lane: usize| targets[lane].clone();
        match self.plan.workload.operation {
            Operation::Write => self.act(queues, |lane| AtPeer(Write, to(lane)), sends, receives),
            Operation::WriteWithImmediate => self.act(queues, |lane| AtPeer(WriteImmediate, to(lane)), sends, receives),
            Operation::Read => self.act(queues, |lane| AtPeer(Read, to(lane)), sends, receives),
            Operation::Send => self.act(queues, |lane| AtPeer(SendPlain, to(lane)), sends, receives),
            Operation::SendWithImmediate => self.act(queues, |lane| AtPeer(SendImmediate, to(lane)), sends, receives),
            Operation::FetchAdd | Operation::CompareSwap => bail!("SRD has no atomics"),
        }
    }

    fn datagrams<S, C>(
        &mut self,
        queues: Vec<Both<'_, S>>,
        targets: Vec<DatagramSend>,
        sends: &mut C,
        receives: &mut C,
    ) -> Result<Outcome>
    where
        S: SendQueue<Service = Datagram>,
        C: Poll,
    {
        match self.plan.workload.operation {
            Operation::SendWithImmediate => {
                self.act(queues, |lane| DatagramSendImmediate(targets[lane].clone()), sends, receives)
            }
            _ => self.act(queues, |lane| targets[lane].clone(), sends, receives),
        }
    }
}
