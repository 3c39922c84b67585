//! The environment of a test, which is everything that affects its figures.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::rfc3339;
use crate::control::Carrier;
use crate::endpoint::{Path, PortInfo};
use crate::plan::Plan;

/// All known facts that affect the figures of a test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of the program that wrote the results.
    pub version: String,
    /// The time at which the test started, in UTC and in the format of RFC 3339.
    pub time: String,
    /// The words of the command line.
    pub command_line: Vec<String>,
    /// The plan of the test.
    pub plan: Plan,
    /// The path between the queue pairs.
    pub path: Path,
    /// The transport of the control channel.
    #[serde(default)]
    pub exchange: Carrier,
    /// The client's device, port and machine.
    pub client: PortInfo,
    /// The server's device, port and machine.
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

/// Returns a name for each port of a test. The name also contains the remote port to which the port is connected. If a
/// port is used several times with different GIDs, its names also contain the GIDs.
pub fn ports(client: &PortInfo, server: &PortInfo, path: &Path) -> Vec<String> {
    let join = |(ours, theirs): (String, String)| if ours == theirs { ours } else { format!("{ours} to {theirs}") };
    let gid = |port_info: &PortInfo, gid: Option<u32>| {
        gid.map_or_else(|| port_info.name(), |gid| format!("{} GID {gid}", port_info.name()))
    };
    let pairs = || client.all().zip(server.all()).zip(path.all());
    let short: Vec<_> = pairs().map(|((ours, theirs), _)| join((ours.name(), theirs.name()))).collect();
    let long = pairs().map(|((ours, theirs), path)| join((gid(ours, path.client_gid), gid(theirs, path.server_gid))));
    let long: Vec<_> = long.collect();
    let is_ambiguous = |at: usize| short.iter().zip(&long).any(|(name, full)| *name == short[at] && *full != long[at]);
    (0..short.len()).map(|at| if is_ambiguous(at) { long[at].clone() } else { short[at].clone() }).collect()
}

/// Returns the NUMA node to which threads are bound by default, in a form that can end a line. The text is empty if
/// they are not bound.
pub fn bound(port_info: &PortInfo) -> String {
    let node = port_info.numa_node.filter(|_| port_info.is_bound);
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
