//! By the connection manager: the server listens at the address by which the client has reached it, at a port of the system's choice that it
//! tells, and the client asks for one connection for each queue pair. The queue pairs are moved here, with what the manager knows of the way.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairState};
use sideway::rdmacm::{Connection, ConnectionParameter, Connector, Identifier, Listener, PortSpace, Request};

use super::addresses::{agree, is_of_link, own, unreachable};
use super::manual::Manual;
use super::{Address, Direction, Joint, Loose, Route, intake};
use crate::endpoint::verbs::device;
use crate::endpoint::verbs::pairs::XrcPair;
use crate::endpoint::{Listening, PeerInfo, QpAddress, Role};
use crate::plan::{Plan, QpAttributes, SideConfig, Transport};
use crate::run::DatagramSend;

/// How long each step may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the ends of all connections may take.
const FAREWELL: Duration = Duration::from_secs(2);
/// A port to ask the way with, before the server's is known.
const ANY_PORT: u16 = 18515;
/// What the private data of a connection begins with.
const MAGIC: [u8; 4] = *b"STRD";
/// Both sides have been told before.
const NOT_CONNECTED: &str = "--rdma-cm supports RC, UC, UD and XRC only";
/// What who asks for another connection than is due gets to read.
const REFUSAL: &[u8] = b"stride-perf: not a connection of this test";

/// The connection manager's part of a side.
pub(in super::super) struct Manager {
    address: IpAddr,
    /// The server's.
    listener: Option<(Listener, u64)>,
    connections: Vec<Connection>,
}

impl Manager {
    /// Finds the device, and its port, that the server's address leads to; at the server, listens there.
    pub(in super::super) fn open(
        plan: &Plan,
        place: &SideConfig,
        role: Role,
    ) -> Result<(Arc<DeviceContext>, u8, Self)> {
        device::list()?;
        let address = match plan.attributes.address {
            Some(address) => address,
            None => own(&plan.placement.server)?,
        };
        if is_of_link(address) {
            bail!("--rdma-cm: {address} is a link-local address; name the server by another address");
        }
        let (id, listener) = match role {
            Role::Client => {
                let resolved = connector(plan).resolve((address, ANY_PORT));
                let resolved = resolved.map_err(|error| unreachable(address, role, error))?;
                (Arc::clone(resolved.identifier()), None)
            }
            Role::Server => {
                let mut builder = Listener::builder();
                builder.setup_port_space(port_space(plan)).setup_timeout(PATIENCE);
                if plan.attributes.traffic_class != 0 {
                    builder.setup_type_of_service(plan.attributes.traffic_class);
                }
                let listener = builder.bind((address, 0)).map_err(|error| unreachable(address, role, error))?;
                let token = RandomState::new().hash_one(address);
                (Arc::clone(listener.identifier()), Some((listener, token)))
            }
        };
        let context =
            id.get_device_context().with_context(|| format!("--rdma-cm: no RDMA device leads to {address}"))?;
        device::connects(&context.name(), context.transport_type())?;
        let port = id.port_num().with_context(|| format!("--rdma-cm: no port of an RDMA device leads to {address}"))?;
        agree(&context, port, place, address, role)?;
        Ok((context, port, Self { address, listener, connections: Vec::new() }))
    }

    /// Where the server listens.
    pub(in super::super) fn listening(&self) -> Option<Listening> {
        let (listener, token) = self.listener.as_ref()?;
        Some(Listening { port: listener.local_address().port(), token: *token })
    }

