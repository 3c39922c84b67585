//! How the two sides come together.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePair, QueuePairState as State};
use sideway::rdmacm::communication_manager::Identifier;
use sideway::rdmacm::{ConnectionParameter, Connector, Request};

use super::arguments::Arguments;
use super::endpoint::Endpoint;
use super::link::Link;
use super::voice::Voice;

/// A connection to the server, and the domain in which the memory is to be that it reaches.
pub(crate) fn to_server(arguments: &Arguments, voice: &mut Voice<'_>) -> Result<(Link, Arc<ProtectionDomain>)> {
    let host = arguments.address.as_deref().context("the client needs the address of its server")?;
    let mut connector = Connector::new();
    connector.setup_timeout(arguments.timeout.0.unwrap_or(Duration::MAX));
    if let Some(source) = &arguments.source {
        connector.setup_source(address_of(source)?);
    }
    let resolved = connector.resolve((host, arguments.port))?;
    let device = resolved.device_context();
    voice.step(format_args!("the way to {} goes over {}", resolved.peer_address(), device.name()))?;

    let pd = device.alloc_pd()?;
    let endpoint = endpoint(resolved.identifier(), device, &pd, arguments.own_qp)?;
    voice.step(format_args!("the queue pair {:#08x} is made", endpoint.qp.qp_number()))?;
    // The server reads one text at a time. A message that finds no receive posted is sent again without end: that this takes too
    // long is noticed by the time that the peer has.
    let mut parameter = ConnectionParameter::default();
    let connection = if arguments.own_qp {
        parameter.setup_qp_number(endpoint.qp.qp_number());
        resolved.connect_with(&parameter, |id, _| to_ready(&endpoint.qp, id))?
    } else {
        resolved.connect(&parameter)?
    };
    voice.step(format_args!("the connection is made"))?;
    Ok((Link::new(endpoint, connection, "server", arguments.timeout), pd))
}

/// A connection to the client that asks for one, and the domain of its queue pair.
pub(crate) fn to_client(
    request: Request,
    arguments: &Arguments,
    voice: &mut Voice<'_>,
) -> Result<(Link, Arc<ProtectionDomain>)> {
    let device = request.device_context();
    let who = request.peer_address().map_or_else(|| "somebody".into(), |address| address.to_string());
    voice.step(format_args!("{who} wants to connect over {}", device.name()))?;

    let pd = device.alloc_pd()?;
    let endpoint = endpoint(request.identifier(), device, &pd, arguments.own_qp)?;
    voice.step(format_args!("the queue pair {:#08x} is made", endpoint.qp.qp_number()))?;
    let mut parameter = ConnectionParameter::default();
    if arguments.own_qp {
        to_ready(&endpoint.qp, request.identifier())?;
        parameter.setup_qp_number(endpoint.qp.qp_number());
    }
    let connection = request.accept(&parameter)?;
    voice.step(format_args!("the connection is made"))?;
    Ok((Link::new(endpoint, connection, "client", arguments.timeout), pd))
}

/// An address of this machine.
fn address_of(host: &str) -> Result<IpAddr> {
    let mut addresses = (host, 0).to_socket_addrs().with_context(|| format!("the source {host}"))?;
    Ok(addresses.next().with_context(|| format!("the source {host} has no address"))?.ip())
}

/// An endpoint with a queue pair that the library moves through its states, or with one of the program's own.
fn endpoint(
    id: &Arc<Identifier>,
    device: &Arc<DeviceContext>,
    pd: &Arc<ProtectionDomain>,
    is_own: bool,
) -> Result<Endpoint> {
    Endpoint::new(device, pd, |builder| {
        if !is_own {
            return Ok(id.create_qp_generic(builder)?);
        }
        let qp = builder.build_generic()?;
        qp.modify(&id.get_qp_attr(State::Init)?)?;
        Ok(qp)
    })
}

/// Brings a queue pair of the program's own to RTS, as the connection says.
fn to_ready(qp: &GenericQueuePair, id: &Identifier) -> Result<()> {
    // INIT again: what the peer may do is known only now.
    for state in [State::Init, State::ReadyToReceive, State::ReadyToSend] {
        qp.modify(&id.get_qp_attr(state)?)?;
    }
    Ok(())
}
