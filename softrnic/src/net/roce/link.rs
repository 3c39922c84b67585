//! A connection of a QP: its carrier to a QP on another host.
//!
//! [`Carrier::put`] adds messages to a state machine. The packets that it may send now leave when [`Carrier::flush`] is
//! called, and when packets of the peer arrive. The engine calls [`Link::arrived`] for these.
//!
//! Lock order: the engine's lock for receiving, then the locks of the QP, then `state`. `state` is never held while calling
//! the QP.

mod carrier;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::engine::Engine;
use super::line::Line;
use super::packet::{Body, Packet, Transport};
use super::requests::{Answer, Requests};
use super::responses::{Responses, Verdict};
use super::run::{Run, Target};
use super::socket::SendError;
use super::socket::batch::{Batch, Header};
use super::unreliable::Unreliable;
use super::window::{Share, Window};
use crate::sys::unpoisoned;
use crate::wire::address::{Gid, Path};
use crate::wire::bytes::Segment;
use crate::wire::condition::Condition;
use crate::wire::message::Request;
use crate::wire::operation::{Operation, Service};
use crate::wire::packet::{Response, ResponseKind};
use crate::wire::transport::{Carrier, MAX_UNSETTLED, Wake};

/// How long the link waits after the socket was full.
const PAUSE: Duration = Duration::from_micros(500);
/// The minimum time between two congestion notifications.
const NOTIFICATIONS: Duration = Duration::from_micros(50);

/// What a QP is given about its peer when it becomes ready to receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    /// The number of the QP.
    pub(crate) number: u32,
    pub(crate) service: Service,
    pub(crate) path: Path,
    /// The number of the peer's QP.
    pub(crate) destination: u32,
    pub(crate) mtu: u32,
    /// The PSN of the first packet of the peer.
    pub(crate) psn: u32,
    /// The number of reads and atomics that the peer may have in flight.
    pub(crate) depth: u8,
    pub(crate) condition: &'static Condition,
}

#[derive(Debug)]
pub(crate) struct Link {
    engine: &'static Engine,
    this: Weak<Self>,
    ends: Ends,
    header: Header,
    /// The window of all connections to the host of the peer.
    window: Arc<Mutex<Window>>,
    state: Mutex<State>,
    /// Since when the QP has not handled responses that were delivered.
    unsettled: Mutex<Option<Instant>>,
    is_unsettled: AtomicBool,
}

#[derive(Debug)]
struct State {
    machine: Machine,
    /// The QP that waits for space, and for which messages it does.
    waiter: Option<Weak<dyn Wake>>,
    lacks_space: Lacks,
    is_ended: bool,
    /// Packets that the socket has not taken, and when they are sent again.
    held: Option<(Batch, Instant)>,
    /// When the engine calls [`Link::expired`].
    scheduled: Option<Instant>,
    /// When the peer was last notified of congestion, and whether it must be.
    notified: Option<Instant>,
    must_notify: bool,
    counters: Counters,
}

/// For which messages there was no space.
#[derive(Clone, Copy, Debug, Default)]
struct Lacks {
    requests: bool,
    responses: bool,
}

#[derive(Debug)]
enum Machine {
    Reliable(Box<(Requests, Responses)>),
    Unreliable(Box<Unreliable>),
}

impl Link {
    pub(super) fn new(engine: &'static Engine, header: Header, window: Arc<Mutex<Window>>, ends: Ends) -> Arc<Self> {
        let Ends { number, service, path, destination, mtu, psn, depth, .. } = ends;
        let line = Line { mtu, service, destination };
        let template = Request {
            service: service.peer(),
            operation: Operation::Send,
            length: 0,
            is_solicited: false,
            psn: 0,
            packets: 1,
            source_number: destination,
            source: path.destination,
            destination: path.source,
            key: 0,
            traffic_class: path.traffic_class,
            hop_limit: path.hop_limit,
            flow_label: path.flow_label,
            service_level: path.service_level,
            srq_number: 0,
        };
        let machine = match service {
            Service::UnreliableConnection => {
                Machine::Unreliable(Box::new(Unreliable::new(line, psn, number, template)))
            }
            _ => {
                let responses = Responses::new(line, psn, depth.into(), number, template);
                Machine::Reliable(Box::new((Requests::new(line, 1, Share::new(&window, number, mtu)), responses)))
            }
        };
        let state = State {
            machine,
            waiter: None,
            lacks_space: Lacks::default(),
            is_ended: false,
            held: None,
            scheduled: None,
            notified: None,
            must_notify: false,
            counters: Counters::new(),
        };
        Arc::new_cyclic(|this| Self {
            engine,
            this: this.clone(),
            ends,
            header,
            window,
            state: Mutex::new(state),
            unsettled: Mutex::new(None),
            is_unsettled: AtomicBool::new(false),
        })
    }