    /// Connects all queue pairs with the other side's.
    pub(in super::super) fn connect(
        &mut self,
        joint: &Joint<'_>,
        pd: &Arc<ProtectionDomain>,
        pairs: Vec<Loose<'_>>,
        (own, theirs): (&PeerInfo, &PeerInfo),
        by_hand: &Manual,
    ) -> Result<()> {
        let due = pairs.into_iter().zip(own.queue_pairs.iter().zip(&theirs.queue_pairs));
        let meeting = Meeting { joint, pd };
        match &self.listener {
            Some((listener, token)) => {
                let due: Vec<_> = due.map(Some).collect();
                self.connections = meeting.answer_all(listener, *token, due, by_hand)?;
            }
            None => {
                let Some(Listening { port, token }) = theirs.listening else {
                    bail!("the server sent no port for --rdma-cm");
                };
                let connector = connector(joint.plan);
                for (index, (pair, ends)) in due.enumerate() {
                    let asked = meeting.ask(&connector, (self.address, port), (token, index), pair, ends);
                    let connection = asked.with_context(|| format!("--rdma-cm: queue pair {index}"))?;
                    self.connections.extend(connection);
                }
            }
        }
        Ok(())
    }

    /// Ends all connections.
    pub(in super::super) fn end(&mut self) {
        let end = Instant::now() + FAREWELL;
        // Each is told before the first answer is waited for.
        for connection in &self.connections {
            if let Err(error) = connection.identifier().disconnect() {
                log::debug!("{error}");
            }
        }
        for connection in self.connections.drain(..) {
            if let Err(error) = connection.wait(Some(end.saturating_duration_since(Instant::now()))) {
                log::debug!("{error}");
            }
        }
    }
}

fn port_space(plan: &Plan) -> PortSpace {
    if plan.attributes.transport == Transport::Ud { PortSpace::Udp } else { PortSpace::Tcp }
}

fn connector(plan: &Plan) -> Connector {
    let mut connector = Connector::new();
    connector.setup_port_space(port_space(plan)).setup_timeout(PATIENCE);
    if plan.attributes.traffic_class != 0 {
        connector.setup_type_of_service(plan.attributes.traffic_class);
    }
    connector
}

/// A queue pair that is to be connected, with its end and the other side's.
type Due<'d> = (Loose<'d>, (&'d QpAddress, &'d QpAddress));

struct Meeting<'m> {
    joint: &'m Joint<'m>,
    pd: &'m Arc<ProtectionDomain>,
}

