//! All that a number depends on.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::rfc3339;
use crate::control::Carrier;
use crate::endpoint::{Path, PortInfo};
use crate::plan::Plan;

/// All that a number depends on, as far as it can be known.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of this program on the side that writes.
    pub version: String,
    /// When the test began: UTC, as RFC 3339 has it.
    pub time: String,
    /// The command line.
    pub command_line: Vec<String>,
    /// What was asked for.
    pub plan: Plan,
    /// How the queue pairs are connected.
    pub path: Path,
    /// What the messages of the sides went over.
    #[serde(default)]
    pub exchange: Carrier,
    /// The side that asked.
    pub client: PortInfo,
    /// The side that served.
    pub server: PortInfo,
}

impl Environment {
    /// Of a test that begins at a time.
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

/// The ports of a test, each of the client with the one of the server that it is connected with. What is there several times, with other
/// GIDs, is told apart by these.
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

/// Where the threads of a side are bound to by themselves, as the end of a line; empty where they are not.
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
    fn one_port_with_two_gids_is_named_with_these() {
        let mut both = sample::over_two_ports(sample::environment(Measure::Bandwidth));
        both.client.others[0].port = 1;
        both.server.others[0].device = "mlx5_0".to_owned();
        let of = |both: &Environment| ports(&both.client, &both.server, &both.path);
        assert_eq!(of(&both), ["mlx5_0 port 1 GID 3", "mlx5_0 port 1 GID 5 to mlx5_0 port 1 GID 3"]);
        both.path.others[0].client_gid = Some(3);
        assert_eq!(of(&both), ["mlx5_0 port 1", "mlx5_0 port 1"]);
    }

    #[test]
    fn ports_are_named_with_those_that_they_are_connected_with() {
        let of = |environment: &Environment| ports(&environment.client, &environment.server, &environment.path);
        let one = sample::environment(Measure::Bandwidth);
        assert_eq!(of(&one), ["mlx5_0 port 1"]);
        assert_eq!(of(&sample::over_two_ports(one)), ["mlx5_0 port 1", "mlx5_0 port 2 to mlx5_1 port 1"]);
    }
}
