//! The client's end: it connects.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow};
use sideway::rdmacm::{ConnectCause, ConnectError, ConnectStep, ConnectionParameter, Connector, RejectReason};

use super::hail::{Hail, Refusal};
use super::link::Link;
use super::stream::Stream;
use super::{is_softrnic, make_ready};
use crate::control::failure::Failure;

/// Connects with the server at an address, within this time.
pub(in crate::control) fn dial(host: &str, address: SocketAddr, timeout: Duration) -> Result<Stream, Failure> {
    make_ready()?;
    let failed = |error: ConnectError| failure(host, address, &error);
    let mut connector = Connector::new();
    let resolved = connector.setup_timeout(timeout).resolve(address).map_err(failed)?;
    let link = Link::new(resolved.identifier(), resolved.device_context());
    let link = link.context("-z: there is no queue pair to talk with the server over")?;
    let mut parameter = ConnectionParameter::default();
    parameter.setup_private_data(&link.hail().bytes()).setup_rnr_retry_count(7);
    let connection = resolved.connect(&parameter).map_err(failed)?;
    let theirs = Hail::read(connection.info().private_data()).map_err(|strange| {
        // Who has accepted waits for its end.
        let _ = connection.identifier().disconnect();
        Failure::Stranger(format!(
            "the other side, at rdma_cm port {} of {host}, is {}",
            address.port(),
            strange.what()
        ))
    })?;
    Ok(Stream::new(link, connection, theirs))
}

/// Why there is no connection, with what can be done.
fn failure(host: &str, address: SocketAddr, error: &ConnectError) -> Failure {
    let port = address.port();
    if let Some(rejection) = error.rejection() {
        match Refusal::read(rejection.private_data()) {
            Some(Refusal::Busy(text)) => return Failure::Busy(text),
            Some(Refusal::No(text)) => return Failure::Stranger(format!("the server does not connect: {text}")),
            None => {}
        }
        return Failure::Unreachable(match rejection.reason() {
            Some(RejectReason::InvalidServiceId) => format!(
                "nobody listens at {host}, rdma_cm port {port}: start `stride-perf` there (with -z it says why it cannot listen over \
                 rdma_cm; an older stride-perf listens on TCP alone), or give --wait-server, or the server's --port"
            ),
            _ => format!("{host} refuses a connection at rdma_cm port {port}: {error}"),
        });
    }
    of_cause(host, port, (error.step(), error.cause()), error, is_softrnic())
}

fn of_cause(
    host: &str,
    port: u16,
    what: (ConnectStep, &ConnectCause),
    error: &dyn fmt::Display,
    is_soft: bool,
) -> Failure {
    match what {
        (ConnectStep::OpenChannel, _) => {
            Failure::Ours(anyhow!("-z: there is no rdma_cm here: {error}; without -z the sides talk over TCP"))
        }
        // It knows the addresses of this host, and asks no routing table that others are in.
        (ConnectStep::ResolveAddress | ConnectStep::ResolveRoute, _) if is_soft => Failure::Unreachable(format!(
            "-z: {host} is not reached: softrnic serves rdma_cm here, and reaches the programs of this host alone: leave out -z, or give the \
             server by an address of this host"
        )),
        // The network of a device leads there: it is the host that is silent.
        (step, ConnectCause::TimedOut { .. } | ConnectCause::Unreachable(_)) => {
            let between = match step {
                ConnectStep::ResolveRoute => "or the subnet manager does not answer",
                _ => "or what is between lets UDP port 4791 (RoCE) not through",
            };
            Failure::Unreachable(format!(
                "{host} does not answer at rdma_cm port {port}: it is down, {between}: {error}"
            ))
        }
        (ConnectStep::ResolveAddress | ConnectStep::ResolveRoute, _) => Failure::Unreachable(format!(
            "-z: {host} is not reached over an RDMA device: {error}; give the server by an address in a network of one of the devices of \
             this machine (`stride-perf devices` lists them)"
        )),
        _ => Failure::Unreachable(format!("{host} cannot be reached at rdma_cm port {port}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_silent_is_not_told_from_a_wrong_address_by_the_step_alone() {
        let silent = ConnectCause::TimedOut { after: Duration::from_secs(3) };
        for (step, cause, part) in [
            (ConnectStep::ResolveAddress, &silent, "it is down, or what is between lets UDP port 4791"),
            (ConnectStep::ResolveRoute, &silent, "it is down, or the subnet manager does not answer"),
            (ConnectStep::Connect, &silent, "it is down, or what is between lets UDP port 4791"),
            (ConnectStep::ResolveAddress, &ConnectCause::NoAddress, "give the server by an address in a network"),
            (ConnectStep::ResolveRoute, &ConnectCause::DeviceRemoval, "give the server by an address in a network"),
        ] {
            let Failure::Unreachable(text) = of_cause("host", 7, (step, cause), &"why", false) else { panic!() };
            assert!(text.contains(part), "{step:?}: {text}");
            let Failure::Unreachable(soft) = of_cause("host", 7, (step, cause), &"why", true) else { panic!() };
            let is_known = step == ConnectStep::Connect;
            assert_eq!(soft.contains("softrnic serves rdma_cm here"), !is_known, "{step:?}: {soft}");
            assert_eq!(text.contains("does not answer at rdma_cm port 7"), !text.starts_with("-z"), "{text}");
        }
    }
}
