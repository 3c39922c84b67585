//! One test of a rank: the server for one client, or the measurement against a server.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::cli::{Mesh, Rail};
use crate::control::{self, Cause, ControlOptions, Failure, Host, Request, Step, Watch};
use crate::endpoint::{EndpointFactory, Path, PortInfo};
use crate::mesh::message::{Ended, Kind, Trouble};
use crate::program::console::together;
use crate::program::undelivered;
use crate::report::hints::softrnic;
use crate::report::{Row, bytes_in_words};

/// Opens a listener on any free TCP port.
pub(super) fn listen(mesh: &Mesh) -> Result<TcpListener, Failure> {
    control::listen(&ControlOptions { port: 0, ..mesh.contact.clone() })
}

/// Serves one test, or ends when the listener is shut down. The client reports failures of both sides.
pub(super) fn serve(listener: &TcpListener, mesh: &Mesh, rail: &Rail, factory: &dyn EndpointFactory) {
    let host = Host { config: rail.config.clone(), test: None };
    let _ = control::serve(listener, factory, &host, mesh.contact.timeout, true, &mut |_| ());
}

/// Measures a test. `beats` counts its signs of progress.
pub(super) fn measure(
    mesh: &Mesh,
    rail: &Rail,
    test: u64,
    (address, port): (&str, u16),
    factory: &dyn EndpointFactory,
    beats: &AtomicU64,
) -> Ended {
    let begun = Instant::now();
    let contact = ControlOptions { port, family: None, ..mesh.contact.clone() };
    let request = Request { plan: rail.plan.clone(), given: mesh.given.clone() };
    let mut seen = Seen { rail, beats, sides: None, rows: Vec::new(), warnings: Vec::new() };
    let outcome = control::connect(address, &contact, None)
        .and_then(|met| control::measure(met.connection, met.near, factory, &request, &mut seen));
    let seconds = begun.elapsed().as_secs_f64();
    let trouble = match outcome {
        Ok(_) if seen.rows.is_empty() => {
            let text = "nothing was measured, because no message completed; give a longer -D".to_owned();
            Some(Trouble { text, kind: Kind::Other })
        }
        Ok(_) => None,
        Err(failure) => Some(Trouble { kind: kind(failure.cause()), text: failure.to_string() }),
    };
    let ports = seen.sides.map(|sides| sides.map(|side| side.name()));
    Ended { test, seconds, ports, rows: seen.rows, warnings: seen.warnings, trouble }
}

fn kind(cause: Cause) -> Kind {
    match cause {
        Cause::Contact => Kind::Contact,
        Cause::Rdma => Kind::Rdma,
        Cause::Other => Kind::Other,
    }
}

/// What has been seen of a test.
struct Seen<'a> {
    rail: &'a Rail,
    beats: &'a AtomicU64,
    sides: Option<[PortInfo; 2]>,
    rows: Vec<Row>,
    warnings: Vec<String>,
}

impl Watch for Seen<'_> {
    fn met(&mut self, client: &PortInfo, server: &PortInfo, _path: &Path) {
        self.warnings.extend(softrnic(&self.rail.plan, [client, server]).map(|hint| hint.to_string()));
        self.sides = Some([client.clone(), server.clone()]);
    }

    fn progress(&mut self, _size: u64, _done: f64) -> bool {
        self.beats.fetch_add(1, Ordering::Relaxed);
        true
    }

    fn step(&mut self, step: &Step) {
        let sides = self.sides.as_ref().map(|[client, server]| [client, server]);
        self.warnings.extend(undelivered::warnings(step, sides));
        match together(step) {
            Some(figures) => {
                let (size, counters, is_whole) = (step.size, step.counters.clone(), step.is_whole);
                self.rows.push(Row { size, figures, counters, is_whole });
            }
            None => self.warnings.push(format!("{}: nothing was measured", bytes_in_words(step.size))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Job, parse};
    use crate::endpoint::Verbs;

    #[test]
    fn refused_connection_is_a_failure_of_the_contact() {
        let Ok(Job::Mesh(mesh)) = parse("stride-perf mesh write bw".split_whitespace()) else { panic!() };
        // Nothing listens at a port that is only reserved.
        let reserved = sideway_test_names::Port::reserve();
        let ended = measure(&mesh, &mesh.rails[0], 1, ("127.0.0.1", reserved.number()), &Verbs, &AtomicU64::new(0));
        assert_eq!(ended.trouble.unwrap().kind, Kind::Contact);
    }
}