    pub(super) fn number(&self) -> u32 {
        self.ends.number
    }

    fn state(&self) -> MutexGuard<'_, State> {
        unpoisoned(self.state.lock())
    }

    /// Whether packets with these addresses are those of the peer.
    pub(super) fn is_between(&self, source: Gid, destination: Gid) -> bool {
        (self.ends.path.destination, self.ends.path.source) == (source, destination)
    }

    /// Whether the QP receives packets of a transport service.
    pub(super) fn accepts(&self, transport: Transport) -> bool {
        match transport {
            Transport::Reliable => self.ends.service == Service::ReliableConnection,
            Transport::Unreliable => self.ends.service == Service::UnreliableConnection,
            Transport::Extended { .. } => self.ends.service == Service::XrcReceive,
            Transport::ExtendedResponse => self.ends.service == Service::XrcSend,
            Transport::Congestion => true,
            Transport::Datagram { .. } => false,
        }
    }

    /// Handles a packet of the peer. Its payload may be added to `run`, which contains data for this link: the caller calls
    /// [`Link::deliver`] after the last packet of the datagram. The caller holds the engine's lock for receiving, and calls
    /// [`Link::handled`] after the last packet that has arrived. `is_marked` is set if a router has marked the packet
    /// because of congestion.
    pub(super) fn arrived<'p>(
        &self,
        packet: &Packet,
        payload: &'p [u8],
        is_marked: bool,
        now: Instant,
        run: &mut Run<'p>,
    ) {
        if !run.may_continue(packet) {
            self.deliver(run);
        }
        if self.ends.condition.is_down() {
            return;
        }
        let mut state = self.state();
        if state.is_ended {
            return;
        }
        state.counters.ecn_marked += u64::from(is_marked);
        state.counters.cnp_handled += u64::from(matches!(packet.body, Body::Congestion));
        state.must_notify |= is_marked && state.notified.is_none_or(|last| now - last >= NOTIFICATIONS);
        let verdict = match &mut state.machine {
            Machine::Unreliable(machine) => {
                machine.arrived(packet, payload.len()).map_or(Verdict::Nothing, Verdict::Part)
            }
            Machine::Reliable(machine) => match packet.body {
                Body::Congestion => {
                    let in_flight = machine.0.in_flight();
                    machine.0.window.notified(in_flight, now);
                    Verdict::Nothing
                }
                Body::Acknowledge(_) | Body::AtomicAcknowledge { .. } | Body::ReadResponse { .. } => {
                    let answer = machine.0.answered(packet, payload.len(), now);
                    drop(state);
                    match answer {
                        Answer::Nothing => {
                            // The run may contain the last data of a message that is finished.
                            self.pass_on(run);
                            self.finish();
                        }
                        Answer::Data { psn, attempt, offset } => {
                            // The conversion is lossless, because a datagram of UDP has at most 64 KiB.
                            let length = payload.len() as u32;
                            self.add(run, Target::Data { psn, attempt, offset, length }, payload);
                        }
                    }
                    return;
                }
                _ => machine.1.arrived(packet, payload.len(), now),
            },
        };
        drop(state);
        match verdict {
            Verdict::Nothing => {}
            Verdict::Part(part) => self.add(run, Target::Part(part), payload),
            Verdict::Again(part) => _ = self.carrier().map(|carrier| self.engine.deliver().again(&part, &carrier)),
        }
    }

    fn add<'p>(&self, run: &mut Run<'p>, target: Target, payload: &'p [u8]) {
        if !run.add(target, payload) {
            self.pass_on(run);
            run.add(target, payload);
        }
    }

    /// Passes a run to the QP, and the replies to the messages that it finishes. Empties the run.
    pub(super) fn deliver(&self, run: &mut Run<'_>) {
        if let Some(Target::Data { .. }) = self.pass_on(run) {
            self.finish();
        }
    }

    fn carrier(&self) -> Option<Arc<dyn Carrier>> {
        Some(self.this.upgrade()?)
    }

    fn pass_on(&self, run: &mut Run<'_>) -> Option<Target> {
        run.deliver(|target, segments| {
            match target {
                Target::Part(part) => {
                    self.settle_responses();
                    _ = self.carrier().map(|carrier| self.engine.deliver().part(&part, segments, &carrier));
                }
                Target::Data { psn, attempt, offset, length } => {
                    self.respond(psn, attempt, ResponseKind::Data { offset, length }, segments);
                }
            }
            target
        })
    }

    pub(super) fn counters(&self) -> Counters {
        let state = self.state();
        let mut counters = state.counters;
        if let Machine::Reliable(machine) = &state.machine {
            counters += machine.0.counters;
            counters += machine.1.counters;
        }
        counters
    }

    /// Acknowledges the packets that have arrived, and sends what is due.
    pub(super) fn handled(&self) {
        let mut state = self.state();
        if let Machine::Reliable(machine) = &mut state.machine {
            machine.1.handled();
        }
        self.send(state, Instant::now());
    }

    /// Handles that this host has dropped packets, perhaps of this peer.
    pub(super) fn has_lost_packets(&self, now: Instant) {
        let mut state = self.state();
        if let Machine::Reliable(machine) = &mut state.machine
            && machine.1.has_lost_packets(now)
        {
            self.send(state, now);
        }
    }

    /// Passes the replies to the messages that are finished to the QP.
    fn finish(&self) {
        let mut state = self.state();
        loop {
            let Machine::Reliable(machine) = &mut state.machine else { return };
            let Some((psn, attempt, reply)) = machine.0.finished() else { break };
            drop(state);
            self.respond(psn, attempt, ResponseKind::Reply(reply), &[]);
            state = self.state();
        }
        let waiter = state.take_waiter();
        drop(state);
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn respond(&self, psn: u32, attempt: u32, kind: ResponseKind, payload: &[Segment]) {
        let Ends { number, destination, .. } = self.ends;
        let response = Response { number, source_number: destination, psn, attempt, kind };
        if !self.engine.deliver().response(&response, payload) {
            self.is_unsettled.store(true, Ordering::Relaxed);
        }
    }

    /// Waits until the QP has handled earlier responses, because the peer may have sent the next message after them.
    fn settle_responses(&self) {
        if !self.is_unsettled.load(Ordering::Relaxed) {
            return;
        }
        let since = *unpoisoned(self.unsettled.lock()).get_or_insert_with(Instant::now);
        self.is_unsettled.store(false, Ordering::Relaxed);
        while !self.engine.deliver().is_settled(self.ends.number) {
            if since.elapsed() >= MAX_UNSETTLED {
                self.is_unsettled.store(true, Ordering::Relaxed);
                return;
            }
            thread::yield_now();
        }
        *unpoisoned(self.unsettled.lock()) = None;
    }

    /// Sends what is due. The engine calls this at each time that [`Engine::schedule`] has got.
    pub(super) fn expired(&self, now: Instant) {
        let mut state = self.state();
        // An earlier time may have replaced this one. If this one set another one, their number would grow forever.
        if state.scheduled.is_none_or(|scheduled| now < scheduled) {
            return;
        }
        state.scheduled = None;
        if let Machine::Reliable(machine) = &mut state.machine {
            machine.0.expired(now);
        }
        self.send(state, now);
        let waiter = self.state().take_waiter();
        if let Some(waiter) = waiter {
            waiter.wake();
            // The QP calls `flush` for its requests, but not for its responses.
            self.flush();
        }
    }

    /// Sends the packets that may leave now, and those of other connections whose turns have come.
    fn send(&self, state: MutexGuard<'_, State>, now: Instant) {
        self.send_own(state, now);
        self.engine.pass_turns(&self.window, now);
    }

    /// Sends a burst, although other connections wait.
    pub(super) fn take_turn(&self, now: Instant) {
        let mut state = self.state();
        if let Machine::Reliable(machine) = &mut state.machine {
            machine.0.window.begin_turn();
        }
        self.send_own(state, now);
    }

    fn send_own(&self, mut state: MutexGuard<'_, State>, now: Instant) {
        if state.is_ended && state.held.is_none() && !state.has_responses() {
            return;
        }
        match self.ends.condition.is_down() {
            // The packets are lost. Their time has come, and would come again at once.
            true => state.held = None,
            false => self.pump(&mut state, now),
        }
        let requests = match &state.machine {
            Machine::Reliable(machine) if !state.has_failed() => machine.0.deadline(),
            _ => None,
        };
        let held = state.held.as_ref().map(|(_, again)| *again);
        // The caller may hold a lock of the QP, so the engine's thread calls the waiter.
        let waiter = state.has_space_for_waiter().then_some(now);
        let deadline = requests.into_iter().chain(held).chain(waiter).min();
        if let Some(deadline) = deadline.filter(|deadline| state.scheduled.is_none_or(|set| *deadline < set)) {
            state.scheduled = Some(deadline);
            drop(state);
            self.engine.schedule(deadline, self.ends.number);
        }
    }

    /// Passes packets to the socket until the state machine has none, or the socket is full.
    fn pump(&self, state: &mut State, now: Instant) {
        if let Some((mut batch, _)) = state.held.take()
            && !self.pass(&mut batch)
        {
            state.held = Some((batch, now + PAUSE));
            return;
        }
        let mut batch = self.engine.batch(&self.header);
        let mut is_full = false;
        let mut emit = |packet: &Packet, payload: &[u8]| {
            if batch.add(packet, payload).is_ok() {
                return true;
            }
            is_full = !self.pass(&mut batch);
            !is_full && batch.add(packet, payload).is_ok()
        };
        if std::mem::take(&mut state.must_notify) {
            state.notified = Some(now);
            state.counters.cnp_sent += 1;
            emit(&Packet::congestion(self.ends.destination), &[]);
        }
        let has_failed = state.has_failed();
        match &mut state.machine {
            Machine::Reliable(machine) => {
                machine.1.send(&mut emit);
                match has_failed {
                    // Its packets in flight must not block other connections.
                    true => machine.0.window.end(),
                    false => machine.0.send(now, &mut emit),
                }
            }
            Machine::Unreliable(machine) => machine.send(&mut emit),
        }
        if is_full || !self.pass(&mut batch) {
            state.held = Some((batch, now + PAUSE));
        } else {
            self.engine.keep(batch);
        }
    }

    /// Passes a batch to the socket. Returns `false` if the socket is full. Packets that cannot be sent are lost.
    fn pass(&self, batch: &mut Batch) -> bool {
        if batch.is_empty() {
            return true;
        }
        match self.engine.send(batch) {
            Ok(()) => true,
            Err(SendError::Full) => false,
            Err(error) => {
                rdma_mummy_sys::log!(debug, "QP {:#x}: packets are lost: {error}", self.ends.number);
                batch.clear();
                true
            }
        }
    }
}

impl State {
    /// Whether the QP has failed, and so sends no more requests. If it has refused a request of the peer, the connection
    /// stays for the case that the refusal is lost.
    fn has_failed(&self) -> bool {
        self.is_ended || matches!(&self.machine, Machine::Reliable(machine) if machine.1.has_refused())
    }

    fn has_space_for_waiter(&self) -> bool {
        let Lacks { requests, responses } = self.lacks_space;
        self.waiter.is_some()
            && match &self.machine {
                Machine::Reliable(machine) => requests && machine.0.has_space() || responses && machine.1.has_space(),
                Machine::Unreliable(machine) => requests && machine.has_space(),
            }
    }

    /// Returns the QP that waits, if there is space for it.
    fn take_waiter(&mut self) -> Option<Arc<dyn Wake>> {
        if !self.has_space_for_waiter() {
            return None;
        }
        self.lacks_space = Lacks::default();
        self.waiter.take()?.upgrade()
    }

    fn has_responses(&self) -> bool {
        match &self.machine {
            Machine::Reliable(machine) => machine.1.is_waiting(),
            Machine::Unreliable(machine) => machine.is_waiting(),
        }
    }
}
