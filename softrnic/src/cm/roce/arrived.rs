//! The messages of peers.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Instant;

use rdma_mummy_sys::ibv_qp_type;

use super::{Attached, COUNTER, Entry, Owner, convert, max_mtu_code, name};
use crate::cm::address::gid;
use crate::cm::id::{Identifier, State};
use crate::cm::listen::Origin as Arrival;
use crate::cm::peer::Reason;
use crate::cm::port::Host;
use crate::cm::route::HOPS;
use crate::cm::{World, device};
use crate::net::roce::cm_message::{
    AddressHeader, Addresses, Ece, Information, Message, Req, SidrRep, SidrReq, service_of,
};
use crate::net::roce::connect::received::{confirmation, rejection, unknown_request};
use crate::net::roce::connect::{Connection, reason};
use crate::net::roce::management::Arrived;
use crate::net::roce::socket::Owner as Process;
use crate::net::roce::socket::batch::Route;
use crate::sys::addresses;
use crate::wire::transport::Fabric;

/// The codes of the smallest and the largest path MTU: 256 and 4096 bytes.
const MIN_MTU: u8 = 1;
const MAX_MTU: u8 = 5;
/// The maximum number of messages that are handled before other threads get the lock.
const MAX_ARRIVED: usize = 256;

/// A request of a peer.
enum Request<'m> {
    Connection(&'m Req),
    Datagram(&'m SidrReq),
}

/// Why a request does not reach a program.
enum Refusal {
    /// The sender repeats it later.
    Full,
    Rejected(u16),
}

impl Request<'_> {
    fn id(&self) -> u32 {
        match self {
            Self::Connection(req) => req.local_id,
            Self::Datagram(req) => req.request_id,
        }
    }

    fn service(&self) -> u64 {
        match self {
            Self::Connection(req) => req.service,
            Self::Datagram(req) => req.service,
        }
    }

    /// Returns the ends of the connection, and the private data of the program.
    fn ends(&self, port: u16) -> Option<(SocketAddr, SocketAddr, &[u8])> {
        let private = match self {
            Self::Connection(req) => &req.private[..],
            Self::Datagram(req) => &req.private,
        };
        let (header, data) = AddressHeader::read(private).ok()?;
        let (from, to) = match header.addresses {
            Addresses::V4 { source, destination } => (source.into(), destination.into()),
            Addresses::V6 { source, destination } => (source.into(), destination.into()),
        };
        let scope = scope(to);
        Some((address(from, header.source_port, scope), address(to, port, scope), data))
    }

    /// Whether the addresses in the request are those of its packet.
    fn is_from(&self, arrived: &Arrived, (from, to): (IpAddr, IpAddr)) -> bool {
        let ends = (arrived.source, arrived.destination);
        let has_path = match self {
            Self::Connection(req) => (req.path.local, req.path.remote) == ends,
            Self::Datagram(_) => true,
        };
        has_path && (gid(from), gid(to)) == ends
    }

    fn refusal(&self, reason: u16) -> Message {
        match self {
            Self::Connection(req) => rejection(req.local_id, reason),
            Self::Datagram(req) => Message::SidrRep(SidrRep {
                request_id: req.request_id,
                status: Reason::DATAGRAM_UNSUPPORTED.0 as u8,
                ece: Ece::default(),
                qp_number: 0,
                service: req.service,
                qkey: 0,
                information: Information::NONE,
                private: [0; SidrRep::PRIVATE],
            }),
        }
    }
}

/// Returns the scope of the link-local addresses of a connection, which is the interface of the own one.
fn scope(own: IpAddr) -> u32 {
    let is_link_local = matches!(own, IpAddr::V6(own) if own.is_unicast_link_local());
    let mut all = addresses::all().into_iter().filter(|_| is_link_local);
    all.find(|address| IpAddr::V6(address.ip) == own).map_or(0, |address| address.interface_index)
}

fn address(ip: IpAddr, port: u16, scope: u32) -> SocketAddr {
    match ip {
        IpAddr::V4(_) => SocketAddr::new(ip, port),
        IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, scope).into(),
    }
}

