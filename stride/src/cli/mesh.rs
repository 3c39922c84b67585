//! The command `mesh`: a test between each pair of many hosts.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::build;
use super::command::{Measured, TestWord};
use super::options::{Output, Test};
use super::{check_output, contact, split, verb};
use crate::control::ControlOptions;
use crate::mesh::rendezvous::{self, Rendezvous};
use crate::mesh::schedule::Mode;
use crate::plan::{Contradiction, Given, Plan, PortSelector, SideConfig};

/// How long rank 0 waits for all ranks by default.
const JOIN: Duration = Duration::from_secs(60);

/// The options of a mesh, which are valid before and after the words of the test.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Mesh")]
pub(super) struct Options {
    /// Then run all pairs of a round at once, in both directions.
    ///
    /// By default, a rank takes part in one test at a time. Requires --duration, because tests of a number of messages
    /// do not overlap.
    #[arg(long, global = true)]
    busy: bool,
    /// Then run tests from all other ranks to each rank at once.
    #[arg(long, global = true)]
    incast: bool,
    /// Then run tests from each rank to all others at once.
    #[arg(long, global = true)]
    outcast: bool,
    /// Pairs that run at once in a quiet round [default: all of the round].
    ///
    /// The pairs of a round are disjoint. With 1, one test runs at a time in the whole mesh, which takes as many times
    /// longer as there are pairs.
    #[arg(long, global = true, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    at_once: Option<u32>,
    /// Start the ranks by ssh: this host first, then the others.
    ///
    /// Not needed if srun, mpirun, torchrun or an indexed job of Kubernetes starts the ranks.
    #[arg(long, global = true, value_name = "HOSTS", value_delimiter = ',', conflicts_with = "ranks")]
    hosts: Option<Vec<String>>,
    /// Remote shell of --hosts [default: ssh].
    #[arg(long, global = true, value_name = "COMMAND", requires = "hosts")]
    rsh: Option<String>,
    /// Path of stride-perf on the other hosts of --hosts [default: stride-perf].
    #[arg(long, global = true, value_name = "COMMAND", requires = "hosts")]
    stride_path: Option<String>,
    /// Where the ranks meet rank 0: HOST:PORT of rank 0, or a shared file [default: from the launcher].
    ///
    /// A path must contain a slash. Rank 0 writes the file, and removes it at the end.
    #[arg(long, global = true, value_name = "PLACE", value_parser = place)]
    rendezvous: Option<Rendezvous>,
    /// Number of ranks, if the launcher does not state it (Kubernetes).
    #[arg(long, global = true, value_name = "N", value_parser = rendezvous::ranks)]
    ranks: Option<u32>,
}

fn place(text: &str) -> Result<Rendezvous, String> {
    Rendezvous::parse(text)
}

/// A mesh.
#[derive(Clone, Debug, PartialEq)]
pub struct Mesh {
    /// The rails. Each is the test with one port of this side.
    pub rails: Vec<Rail>,
    /// The options that the user gave.
    pub given: Given,
    /// Options of the control channels.
    pub contact: ControlOptions,
    /// How long rank 0 waits for all ranks.
    pub join: Duration,
    /// What runs at the same time, in this order.
    pub modes: Vec<Mode>,
    /// Maximum number of pairs of a quiet round.
    pub at_once: Option<usize>,
    /// Where the ranks meet, if the user has named a place.
    pub rendezvous: Option<Rendezvous>,
    /// The number of ranks, if the user gave it.
    pub ranks: Option<u32>,
    /// The hosts on which this process starts the ranks, if it does.
    pub hosts: Option<Hosts>,
    /// Output options.
    pub output: Output,
}

impl Mesh {
    /// Returns what all ranks have in common.
    ///
    /// # Errors
    ///
    /// Returns an error if a plan cannot be serialized.
    pub fn test(&self) -> anyhow::Result<crate::mesh::message::Test> {
        Ok(crate::mesh::message::Test::of(self.rails.iter().map(|rail| &rail.plan))?)
    }
}

/// A rail: the ports of all ranks that have the same place in their lists.
#[derive(Clone, Debug, PartialEq)]
pub struct Rail {
    /// The name in tables.
    pub name: String,
    /// The test.
    pub plan: Plan,
    /// The configuration of this rank as a server.
    pub config: SideConfig,
}

/// The hosts on which `mesh --hosts` starts the ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Hosts {
    /// The names; the first is this host.
    pub names: Vec<String>,
    /// The remote shell, with its options.
    pub shell: Vec<String>,
    /// The path of this program on the other hosts.
    pub path: String,
    /// The arguments of this program.
    pub arguments: Vec<OsString>,
}

/// Builds a mesh from its options.
pub(super) fn mesh(
    word: TestWord,
    options: Options,
    given: Given,
    arguments: Vec<OsString>,
) -> Result<Mesh, Contradiction> {
    let (verb, Measured { measure }) = verb(word)?;
    let (is_latency, test) = split(measure);
    check(&test, &options, is_latency)?;
    let contact = contact(&test.contact)?;
    let own = test.local.config().map_err(Contradiction)?;
    let server = test.remote.config(&test.local).map_err(Contradiction)?;
    let count = own.count().max(server.count());
    let (own, server) = (own.spread(count).each_port(), server.spread(count).each_port());
    let mut rails = Vec::new();
    for (config, server) in own.into_iter().zip(server) {
        let (plan, _) = build::plan(verb, is_latency, &test, &given, config.clone(), server)?;
        if plan.workload.is_endless {
            return Err(Contradiction("a mesh has an end: give --duration a time instead of forever".to_owned()));
        }
        rails.push(Rail { name: name(&config), plan, config });
    }
    let asked = [
        (Mode::Quiet, true),
        (Mode::Busy, options.busy),
        (Mode::Incast, options.incast),
        (Mode::Outcast, options.outcast),
    ];
    let modes = asked.into_iter().filter(|(_, is_asked)| *is_asked).map(|(mode, _)| mode).collect();
    Ok(Mesh {
        rails,
        given,
        contact,
        join: test.connect.wait_server.unwrap_or(JOIN),
        modes,
        at_once: options.at_once.map(|count| count as usize),
        rendezvous: options.rendezvous,
        ranks: options.ranks,
        hosts: options
            .hosts
            .map(|names| hosts(names, options.rsh.as_deref(), options.stride_path, arguments))
            .transpose()?,
        output: test.output,
    })
}

