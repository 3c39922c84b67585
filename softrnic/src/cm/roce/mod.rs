//! The connections of RoCE devices to other hosts. The messages of the InfiniBand connection manager set them up
//! ([`connect`](crate::net::roce::connect)), so that the kernel's connection manager can be the peer.
//!
//! A connection outlives its identifier, because it answers duplicates of the peer's messages. The thread of softrnic
//! handles the messages that arrive and repeats those that get no response, also while the program takes no events. A
//! request waits for the program as an event of its listener. If the backlog is full, a request is dropped, and its
//! sender repeats it.
//!
//! Any process of a host may receive a message. The upper bits of a connection's id are a block of QP numbers, so that
//! the id names the process. A request is passed to the process that listens for its service at its address.
//!
//! - `connections`: the connections of the process, and their owners
//! - `arrived`: requests and other messages of peers
//! - `convert`: the messages, as the rest of this module represents them

mod arrived;
mod connections;
mod convert;

use std::iter;
use std::sync::Once;
use std::time::Instant;

use rdma_mummy_sys::ibv_mtu;

pub(super) use self::connections::Connections;
use self::connections::{COUNTER, Entry, Owner};
use self::convert::{addresses_of, route};
use super::calls::{random, system};
use super::id::State as Progress;
use super::messages::{Kind, Message};
use super::peer::Reason;
use super::port::Host;
use super::{World, device, try_world};
use crate::net::roce::cm_message::service_id;
use crate::net::roce::connect::{Connection, Event};
use crate::net::roce::engine::Engine;
use crate::net::roce::socket::{CM_HEADERS, HEADERS, mtu, path_mtu};
use crate::sys::errno::Errno;
use crate::wire::address::Gid;
use crate::wire::transport::Fabric;
use crate::wiring;

/// The connection of an identifier.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attached {
    connection: u32,
    /// The code of the path MTU.
    mtu: u8,
    /// The local ACK timeout that the peer has requested.
    ack_timeout: Option<u8>,
}

impl Attached {
    pub(super) fn mtu(&self) -> ibv_mtu {
        ibv_mtu(self.mtu.into())
    }

    pub(super) fn ack_timeout(&self) -> Option<u8> {
        self.ack_timeout
    }
}

/// Disconnects the connections of the process when it exits. The kernel does so for its devices.
fn notify_peers_at_exit() {
    extern "C" fn exits() {
        // Another thread may hold the lock, and will not release it any more.
        if let Some(mut world) = try_world() {
            world.leave_all();
        }
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function has the signature that C requires, and does not unwind.
        if unsafe { libc::atexit(exits) } != 0 {
            rdma_mummy_sys::log!(debug, "peers will not be notified when this process exits");
        }
    });
}

/// Returns the code of the path MTU of a connection. The peer has to support it too, so the overhead that the kernel's
/// connection manager reserves is subtracted.
pub(super) fn path_mtu_code(source: Gid) -> Result<u8, Errno> {
    mtu_code(source, CM_HEADERS)
}

/// Returns the code of the largest path MTU that the interface with an address supports.
fn max_mtu_code(address: Gid) -> Result<u8, Errno> {
    mtu_code(address, HEADERS)
}

fn mtu_code(address: Gid, headers: u32) -> Result<u8, Errno> {
    let mtu = path_mtu(mtu(address).map_err(system)?, headers);
    // The path MTU is a power of two from 256 to 4096. Its code is 1 for 256.
    Ok((mtu.trailing_zeros() - 7) as u8)
}

/// Returns the name of a listener, by which other processes find it.
fn name(service: u64, host: Host) -> String {
    format!("{service:x}/{host}")
}