/// Returns the route of responses to a message.
fn back(arrived: &Arrived) -> Route {
    let (source, destination) = (arrived.destination, arrived.source);
    Route { source, destination, traffic_class: 0, hop_limit: HOPS, flow_label: 0 }
}

impl World {
    /// Handles messages that have arrived. Returns whether there may be more.
    pub(in crate::cm) fn take_arrived(&mut self) -> bool {
        let Some(engine) = self.roce.engine else { return false };
        for _ in 0..MAX_ARRIVED {
            let Some(arrived) = engine.next_management() else { return false };
            // So a process of this host uses RoCE.
            self.roce.probes.remove(&(arrived.destination, arrived.source));
            if device::is_down(Fabric::Roce) {
                continue;
            }
            match Message::read(&arrived.bytes) {
                Ok((transaction, message)) => self.arrived(&arrived, transaction, &message),
                Err(error) => rdma_mummy_sys::log!(debug, "dropped a management datagram: {error:?}"),
            }
        }
        true
    }

    fn arrived(&mut self, arrived: &Arrived, transaction: u64, message: &Message) {
        let number = match message {
            Message::Req(req) => return self.request_arrived(arrived, transaction, message, &Request::Connection(req)),
            Message::SidrReq(req) => {
                return self.request_arrived(arrived, transaction, message, &Request::Datagram(req));
            }
            // The peer withdraws a request, whose id at this end it does not know.
            Message::Rej(rej) if rej.ids.remote == 0 => {
                self.roce.requested.get(&(arrived.source, rej.ids.local, false)).copied()
            }
            Message::Mra(mra) => Some(mra.ids.remote),
            Message::Rej(rej) => Some(rej.ids.remote),
            Message::Rep(rep) => Some(rep.ids.remote),
            Message::Rtu(rtu) => Some(rtu.ids.remote),
            Message::Dreq(dreq) => Some(dreq.ids.remote),
            Message::Drep(drep) => Some(drep.ids.remote),
            Message::SidrRep(rep) => Some(rep.request_id),
        };
        let Some(number) = number else { return };
        let ends = (arrived.destination, arrived.source);
        match self.roce.all.get_mut(&number) {
            Some(entry) if entry.ends() == ends => {
                entry.connection.received(transaction, message, Instant::now());
                self.pump(number);
            }
            Some(_) => {}
            None => {
                let (engine, block) = (self.roce.engine, number >> COUNTER.trailing_ones());
                let engine = engine.filter(|engine| !engine.owns(block));
                let is_passed = engine.is_some_and(|engine| engine.pass_management(Process::Block(block), arrived));
                let response = match message {
                    Message::Dreq(dreq) => Some(confirmation(dreq)),
                    Message::Rep(rep) => Some(unknown_request(rep)),
                    _ => None,
                };
                if let Some(response) = response.filter(|_| !is_passed) {
                    self.respond_to(arrived, transaction, &response);
                }
            }
        }
    }

    fn respond_to(&self, arrived: &Arrived, transaction: u64, message: &Message) {
        if let Some(engine) = self.roce.engine {
            engine.send_management(&back(arrived), &message.bytes(transaction));
        }
    }

    fn request_arrived(&mut self, arrived: &Arrived, transaction: u64, message: &Message, request: &Request<'_>) {
        let origin = (arrived.source, request.id(), matches!(request, Request::Datagram(_)));
        if let Some(&number) = self.roce.requested.get(&origin) {
            if let Some(entry) = self.roce.all.get_mut(&number) {
                entry.connection.received(transaction, message, Instant::now());
                self.pump(number);
            }
            return;
        }
        if let Request::Connection(req) = request
            && let Some(stale) = self.roce.connection_to(arrived, req.qp_number)
        {
            self.respond_to(arrived, transaction, &request.refusal(reason::STALE));
            if let Some(entry) = self.roce.all.get_mut(&stale) {
                entry.connection.replaced(Instant::now());
                self.pump(stale);
            }
            return;
        }
        match self.admit(arrived, transaction, request) {
            Ok(()) => {}
            Err(Refusal::Full) => rdma_mummy_sys::log!(debug, "dropped a connect request: the backlog is full"),
            Err(Refusal::Rejected(reason::NO_LISTENER)) if self.pass(arrived, request) => {
                self.roce.remember(origin, Instant::now());
            }
            Err(Refusal::Rejected(reason::NO_LISTENER)) if self.roce.has_passed(origin, Instant::now()) => {}
            Err(Refusal::Rejected(reason)) => self.respond_to(arrived, transaction, &request.refusal(reason)),
        }
    }

