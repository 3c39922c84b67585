//! The environment of a test.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::rfc3339;
use crate::control::Carrier;
use crate::endpoint::{Path, PortInfo};
use crate::plan::Plan;

/// All known facts that affect the figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of the program that writes the results.
    pub version: String,
    /// Start of the test, UTC, in RFC 3339 format.
    pub time: String,
    /// The command line.
    pub command_line: Vec<String>,
    /// The plan.
    pub plan: Plan,
    /// The path of the queue pairs.
    pub path: Path,
    /// The transport of the control channel.
    #[serde(default)]
    pub exchange: Carrier,
    /// The client.
    pub client: PortInfo,
    /// The server.
    pub server: PortInfo,
}

impl Environment {
    /// The environment of a test that starts at `time`.
    pub fn new(
        time: SystemTime,
        command_line: Vec<String>,
        plan: Plan,
        path: Path,
        [client, server]: [PortInfo; 2],
    ) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { version, time: rfc3339(time), command_line, plan, path, exchange: Carrier::default(), client, server }
    }
}

/// The names of a test's ports, each with the remote port it is connected to. If a port is used several times with
/// different GIDs, its names include the GIDs.
pub fn ports(client: &PortInfo, server: &PortInfo, path: &Path) -> Vec<String> {
    let join = |(ours, theirs): (String, String)| if ours == theirs { ours } else { format!("{ours} to {theirs}") };
    let gid = |facts: &PortInfo, gid: Option<u32>| {
        gid.map_or_else(|| facts.name(), |gid| format!("{} GID {gid}", facts.name()))
    };
    let pairs = || client.all().zip(server.all()).zip(path.all());
    let short: Vec<_> = pairs().map(|((ours, theirs), _)| join((ours.name(), theirs.name()))).collect();
    let long = pairs().map(|((ours, theirs), path)| join((gid(ours, path.client_gid), gid(theirs, path.server_gid))));
    let long: Vec<_> = long.collect();
    let is_ambiguous = |at: usize| short.iter().zip(&long).any(|(name, full)| *name == short[at] && *full != long[at]);
    (0..short.len()).map(|at| if is_ambiguous(at) { long[at].clone() } else { short[at].clone() }).collect()
}

/// The NUMA node to which threads are bound by default, as the end of a line; empty if unbound.
pub fn bound(facts: &PortInfo) -> String {
    let node = facts.numa_node.filter(|_| facts.is_bound);
    node.map_or_else(String::new, |node| format!(", threads on NUMA node {node}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Measure;
    use crate::report::sample;

    #[test]
    fn repeated_port_is_named_with_its_gid() {
        let mut both = sample::over_two_ports(sample::environment(Measure::Bandwidth));
        both.client.others[0].port = 1;
        both.server.others[0].device = "mlx5_0".to_owned();
        let of = |both: &Environment| ports(&both.client, &both.server, &both.path);
        assert_eq!(of(&both), ["mlx5_0 port 1 GID 3", "mlx5_0 port 1 GID 5 to mlx5_0 port 1 GID 3"]);
        both.path.others[0].client_gid = Some(3);
        assert_eq!(of(&both), ["mlx5_0 port 1", "mlx5_0 port 1"]);
    }

    #[test]
    fn ports_are_named_with_their_peer() {
        let of = |environment: &Environment| ports(&environment.client, &environment.server, &environment.path);
        let one = sample::environment(Measure::Bandwidth);
        assert_eq!(of(&one), ["mlx5_0 port 1"]);
        assert_eq!(of(&sample::over_two_ports(one)), ["mlx5_0 port 1", "mlx5_0 port 2 to mlx5_1 port 1"]);
    }
}