impl Meeting<'_> {
    /// Asks the server for a connection.
    fn ask(
        &self,
        connector: &Connector,
        to: (IpAddr, u16),
        (token, index): (u64, usize),
        pair: Loose<'_>,
        (own, their): (&QpAddress, &QpAddress),
    ) -> Result<Option<Connection>> {
        let resolved = connector.resolve(to)?;
        ensure!(
            Arc::ptr_eq(resolved.device_context(), self.pd.device_context()),
            "{} now resolves to another device",
            to.0
        );
        let mut parameter = self.parameter(own);
        parameter.setup_private_data(&name(token, index));
        match pair {
            Loose::Connected(pair) => {
                let connection = resolved.connect_with(&parameter, |id, info| {
                    expect(info.qp_number(), their.number)?;
                    self.through(id, pair)
                })?;
                Ok(Some(connection))
            }
            Loose::Xrc(pair) => {
                let connection = resolved.connect_with(&parameter, |id, info| {
                    expect(info.qp_number(), intake(their)?.0)?;
                    self.both_ways(id, pair, (own, their), Role::Client)
                })?;
                Ok(Some(connection))
            }
            Loose::Datagram(pair, target) => {
                make_ready(resolved.identifier(), pair, own)?;
                let found = resolved.lookup(&parameter)?;
                expect(found.qp_number(), their.number)?;
                let mut way = *found.address_handle_attribute();
                self.level(&mut way)?;
                let way = self.pd.create_ah(&way)?;
                *target = Some(DatagramSend { way, number: found.qp_number(), qkey: found.qkey() });
                Ok(None)
            }
            Loose::Dynamic(_) | Loose::Scalable(_) => bail!(NOT_CONNECTED),
        }
    }

    /// Waits for the client to ask for each connection that is due, in whatever order; whoever else asks is refused.
    fn answer_all(
        &self,
        listener: &Listener,
        token: u64,
        mut due: Vec<Option<Due<'_>>>,
        by_hand: &Manual,
    ) -> Result<Vec<Connection>> {
        let mut connections = Vec::new();
        let (all, mut done) = (due.len(), 0);
        let mut end = Instant::now() + PATIENCE;
        while done < all {
            let request = listener.accept(Some(end.saturating_duration_since(Instant::now())));
            let request = request.map_err(|error| missing(&error, all - done, all))?;
            let Some((index, (pair, (own, their)))) = take(&mut due, &request, token) else {
                log::warn!("rejected an unexpected connection request from {:?}", request.peer_address());
                if let Err(error) = request.reject(REFUSAL) {
                    log::debug!("{error}");
                }
                let left = all - done;
                ensure!(
                    Instant::now() < end,
                    "--rdma-cm: {left} of {all} connection requests did not arrive, and unexpected ones did"
                );
                continue;
            };
            let answered = self.answer(request, pair, (own, their), by_hand);
            connections.extend(answered.with_context(|| format!("--rdma-cm: queue pair {index}"))?);
            done += 1;
            end = Instant::now() + PATIENCE;
        }
        Ok(connections)
    }

    fn answer(
        &self,
        request: Request,
        pair: Loose<'_>,
        (own, their): (&QpAddress, &QpAddress),
        by_hand: &Manual,
    ) -> Result<Option<Connection>> {
        let id = Arc::clone(request.identifier());
        match pair {
            Loose::Connected(pair) => {
                self.through(&id, pair)?;
                Ok(Some(request.accept(&self.parameter(own))?))
            }
            Loose::Xrc(pair) => {
                self.both_ways(&id, pair, (own, their), Role::Server)?;
                let mut parameter = self.parameter(own);
                parameter.setup_qp_number(pair.receiver.qp_number());
                Ok(Some(request.accept(&parameter)?))
            }
            Loose::Datagram(pair, target) => {
                let qkey = make_ready(&id, pair, own)?;
                // Who is looked up does not learn the way back, but the sides have told each other.
                *target = Some(by_hand.target(self.pd, their, qkey)?);
                request.accept_lookup(&self.parameter(own))?;
                Ok(None)
            }
            Loose::Dynamic(_) | Loose::Scalable(_) => bail!(NOT_CONNECTED),
        }
    }

    fn parameter(&self, own: &QpAddress) -> ConnectionParameter {
        let mut parameter = ConnectionParameter::default();
        parameter.setup_qp_number(own.number);
        parameter.setup_responder_resources(self.joint.answers).setup_initiator_depth(self.joint.asks);
        parameter
    }

    /// Gives a way the service level and the flow label that were asked for, if any were.
    fn level(&self, way: &mut AddressHandleAttribute) -> Result<()> {
        let QpAttributes { service_level, flow_label, .. } = self.joint.plan.attributes;
        if service_level != 0 {
            way.setup_service_level(service_level);
        }
        if flow_label != 0 {
            ensure!(
                way.is_global(),
                "--flow-label: the path of the connection manager has no GRH; leave out --flow-label or --rdma-cm"
            );
            way.setup_grh_flow_label(flow_label);
        }
        Ok(())
    }

    /// Moves a queue pair of a connection, whose way the connection manager knows, to where it sends and receives.
    fn through(&self, id: &Identifier, pair: &impl QueuePair) -> Result<()> {
        self.joint.connect(|to| pair.modify(to), &self.route(id)?, Direction::Both)
    }

    /// Moves the queue pairs of both directions: the connection is that of the client's messages, and the server's take the same way, with
    /// the numbers that the sides have told each other.
    fn both_ways(
        &self,
        id: &Identifier,
        pair: &XrcPair,
        (own, their): (&QpAddress, &QpAddress),
        role: Role,
    ) -> Result<()> {
        let asked = self.route(id)?;
        let of_ends = |their_number| Route { own_psn: own.psn, their_psn: their.psn, their_number, ..asked };
        let (out, back) = match role {
            Role::Client => (asked, of_ends(their.number)),
            Role::Server => (of_ends(intake(their)?.0), asked),
        };
        self.joint.connect(|to| pair.receiver.modify(to), &back, Direction::In)?;
        self.joint.connect(|to| pair.sender.modify(to), &out, Direction::Out)
    }

    /// The way of a connection, as the connection manager knows it.
    fn route(&self, id: &Identifier) -> Result<Route> {
        let init = id.get_qp_attr(QueuePairState::Init)?;
        let receive = id.get_qp_attr(QueuePairState::ReadyToReceive)?;
        let send = id.get_qp_attr(QueuePairState::ReadyToSend)?;
        let mut way = receive.address_vector();
        self.level(&mut way)?;
        Ok(Route {
            port: init.port(),
            pkey_index: init.pkey_index(),
            way,
            own_psn: send.sq_psn(),
            their_psn: receive.rq_psn(),
            their_number: receive.dest_qp_num(),
        })
    }
}

