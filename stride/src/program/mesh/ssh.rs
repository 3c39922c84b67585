//! Starts the ranks of `mesh --hosts` on other hosts by a remote shell.

use std::io::Read;
use std::net::{ToSocketAddrs, UdpSocket};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::meet::{Meeting, nonce};
use crate::cli::Hosts;
use crate::mesh::launcher::{Launcher, Membership, OWN};
use crate::mesh::rendezvous::Rendezvous;
use crate::mesh::{MOST_RANKS, Rank};
use crate::program::exit::Exit;
use crate::thread::start;

/// How long the other processes may take to end.
const END: Duration = Duration::from_secs(5);

/// Returns this process as rank 0 of the hosts.
pub(super) fn membership(hosts: &Hosts, place: Option<&Rendezvous>) -> Result<Membership> {
    let size = Rank::try_from(hosts.names.len()).ok().filter(|size| *size <= MOST_RANKS);
    let size = size.with_context(|| format!("--hosts lists more than {MOST_RANKS} hosts; list fewer"))?;
    let rendezvous = match place {
        Some(place @ Rendezvous::Address { .. }) => place.clone(),
        Some(_) => bail!("--rendezvous must be HOST:PORT with --hosts; leave it out, or give an address of this host"),
        None => {
            let host = hosts.names.first().cloned().unwrap_or_default();
            if !is_this_host(&host) {
                bail!(
                    "{host:?}, the first of --hosts, is not this host; list this host first, by the name or address that \
                     the others reach, or run the command there"
                );
            }
            Rendezvous::Address { host, ports: vec![0] }
        }
    };
    Ok(Membership { launcher: Launcher::Ssh, rank: 0, size, job: nonce(), rendezvous: Some(rendezvous) })
}

/// Whether a name resolves to an address of this host.
fn is_this_host(host: &str) -> bool {
    let found = (host, 0).to_socket_addrs().into_iter().flatten();
    found.into_iter().any(|address| UdpSocket::bind(address).is_ok())
}

/// The remote shells that run.
#[derive(Default)]
pub(super) struct Children(Vec<(Rank, String, Child)>);

impl Children {
    /// Starts all ranks but this one.
    pub(super) fn start(hosts: &Hosts, membership: &Membership, meeting: &Meeting) -> Result<Self> {
        let host = match &membership.rendezvous {
            Some(Rendezvous::Address { host, .. }) if host.contains(':') => format!("[{host}]"),
            Some(Rendezvous::Address { host, .. }) => host.clone(),
            _ => bail!("rank 0 has no address"),
        };
        let port = meeting.listener.local_addr()?.port();
        let arguments: Option<Vec<_>> = hosts.arguments.iter().map(|word| word.to_str()).collect();
        let arguments = arguments.context("an argument is not UTF-8; rename the file that it names")?;
        let arguments = shlex::try_join(arguments).map_err(|error| anyhow!("cannot quote the arguments: {error}"))?;
        let (program, options) = hosts.shell.split_first().context("the remote shell is empty; name one with --rsh")?;
        let mut all = Self::default();
        for (name, rank) in hosts.names.iter().zip(0..).skip(1) {
            let own = format!("{rank} {} {host}:{port} {}", membership.size, membership.job);
            let own = shlex::try_quote(&own).map_err(|error| anyhow!("cannot quote {host:?}: {error}"))?;
            let mut command = Command::new(program);
            command.args(options).arg(name).arg(format!("exec env {OWN}={own} {} {arguments}", hosts.path));
            command.stdin(Stdio::piped()).stdout(Stdio::null());
            let child = command
                .spawn()
                .with_context(|| format!("cannot run {program}; name another remote shell with --rsh"))?;
            all.0.push((rank, name.clone(), child));
        }
        Ok(all)
    }

    /// Returns the ranks whose remote shell has ended since the last call, with the reason.
    pub(super) fn ended(&mut self) -> Vec<(Rank, String)> {
        let mut ended = Vec::new();
        self.0.retain_mut(|(rank, host, child)| match child.try_wait() {
            Ok(Some(status)) => {
                ended.push((*rank, reason(host, status)));
                false
            }
            _ => true,
        });
        ended
    }

    /// Ends the remote shells. They end by themselves when their ranks do.
    pub(super) fn end(mut self) {
        self.0.iter_mut().for_each(|(.., child)| drop(child.stdin.take()));
        let deadline = Instant::now() + END;
        while !self.0.is_empty() && Instant::now() < deadline {
            self.ended();
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for (.., child) in &mut self.0 {
            // Ignores the errors: the process may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn reason(host: &str, status: ExitStatus) -> String {
    match status.code() {
        Some(127) => format!("{host} has no stride-perf in its PATH; give its path with --stride-path"),
        Some(255) => format!("the remote shell did not reach {host}; check that `ssh {host}` works without a password"),
        Some(code) if code == i32::from(Exit::NoContact.status()) => format!(
            "the rank on {host} did not reach rank 0, or its standard input has ended: a command of --rsh must pass it on"
        ),
        _ => format!("the remote shell to {host} ended with {status}"),
    }
}

/// Ends this process when its standard input ends, because the remote shell or its starter has ended then.
pub(super) fn end_with_stdin() -> Result<()> {
    start(|| {
        let mut bytes = [0; 64];
        while std::io::stdin().read(&mut bytes).is_ok_and(|count| count > 0) {}
        std::process::exit(Exit::NoContact.status().into());
    })
    .map(drop)
}