    /// Passes a request to the process that listens for its service at its address. Returns `false` if there is none.
    fn pass(&self, arrived: &Arrived, request: &Request<'_>) -> bool {
        let Some(engine) = self.roce.engine.filter(|_| service_of(request.service()).is_some()) else { return false };
        let names =
            Host::listeners(Ipv6Addr::from(arrived.destination.0).into()).map(|host| name(request.service(), host));
        let others = names.iter().filter(|name| !self.roce.services.contains(*name));
        others.into_iter().any(|name| engine.pass_management(Process::Service(name), arrived))
    }

    /// Announces a new request to the program of its listener.
    fn admit(&mut self, arrived: &Arrived, transaction: u64, request: &Request<'_>) -> Result<(), Refusal> {
        let rejected = Refusal::Rejected;
        let (space, port) = service_of(request.service()).ok_or(rejected(reason::NO_LISTENER))?;
        let (from, to, data) = request.ends(port).ok_or(rejected(Reason::CONSUMER_DEFINED.0))?;
        if !request.is_from(arrived, (from.ip(), to.ip())) {
            return Err(rejected(reason::INVALID_GID));
        }
        let listens = |id: &&Identifier| {
            // SAFETY: the identifier is alive.
            let has_space = unsafe { (*id.c).ps } == space;
            let covers = id.port.as_ref().is_some_and(|bound| bound.number == port && bound.host.covers(to.ip()));
            id.state == State::Listening && has_space && covers
        };
        let listener = self.ids.values().find(listens).ok_or(rejected(reason::NO_LISTENER))?;
        let (id, backlog) = (listener.c.addr(), listener.backlog);
        // SAFETY: the identifier is alive.
        let qp_type = unsafe { (*listener.c).qp_type };
        let waiting = self.roce.all.values().filter(|entry| entry.owner == Owner::Listener(id)).count();
        if waiting >= backlog {
            return Err(Refusal::Full);
        }
        let number = self.roce.next_id().map_err(|_| Refusal::Full)?;
        let now = Instant::now();
        let (connection, message, attached) = match request {
            Request::Connection(req) => {
                if qp_type == ibv_qp_type::IBV_QPT_UD || convert::transport(qp_type) != req.service_type {
                    return Err(rejected(reason::TRANSPORT));
                }
                // Larger packets would not reach this host, and could not leave it.
                let max_mtu = max_mtu_code(arrived.destination).unwrap_or(MAX_MTU);
                if !(MIN_MTU..=max_mtu).contains(&req.mtu) {
                    return Err(rejected(reason::INVALID_MTU));
                }
                let connection = Connection::requested(number, transaction, req, convert::guid(), now);
                let attached = Attached { connection: number, mtu: req.mtu, ack_timeout: Some(req.path.ack_timeout) };
                (connection, convert::request(req, from, to, data), attached)
            }
            Request::Datagram(req) => {
                if qp_type != ibv_qp_type::IBV_QPT_UD {
                    return Err(rejected(reason::TRANSPORT));
                }
                let attached = Attached { connection: number, mtu: MIN_MTU, ack_timeout: None };
                let connection = Connection::asked(number, transaction, req, now);
                (connection, convert::datagram_request(from, to, data), attached)
            }
        };
        let route = Route { traffic_class: message.traffic_class, ..back(arrived) };
        let origin = (arrived.source, request.id(), matches!(request, Request::Datagram(_)));
        let (owner, service) = (Owner::Listener(id), request.service());
        self.roce.add(number, Entry { connection, route, service, owner, origin: Some(origin), deadline: None });
        self.announce(id, Arrival::Roce(attached), message);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_link_local_addresses_have_a_scope() {
        assert_eq!(scope("10.0.0.1".parse().unwrap()), 0);
        assert_eq!(scope("::1".parse().unwrap()), 0);
        assert_eq!(address("fe80::1".parse().unwrap(), 5, 3).to_string(), "[fe80::1%3]:5");
    }
}