impl World {
    /// Opens the sockets, and takes the messages of peers from now on.
    pub(super) fn begin_roce(&mut self) -> Result<&'static Engine, Errno> {
        if let Some(engine) = self.roce.engine {
            return Ok(engine);
        }
        let (place, engine) = (self.place()?, wiring::roce());
        engine.start().map_err(|error| {
            rdma_mummy_sys::log!(error, "{error}");
            Errno(error.errno())
        })?;
        engine.manage(place);
        notify_peers_at_exit();
        self.roce.engine = Some(engine);
        Ok(engine)
    }

    /// Lets clients on other hosts connect to a listener. If the sockets cannot be opened, clients on other devices
    /// still can.
    pub(super) fn listen_on_roce(&mut self, id: usize) -> Result<(), Errno> {
        if !device::exists(Fabric::Roce) {
            return Ok(());
        }
        let name = self.name_of(id).ok_or(Errno::INVALID)?;
        match self.begin_roce().and_then(|engine| engine.own_service(&name).map_err(system)) {
            Ok(()) => {
                self.roce.services.insert(name);
                Ok(())
            }
            Err(errno) if !device::exists(Fabric::Host) && self.id(id)?.stream_listener.is_none() => Err(errno),
            Err(_) => Ok(()),
        }
    }

    /// Ends the effect of [`listen_on_roce`](Self::listen_on_roce).
    pub(super) fn stop_listening_on_roce(&mut self, id: usize) {
        let Some(name) = self.name_of(id).filter(|name| self.roce.services.remove(name)) else { return };
        if let Some(engine) = self.roce.engine {
            engine.disown_service(&name);
        }
    }

    /// Returns the name of an identifier that listens.
    fn name_of(&mut self, id: usize) -> Option<String> {
        let port = self.id(id).ok().filter(|id| id.listener.is_some())?.port.as_ref()?;
        Some(name(service_id(port.space, port.number), port.host))
    }

    /// Sends the request of an identifier. Events report the result.
    pub(super) fn request_roce(&mut self, id: usize, message: &Message) -> Result<(), Errno> {
        self.begin_roce()?;
        let mtu = path_mtu_code(addresses_of(message).0)?;
        let (grace, number, transaction, now) =
            (self.grace(message.to), self.roce.next_id()?, random(), Instant::now());
        let identifier = self.id(id)?;
        // SAFETY: the identifier is alive.
        let (space, qp_type) = unsafe { ((*identifier.c).ps, (*identifier.c).qp_type) };
        let ack_timeout = identifier.options.ack_timeout.unwrap_or(super::transition::TIMEOUT);
        let service = convert::service(space, message.to);
        let connection = match message.kind {
            Kind::DatagramRequest => {
                let req = convert::sidr_req(number, service, message).ok_or(Errno::INVALID)?;
                Connection::resolve(req, transaction, now)
            }
            _ => {
                let line = (service, mtu, ack_timeout);
                let req = convert::req(number, line, qp_type, message).ok_or(Errno::INVALID)?;
                Connection::request(req, transaction, grace, now)
            }
        };
        identifier.roce = Some(Attached { connection: number, mtu, ack_timeout: None });
        let (route, owner) = (route(message), Owner::Identifier(id));
        self.roce.add(number, Entry { connection, route, service, owner, origin: None, deadline: None });
        self.pump(number);
        Ok(())
    }

    /// Passes a message of an identifier to its connection.
    pub(super) fn send_on_roce(&mut self, id: usize, message: &Message) {
        let Some(attached) = self.id(id).ok().map(|id| id.roce) else { return };
        let Some((number, entry)) = self.roce.of(id, attached) else { return };
        let (connection, now) = (&mut entry.connection, Instant::now());
        match message.kind {
            Kind::Reply => connection.accept(convert::rep(message), now),
            Kind::ReadyToUse => connection.ready(now),
            Kind::Reject => connection.reject(message.reason, &message.data, now),
            Kind::Disconnect | Kind::Disconnected => connection.disconnect(now),
            Kind::DatagramReply => connection.answer(convert::sidr_rep(entry.service, message), now),
            Kind::Request | Kind::DatagramRequest => {}
        }
        self.pump(number);
    }

    /// Ends the wait of an identifier for the confirmation of its peer, which has already sent a message on the connection.
    pub(super) fn has_communicated_on_roce(&mut self, id: usize) {
        let Some(attached) = self.id(id).ok().map(|id| id.roce) else { return };
        let Some((number, entry)) = self.roce.of(id, attached) else { return };
        entry.connection.has_communicated(Instant::now());
        self.pump(number);
    }

    /// Separates an identifier that is being destroyed from its connection, which may still have to answer the peer.
    pub(super) fn leave_roce(&mut self, id: usize) {
        let Some(attached) = self.id(id).ok().map(|id| id.roce.take()) else { return };
        let Some((number, entry)) = self.roce.of(id, attached) else { return };
        entry.owner = Owner::None;
        entry.connection.withdraw();
        self.pump(number);
    }

    /// Forgets the connection of an identifier whose device was removed.
    pub(super) fn forget_roce(&mut self, id: usize) {
        let Some(attached) = self.id(id).ok().map(|id| id.roce.take()) else { return };
        if let Some((number, _)) = self.roce.of(id, attached) {
            self.roce.remove(number);
        }
    }

    /// Refuses a request for which no identifier is created.
    pub(super) fn refuse_roce(&mut self, attached: Attached) {
        let number = attached.connection;
        let (now, datagram_rejected) = (Instant::now(), Reason::DATAGRAM_REJECTED.0);
        let Some(entry) = self.roce.all.get_mut(&number) else { return };
        entry.owner = Owner::None;
        entry.connection.reject(Reason::CONSUMER_DEFINED.0, &[], now);
        let refusal = Message { reason: datagram_rejected, ..Message::new(Kind::DatagramReply) };
        entry.connection.answer(convert::sidr_rep(entry.service, &refusal), now);
        self.pump(number);
    }

    /// Refuses the request of an identifier that could not be set up.
    pub(super) fn abandon_roce(&mut self, id: usize) {
        if let Some(attached) = self.id(id).ok().and_then(|id| id.roce.take()) {
            self.refuse_roce(attached);
        }
    }

    /// Makes the identifier of a request the owner of its connection. The caller then calls
    /// [`take_events_of_roce`](Self::take_events_of_roce). Fails if the listener has ended.
    pub(super) fn own_roce(&mut self, id: usize, attached: Attached) -> Result<(), Errno> {
        let entry = self.roce.all.get_mut(&attached.connection).ok_or(Errno(libc::ECONNRESET))?;
        entry.owner = Owner::Identifier(id);
        self.id(id)?.roce = Some(attached);
        Ok(())
    }

    /// Handles the withdrawal of a request before its event was taken.
    pub(super) fn take_events_of_roce(&mut self, id: usize) {
        if let Some(attached) = self.id(id).ok().and_then(|id| id.roce) {
            self.pump(attached.connection);
        }
    }

    /// Handles the messages that have arrived, and the times that have come. Returns the next time.
    pub(super) fn attend_roce(&mut self) -> Option<Instant> {
        let may_have_more = self.take_arrived();
        self.roce.engine?;
        let now = Instant::now();
        loop {
            match self.roce.deadlines.first().copied() {
                Some((when, number)) if when <= now => {
                    for refused in self.roce.check_host(number, now) {
                        self.pump(refused);
                    }
                    if let Some(entry) = self.roce.all.get_mut(&number) {
                        entry.connection.expired(now);
                    }
                    self.roce.deadlines.remove(&(when, number));
                    self.pump(number);
                }
                first => return Some(now).filter(|_| may_have_more).or(first.map(|(when, _)| when)),
            }
        }
    }

    /// Ends all connections.
    fn leave_all(&mut self) {
        let (numbers, now): (Vec<u32>, _) = (self.roce.all.keys().copied().collect(), Instant::now());
        for number in numbers {
            if let Some(entry) = self.roce.all.get_mut(&number) {
                entry.connection.leave(now);
                self.pump(number);
            }
        }
    }

    /// Sends the messages of a connection, and handles its events.
    fn pump(&mut self, number: u32) {
        let (is_down, place) = (device::is_down(Fabric::Roce), self.place);
        let Connections { engine, all, deadlines, .. } = &mut self.roce;
        let Some(entry) = all.get_mut(&number) else { return };
        while let Some((transaction, message)) = entry.connection.next_message() {
            // Messages that are lost are repeated.
            if let Some(engine) = engine.filter(|_| !is_down) {
                engine.send_management(&entry.route, &message.bytes(transaction));
            }
        }
        if let Some(before) = entry.deadline {
            deadlines.remove(&(before, number));
        }
        entry.deadline = entry.connection.deadline();
        if let Some(deadline) = entry.deadline {
            let is_first = deadlines.first().is_none_or(|(first, _)| deadline < *first);
            deadlines.insert((deadline, number));
            if let Some(place) = place.filter(|_| is_first) {
                place.wake();
            }
        }
        // A request that the peer has withdrawn counts in the backlog until the program takes it.
        let owner = entry.owner;
        if matches!(owner, Owner::Listener(_)) {
            return;
        }
        let events: Vec<Event> = iter::from_fn(|| entry.connection.next_event()).collect();
        if entry.connection.is_closed() {
            self.roce.remove(number);
        }
        if let Owner::Identifier(id) = owner {
            events.into_iter().for_each(|event| self.handle_event(id, event));
        }
    }

    fn handle_event(&mut self, id: usize, event: Event) {
        let message = match event {
            Event::Replied(rep) => convert::reply(&rep),
            Event::Established => Message::new(Kind::ReadyToUse),
            Event::Rejected(rej) => {
                Message { reason: rej.reason, data: rej.private.to_vec(), ..Message::new(Kind::Reject) }
            }
            Event::Refused => return self.no_listener(id),
            Event::TimedOut => return self.rejected(id, -libc::ETIMEDOUT, Vec::new()),
            Event::Resolved(rep) => convert::datagram_reply(&rep),
            Event::Disconnected => match self.id(id).map(|id| id.state) {
                Ok(Progress::Disconnecting) => Message::new(Kind::Disconnected),
                _ => Message::new(Kind::Disconnect),
            },
        };
        self.handle_message(id, message);
    }
}
