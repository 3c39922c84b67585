//! A server and a client of the same origin.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::table::Table;

/// The time limit of a server's start.
const START: Duration = Duration::from_secs(20);
/// The pause after a run, in which the kernel releases its connections.
const REST: Duration = Duration::from_millis(1000);

/// The command of the two programs.
#[derive(Debug)]
pub(crate) struct Pair {
    name: &'static str,
    program: PathBuf,
    address: String,
    port: String,
    /// Options of the client.
    options: Vec<String>,
}

impl Pair {
    pub(crate) fn new(name: &'static str, program: PathBuf, address: &str, port: u16, options: Vec<String>) -> Self {
        Self { name, program, address: address.to_owned(), port: port.to_string(), options }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Runs a server, and a client with `connections` connections; returns the client's table.
    pub(crate) fn run(&self, connections: u32) -> Result<Table> {
        let server = self.command().stdout(Stdio::null()).spawn();
        let server = Server(server.with_context(|| format!("cannot start {}", self.program.display()))?);
        self.wait_for_server()?;
        let table = self.client(connections)?;
        drop(server);
        thread::sleep(REST);
        table.with_context(|| format!("{} did not establish all connections", self.name))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["-p", &self.port]).stdin(Stdio::null());
        command
    }

    /// Checks the identifiers of this machine. A trial connection is not possible, because rdma-core's server serves
    /// only one client: all its queue pairs share the objects of the first, and these are released with it.
    fn wait_for_server(&self) -> Result<()> {
        let deadline = Instant::now() + START;
        loop {
            let listed = Command::new("rdma").args(["resource", "show", "cm_id"]).output();
            let listed = listed.context("cannot run `rdma`; install iproute2")?;
            let text = String::from_utf8_lossy(&listed.stdout);
            if text.lines().any(|line| self.is_listener(line)) {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the server of {} does not listen", self.name);
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn is_listener(&self, line: &str) -> bool {
        let mut words = line.split_whitespace();
        line.contains("state LISTEN")
            && words.any(|word| word == "src-addr")
            && words.next().is_some_and(|address| address.rsplit(':').next() == Some(&self.port))
    }

    /// The table; `None` if a connection failed.
    fn client(&self, connections: u32) -> Result<Option<Table>> {
        let output = self
            .command()
            .args(["-s", &self.address, "-c", &connections.to_string()])
            .args(&self.options)
            .stderr(Stdio::null())
            .output()
            .with_context(|| format!("cannot start {}", self.program.display()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        // rdma-core's client exits with status 0 even on failure.
        if !output.status.success() || text.contains("error: ") {
            return Ok(None);
        }
        match Table::parse(&text) {
            Some(table) => Ok(Some(table)),
            None => bail!("{} printed no table:\n{text}", self.name),
        }
    }
}

/// A running server; the drop kills it.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Each call fails only if the server has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