/// Rejects options of a test that a mesh does not have.
fn check(test: &Test, options: &Options, is_latency: bool) -> Result<(), Contradiction> {
    let wrong = |text: &str| Err(Contradiction(text.to_owned()));
    if let Some(server) = &test.server {
        return Err(Contradiction(format!(
            "a mesh names its servers itself; leave out {server:?}, or list all hosts with --hosts"
        )));
    }
    if test.connect.loopback || test.contact.one_off {
        return wrong("--loopback and --one-off do not apply to a mesh; leave them out");
    }
    if test.contact.port.is_some() {
        return wrong(
            "--port does not apply to a mesh, whose servers use any free port; give --rendezvous HOST:PORT for rank 0",
        );
    }
    if test.output.json_stream || test.output.plot.is_some() {
        return wrong("--json-stream and --plot do not apply to a mesh; give --json or --csv");
    }
    if (options.busy || options.incast || options.outcast) && test.messages.duration.is_none() {
        return wrong(
            "--busy, --incast and --outcast require --duration: tests of a number of messages do not overlap",
        );
    }
    check_output(is_latency, &test.output)
}

fn name(config: &SideConfig) -> String {
    let PortSelector { device, port, .. } = config.spots().into_iter().next().unwrap_or_default();
    match (device, port) {
        (Some(device), Some(port)) => format!("{device} port {port}"),
        (Some(device), None) => device,
        (None, Some(port)) => format!("port {port}"),
        (None, None) => "default".to_owned(),
    }
}

fn hosts(
    names: Vec<String>,
    rsh: Option<&str>,
    path: Option<String>,
    arguments: Vec<OsString>,
) -> Result<Hosts, Contradiction> {
    if let Some(name) = names.iter().find(|name| name.is_empty() || name.starts_with('-')) {
        return Err(Contradiction(format!(
            "--hosts contains {name:?}, which is not a host; give names separated by commas"
        )));
    }
    if names.len() < 2 {
        return Err(Contradiction("--hosts requires at least two hosts, of which the first is this one".to_owned()));
    }
    let shell = match rsh {
        Some(text) => shlex::split(text).filter(|words| !words.is_empty()).ok_or_else(|| {
            Contradiction(format!("--rsh {text:?} is empty, or a quotation in it has no end; give a command"))
        })?,
        None => ["ssh", "-T", "-oBatchMode=yes", "-oConnectTimeout=10"].map(str::to_owned).to_vec(),
    };
    Ok(Hosts { names, shell, path: path.unwrap_or_else(|| "stride-perf".to_owned()), arguments })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Job, parse};

    fn mesh(words: &str) -> Result<Mesh, String> {
        match parse(format!("stride-perf mesh {words}").split_whitespace()) {
            Ok(Job::Mesh(mesh)) => Ok(*mesh),
            Ok(other) => panic!("{words}: {other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn options_apply_before_and_after_the_test() {
        let before = mesh("--busy --hosts a,b write bw -D 1s -s 1M").unwrap();
        let after = mesh("write bw -D 1s -s 1M --busy --hosts a,b").unwrap();
        assert_eq!(before.modes, [Mode::Quiet, Mode::Busy]);
        assert_eq!(
            (before.modes, before.hosts.map(|hosts| hosts.names)),
            (after.modes, after.hosts.map(|hosts| hosts.names))
        );
        assert_eq!(before.rails[0].plan, after.rails[0].plan);
        assert_eq!(before.rails[0].plan.workload.sizes, [1 << 20]);
    }

    #[test]
    fn devices_become_rails() {
        let mesh = mesh("send lat -s 64 -d mlx5_0,mlx5_1").unwrap();
        let names: Vec<_> = mesh.rails.iter().map(|rail| rail.name.as_str()).collect();
        assert_eq!(names, ["mlx5_0", "mlx5_1"]);
        assert!(mesh.rails.iter().all(|rail| rail.plan.ports() == 1 && rail.config.count() == 1));
        assert_eq!(mesh.rails[1].plan.placement.client.device.as_deref(), Some("mlx5_1"));
    }

    #[test]
    fn options_of_a_single_pair_are_rejected() {
        for (words, part) in [
            ("write bw h1", "leave out \"h1\""),
            ("write bw --loopback", "--loopback"),
            ("write bw -p 4000", "--rendezvous"),
            ("write bw --plot x.svg", "--plot"),
            ("write bw --json-stream", "--json-stream"),
            ("write bw -D forever", "instead of forever"),
            ("write bw --busy", "require --duration"),
            ("write bw --hosts a", "at least two"),
            ("write bw --hosts a,-oProxyCommand=x", "not a host"),
            ("write bw --rsh ssh", "--hosts"),
            ("write bw --rendezvous nowhere", "HOST:PORT"),
            ("write bw --ranks 1", "from 2 to"),
            ("write lat --min-gbps 1", "--max-p99"),
            ("write bw --threshold 3", "--compare"),
            ("write bw --hosts a,b --rsh 'x", "quotation"),
        ] {
            let error = mesh(words).unwrap_err();
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