/// Makes a queue pair of datagrams ready, and gives its key.
fn make_ready(id: &Identifier, pair: &impl QueuePair, own: &QpAddress) -> Result<u32> {
    let init = id.get_qp_attr(QueuePairState::Init)?;
    let qkey = init.qkey();
    let (port, pkey_index) = (init.port(), init.pkey_index());
    Joint::make_ready(pair, &Address { port, pkey_index, qkey, psn: own.psn, retries: None })?;
    Ok(qkey)
}

/// What the request for a connection says.
fn name(token: u64, index: usize) -> [u8; 16] {
    let mut name = [0; 16];
    name[..4].copy_from_slice(&MAGIC);
    name[4..12].copy_from_slice(&token.to_be_bytes());
    // There are 16384 at most.
    name[12..].copy_from_slice(&(index as u32).to_be_bytes());
    name
}

/// Which queue pair a request is for; none where it is not of this test. Zeros may follow what was sent.
fn index_of(data: &[u8], token: u64) -> Option<usize> {
    let data: &[u8; 16] = data.first_chunk()?;
    let index = u32::from_be_bytes(*data.last_chunk()?);
    let index = usize::try_from(index).ok()?;
    (*data == name(token, index)).then_some(index)
}

/// What a request is for, if that is due.
fn take<'d>(due: &mut [Option<Due<'d>>], request: &Request, token: u64) -> Option<(usize, Due<'d>)> {
    let index = index_of(request.private_data(), token)?;
    let slot = due.get_mut(index)?;
    let (_, (_, their)) = slot.as_ref()?;
    if request.info().is_some_and(|info| info.qp_number() != their.number) {
        return None;
    }
    Some((index, slot.take()?))
}

fn expect(number: u32, theirs: u32) -> Result<()> {
    ensure!(number == theirs, "the connection manager connected queue pair {number:#x}, expected {theirs:#x}");
    Ok(())
}

fn missing(error: &sideway::rdmacm::ConnectError, left: usize, all: usize) -> Error {
    anyhow!(
        "--rdma-cm: {left} of {all} connection requests did not arrive: {error}; check that the client still runs and \
         that no firewall drops UDP port 4791 (RoCE)"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn other_data_names_none(data in prop::collection::vec(any::<u8>(), 0..60), token: u64, index in 0..1_usize << 20) {
            prop_assert_eq!(index_of(&data, token), None);
            // All but a good name, spoiled somewhere.
            let mut data = [&name(token, index)[..], &data].concat();
            prop_assert_eq!(index_of(&data, token), Some(index));
            let place = index % 12;
            data[place] ^= 1 + (token % 255) as u8;
            prop_assert_eq!(index_of(&data, token), None);
        }
    }

    #[test]
    fn a_request_names_its_queue_pair_and_its_test() {
        let name = name(7, 300);
        assert_eq!(index_of(&name, 7), Some(300));
        assert_eq!(index_of(&[&name[..], &[0; 40]].concat(), 7), Some(300));
        assert_eq!(index_of(&name, 8), None);
        assert_eq!(index_of(&name[..15], 7), None);
        assert_eq!(index_of(&[0; 56], 0), None);
    }
}
