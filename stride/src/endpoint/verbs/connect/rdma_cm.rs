//! Connects queue pairs through librdmacm (`--rdma-cm`). The server listens at the address by which the client reached
//! it, and sends the port number to the client. The client then requests one connection per queue pair. This module
//! modifies the queue pairs itself, with the path that librdmacm has found.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::device::{DeviceInfo, TransportType};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{QueuePair, QueuePairState};
use sideway::rdmacm::{Connection, ConnectionParameter, Connector, Identifier, Listener, PortSpace, Request};
use stride_run::DatagramSend;

use super::addresses::{agree, is_link_local, own, unreachable};
use super::manual::Manual;
use super::{Address, Addresses, Direction, Route, Shared, Unconnected, intake};
use crate::endpoint::verbs::device;
use crate::endpoint::verbs::pairs::XrcPair;
use crate::endpoint::{Listening, PeerInfo, QpAddress, Role};
use crate::plan::{Plan, QpAttributes, SideConfig, Transport};

/// Time limit of each step of a connection.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for disconnecting all connections together.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// A port number with which the client resolves the path before it has received the server's port.
const ANY_PORT: u16 = 18515;
/// The first bytes of the private data in a connection request.
const MAGIC: [u8; 4] = *b"STRD";
/// The error for other transports, which does not occur because both sides reject such a plan earlier.
const NOT_CONNECTED: &str = "--rdma-cm supports RC, UC, UD and XRC only";
/// The private data of a rejection.
const REFUSAL: &[u8] = b"stride-perf: not a connection of this test";

/// What a side needs to use librdmacm.
pub(in super::super) struct Manager {
    address: IpAddr,
    /// The listener and its token. Only the server has them.
    listener: Option<(Listener, u64)>,
    connections: Vec<Connection>,
}

impl Manager {
    /// Finds the device and the port to which the server's address belongs. The server also listens at this address.
    pub(in super::super) fn open(
        plan: &Plan,
        config: &SideConfig,
        role: Role,
    ) -> Result<(Arc<DeviceContext>, u8, Self)> {
        device::list()?;
        let address = match plan.attributes.address {
            Some(address) => address,
            None => own(&plan.placement.server)?,
        };
        if is_link_local(address) {
            bail!("--rdma-cm: {address} is a link-local address; name the server by another address");
        }
        let (id, listener) = match role {
            Role::Client => {
                let resolved = connector(plan).resolve((address, ANY_PORT));
                let resolved =
                    resolved.map_err(|error| unreachable(address, plan.attributes.transport, role, error))?;
                (Arc::clone(resolved.identifier()), None)
            }
            Role::Server => {
                let mut builder = Listener::builder();
                builder.setup_port_space(port_space(plan)).setup_timeout(TIMEOUT);
                if plan.attributes.traffic_class != 0 {
                    builder.setup_type_of_service(plan.attributes.traffic_class);
                }
                let listener = builder
                    .bind((address, 0))
                    .map_err(|error| unreachable(address, plan.attributes.transport, role, error))?;
                let token = RandomState::new().hash_one(address);
                (Arc::clone(listener.identifier()), Some((listener, token)))
            }
        };
        let context =
            id.get_device_context().with_context(|| format!("--rdma-cm: no RDMA device leads to {address}"))?;
        let context = match role {
            Role::Server if plan.attributes.is_iwarp => device::soft_iwarp(&context)?.unwrap_or(context),
            _ => context,
        };
        device::can_iwarp(&context, plan)?;
        let port = id.port_num().with_context(|| format!("--rdma-cm: no port of an RDMA device leads to {address}"))?;
        agree(&context, port, config, address, role)?;
        Ok((context, port, Self { address, listener, connections: Vec::new() }))
    }

    /// Returns the port number and the token of the server.
    pub(in super::super) fn listening(&self) -> Option<Listening> {
        let (listener, token) = self.listener.as_ref()?;
        Some(Listening { port: listener.local_address().port(), token: *token })
    }

    /// Connects all queue pairs.
    pub(in super::super) fn connect(
        &mut self,
        shared: &Shared<'_>,
        pd: &Arc<ProtectionDomain>,
        pairs: Vec<Unconnected<'_>>,
        own: &PeerInfo,
        theirs: &PeerInfo,
        by_hand: &Manual,
    ) -> Result<()> {
        let due = pairs.into_iter().zip(Addresses::all(own, theirs));
        let setup = Setup { shared, pd };
        match &self.listener {
            Some((listener, token)) => {
                let due: Vec<_> = due.map(Some).collect();
                self.connections = setup.accept_all(listener, *token, due, by_hand)?;
            }
            None => {
                let Some(Listening { port, token }) = theirs.listening else {
                    bail!("the server sent no port for --rdma-cm; run the same version on both sides");
                };
                let connector = connector(shared.plan);
                for (index, (pair, addresses)) in due.enumerate() {
                    let asked = setup.request(&connector, (self.address, port), token, index, pair, addresses);
                    let connection = asked.with_context(|| format!("--rdma-cm: queue pair {index}"))?;
                    self.connections.extend(connection);
                }
            }
        }
        Ok(())
    }

    /// Disconnects all connections.
    pub(in super::super) fn end(&mut self) {
        let end = Instant::now() + DISCONNECT_TIMEOUT;
        // Starts to disconnect all connections before it waits for the first of them.
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
    connector.setup_port_space(port_space(plan)).setup_timeout(TIMEOUT);
    if plan.attributes.traffic_class != 0 {
        connector.setup_type_of_service(plan.attributes.traffic_class);
    }
    connector
}

/// A queue pair that is not connected yet, with its own address and that of its peer.
type Due<'d> = (Unconnected<'d>, Addresses<'d>);

struct Setup<'m> {
    shared: &'m Shared<'m>,
    pd: &'m Arc<ProtectionDomain>,
}

impl Setup<'_> {
    /// Requests a connection from the server.
    fn request(
        &self,
        connector: &Connector,
        to: (IpAddr, u16),
        token: u64,
        index: usize,
        pair: Unconnected<'_>,
        addresses: Addresses<'_>,
    ) -> Result<Option<Connection>> {
        let Addresses { own, their } = addresses;
        let resolved = connector.resolve(to)?;
        ensure!(
            Arc::ptr_eq(resolved.device_context(), self.pd.device_context()),
            "{} now resolves to another device; run again",
            to.0
        );
        let mut parameter = self.parameter(own);
        parameter.setup_private_data(&name(token, index));
        match pair {
            Unconnected::Connected(pair) if self.is_iwarp() => {
                self.through(resolved.identifier(), pair)?;
                // On iWARP, librdmacm itself modifies the queue pair.
                Ok(Some(resolved.connect_with(&parameter, |_, _| Ok::<_, Error>(()))?))
            }
            Unconnected::Connected(pair) => {
                let connection = resolved.connect_with(&parameter, |id, info| {
                    expect(info.qp_number(), their.number)?;
                    self.through(id, pair)
                })?;
                Ok(Some(connection))
            }
            Unconnected::Xrc(pair) => {
                let connection = resolved.connect_with(&parameter, |id, info| {
                    expect(info.qp_number(), intake(their)?.0)?;
                    self.both_ways(id, pair, addresses, Role::Client)
                })?;
                Ok(Some(connection))
            }
            Unconnected::Datagram(pair, target) => {
                make_ready(resolved.identifier(), pair, own)?;
                let found = resolved.lookup(&parameter)?;
                expect(found.qp_number(), their.number)?;
                let mut way = *found.address_handle_attribute();
                self.level(&mut way)?;
                let way = self.pd.create_ah(&way)?;
                *target = Some(DatagramSend { way, number: found.qp_number(), qkey: found.qkey() });
                Ok(None)
            }
            Unconnected::Dynamic(_) | Unconnected::Scalable(_) => bail!(NOT_CONNECTED),
        }
    }

    /// Accepts one request for each queue pair, in any order, and rejects all other requests.
    fn accept_all(
        &self,
        listener: &Listener,
        token: u64,
        mut due: Vec<Option<Due<'_>>>,
        by_hand: &Manual,
    ) -> Result<Vec<Connection>> {
        let mut connections = Vec::new();
        let (all, mut done) = (due.len(), 0);
        let mut end = Instant::now() + TIMEOUT;
        while done < all {
            let request = listener.accept(Some(end.saturating_duration_since(Instant::now())));
            let request = request.map_err(|error| missing(&error, all - done, all))?;
            let Some((index, (pair, addresses))) = take(&mut due, &request, token, !self.is_iwarp()) else {
                log::warn!("rejected an unexpected connection request from {:?}", request.peer_address());
                if let Err(error) = request.reject(REFUSAL) {
                    log::debug!("{error}");
                }
                let left = all - done;
                ensure!(
                    Instant::now() < end,
                    "--rdma-cm: {left} of {all} connection requests did not arrive, and unexpected ones did; run one client at a time"
                );
                continue;
            };
            let answered = self.accept(request, pair, addresses, by_hand);
            connections.extend(answered.with_context(|| format!("--rdma-cm: queue pair {index}"))?);
            done += 1;
            end = Instant::now() + TIMEOUT;
        }
        Ok(connections)
    }

    fn accept(
        &self,
        request: Request,
        pair: Unconnected<'_>,
        addresses: Addresses<'_>,
        by_hand: &Manual,
    ) -> Result<Option<Connection>> {
        let Addresses { own, their } = addresses;
        let id = Arc::clone(request.identifier());
        match pair {
            Unconnected::Connected(pair) => {
                self.through(&id, pair)?;
                Ok(Some(request.accept(&self.parameter(own))?))
            }
            Unconnected::Xrc(pair) => {
                self.both_ways(&id, pair, addresses, Role::Server)?;
                let mut parameter = self.parameter(own);
                parameter.setup_qp_number(pair.receiver.qp_number());
                Ok(Some(request.accept(&parameter)?))
            }
            Unconnected::Datagram(pair, target) => {
                let qkey = make_ready(&id, pair, own)?;
                // For datagrams, librdmacm does not return the path to the client, so the server uses the exchanged
                // addresses.
                *target = Some(by_hand.target(self.pd, their, qkey)?);
                request.accept_lookup(&self.parameter(own))?;
                Ok(None)
            }
            Unconnected::Dynamic(_) | Unconnected::Scalable(_) => bail!(NOT_CONNECTED),
        }
    }

    fn parameter(&self, own: &QpAddress) -> ConnectionParameter {
        let mut parameter = ConnectionParameter::default();
        parameter.setup_qp_number(own.number);
        parameter
            .setup_responder_resources(self.shared.responder_resources)
            .setup_initiator_depth(self.shared.initiator_depth);
        parameter
    }

    /// Sets the service level and the flow label if the user requested them.
    fn level(&self, way: &mut AddressHandleAttribute) -> Result<()> {
        let QpAttributes { service_level, flow_label, .. } = self.shared.plan.attributes;
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

    /// Whether the device is an iWARP device. Connection requests of iWARP do not contain the number of the queue pair.
    fn is_iwarp(&self) -> bool {
        self.pd.device_context().transport_type() == TransportType::IWarp
    }

    /// Modifies a connected queue pair according to the path from librdmacm. On iWARP, modifies only its access rights.
    fn through(&self, id: &Identifier, pair: &impl QueuePair) -> Result<()> {
        if self.is_iwarp() {
            return Ok(pair.modify(&id.get_qp_attr(QueuePairState::Init)?)?);
        }
        self.shared.connect(|to| pair.modify(to), &self.route(id)?, Direction::Both)
    }

    /// Modifies the queue pairs of both directions. The connection is for the client's messages. The server's messages
    /// use the same path, with the queue pair numbers that the sides have exchanged.
    fn both_ways(
        &self,
        id: &Identifier,
        pair: &XrcPair,
        Addresses { own, their }: Addresses<'_>,
        role: Role,
    ) -> Result<()> {
        let asked = self.route(id)?;
        let of_ends = |their_number| Route { own_psn: own.psn, their_psn: their.psn, their_number, ..asked };
        let (out, back) = match role {
            Role::Client => (asked, of_ends(their.number)),
            Role::Server => (of_ends(intake(their)?.0), asked),
        };
        self.shared.connect(|to| pair.receiver.modify(to), &back, Direction::In)?;
        self.shared.connect(|to| pair.sender.modify(to), &out, Direction::Out)
    }

    /// Returns the path of a connection, which librdmacm has found.
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

/// Modifies a datagram queue pair to the state RTS and returns its Q_Key.
fn make_ready(id: &Identifier, pair: &impl QueuePair, own: &QpAddress) -> Result<u32> {
    let init = id.get_qp_attr(QueuePairState::Init)?;
    let qkey = init.qkey();
    let (port, pkey_index) = (init.port(), init.pkey_index());
    Shared::make_ready(pair, &Address { port, pkey_index, qkey, psn: own.psn, retries: None })?;
    Ok(qkey)
}

/// Returns the private data of a connection request.
fn name(token: u64, index: usize) -> [u8; 16] {
    let mut name = [0; 16];
    name[..4].copy_from_slice(&MAGIC);
    name[4..12].copy_from_slice(&token.to_be_bytes());
    // The conversion is lossless, because there are at most 16384 queue pairs.
    name[12..].copy_from_slice(&(index as u32).to_be_bytes());
    name
}

/// Returns the index of the queue pair that a request names, or `None` if the request belongs to another test. Zeros
/// may follow the data that was sent.
fn index_of(data: &[u8], token: u64) -> Option<usize> {
    let data: &[u8; 16] = data.first_chunk()?;
    let index = u32::from_be_bytes(*data.last_chunk()?);
    let index = usize::try_from(index).ok()?;
    (*data == name(token, index)).then_some(index)
}

/// Takes the pending queue pair to which a request belongs, if there is one.
fn take<'d>(due: &mut [Option<Due<'d>>], request: &Request, token: u64, has_number: bool) -> Option<(usize, Due<'d>)> {
    let index = index_of(request.private_data(), token)?;
    let slot = due.get_mut(index)?;
    let (_, Addresses { their, .. }) = slot.as_ref()?;
    if has_number && request.info().is_some_and(|info| info.qp_number() != their.number) {
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
        fn other_private_data_has_no_index(data in prop::collection::vec(any::<u8>(), 0..60), token: u64, index in 0..1_usize << 20) {
            prop_assert_eq!(index_of(&data, token), None);
            // The data is a valid name in which one byte was changed.
            let mut data = [&name(token, index)[..], &data].concat();
            prop_assert_eq!(index_of(&data, token), Some(index));
            let at = index % 12;
            data[at] ^= 1 + (token % 255) as u8;
            prop_assert_eq!(index_of(&data, token), None);
        }
    }

    #[test]
    fn private_data_names_queue_pair_and_test() {
        let name = name(7, 300);
        assert_eq!(index_of(&name, 7), Some(300));
        assert_eq!(index_of(&[&name[..], &[0; 40]].concat(), 7), Some(300));
        assert_eq!(index_of(&name, 8), None);
        assert_eq!(index_of(&name[..15], 7), None);
        assert_eq!(index_of(&[0; 56], 0), None);
    }
}
