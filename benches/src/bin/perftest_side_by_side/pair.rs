//! A server and a client of the same origin.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use stride_perf::report::{self, Row};

use super::program::Program;
use super::test::Test;

/// The options of both programs.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) device: String,
    pub(crate) gid_index: u32,
    pub(crate) iterations: u32,
    pub(crate) cq_mod: u32,
    pub(crate) post_list: u32,
    pub(crate) tx_depth: u32,
    pub(crate) preload: Option<Paths>,
    pub(crate) events: bool,
    pub(crate) timeout: Duration,
}

/// A library that replaces libibverbs in all programs.
pub(crate) struct Preload {
    library: PathBuf,
    /// A folder where the library has the name that stride-perf loads.
    folder: PathBuf,
}

/// The library and the folder of a [`Preload`].
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    library: PathBuf,
    folder: PathBuf,
}

impl Preload {
    pub(crate) fn new(library: &Path) -> Result<Self> {
        let library = fs::canonicalize(library).with_context(|| format!("cannot open {}", library.display()))?;
        let folder = std::env::temp_dir().join(format!("side-by-side-{}", std::process::id()));
        fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
        symlink(&library, folder.join("libibverbs.so.1")).context("cannot create a link to the library")?;
        Ok(Self { library, folder })
    }

    pub(crate) fn paths(&self) -> Paths {
        Paths { library: self.library.clone(), folder: self.folder.clone() }
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        // A folder that cannot be removed does no harm.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// The origin of a pair.
#[derive(Clone, Debug)]
pub(crate) enum Pair {
    Perftest { by: Option<PathBuf> },
    Stride { program: PathBuf },
}

impl Pair {
    /// Runs a test over the loopback interface; returns the client's rows, of one size or of all.
    pub(crate) fn run(&self, test: Test, size: Option<u64>, settings: &Settings) -> Result<Vec<Row>> {
        let (mut server, mut client) = match self {
            Self::Perftest { by } => {
                let command = || perftest(by.as_deref(), test, size, settings);
                (command(), command())
            }
            Self::Stride { program } => {
                (stride_server(program, settings), stride_client(program, test, size, settings))
            }
        };
        // Each pair has its own port, so that no run affects the next.
        let port: u16 = match self {
            Self::Perftest { .. } => 18615,
            Self::Stride { .. } => 18616,
        };
        for command in [&mut server, &mut client] {
            command.args(["-p", &port.to_string()]);
        }
        let mut server = Program::start(&mut server)?;
        server.await_listener(port)?;
        let text = Program::start(client.arg("127.0.0.1"))?.finish(settings.timeout);
        let text = text.with_context(|| format!("{} {}", test.operation(), test.measure()))?;
        server.end()?;
        let mut all = report::series(&text, "run").with_context(|| format!("cannot parse the output:\n{text}"))?;
        ensure!(all.len() == 1, "expected one test in the output, got {}:\n{text}", all.len());
        Ok(all.swap_remove(0).rows)
    }
}

/// The command of either side, which has the same options.
fn perftest(by: Option<&Path>, test: Test, size: Option<u64>, settings: &Settings) -> Command {
    let name = format!("ib_{}_{}", test.operation(), test.measure());
    let mut command = match by {
        Some(by) => Command::new(by),
        None => Command::new(&name),
    };
    if by.is_some() {
        command.arg(&name);
    }
    // `-F`: no warning about the processor's frequency.
    command.args(["-F", "-d", &settings.device]);
    if !test.is_latency() {
        // Does not measure the peak bandwidth, which would require the time of each message.
        command.args(["-N", "--report_gbits"]);
    }
    if let Some(Paths { library, .. }) = &settings.preload {
        // perftest then reuses one list of requests, as stride-perf does.
        command.env("LD_PRELOAD", library).arg("--use_old_post_send");
    }
    add_common(&mut command, test, size, settings);
    command
}

fn stride(program: &Path, settings: &Settings) -> Command {
    let mut command = Command::new(program);
    if let Some(Paths { folder, .. }) = &settings.preload {
        command.env("LD_LIBRARY_PATH", folder);
    }
    command
}

fn stride_server(program: &Path, settings: &Settings) -> Command {
    let mut command = stride(program, settings);
    command.args(["server", "--one-off"]);
    command
}

fn stride_client(program: &Path, test: Test, size: Option<u64>, settings: &Settings) -> Command {
    let mut command = stride(program, settings);
    // Both run without a warm-up, because perftest has one in some tests only.
    command.args([test.operation(), test.measure(), "--json-stream", "--warm-up", "0"]);
    command.args(["-d", &settings.device, "--remote-device", &settings.device]);
    command.args(["--remote-gid-index", &settings.gid_index.to_string()]);
    add_common(&mut command, test, size, settings);
    command
}

/// Adds the options that both programs have.
fn add_common(command: &mut Command, test: Test, size: Option<u64>, settings: &Settings) {
    command.args(["-x", &settings.gid_index.to_string(), "-n", &settings.iterations.to_string()]);
    if !test.is_latency() {
        // perftest requests a completion for each list.
        let moderation = if settings.post_list > 1 { settings.post_list } else { settings.cq_mod };
        command.args(["-Q", &moderation.to_string(), "-t", &settings.tx_depth.to_string()]);
        if settings.post_list > 1 {
            command.args(["-l", &settings.post_list.to_string()]);
        }
    }
    if settings.events && test.takes_receives() {
        command.arg("--events");
    }
    match size {
        _ if test.has_one_size() => {}
        Some(size) => {
            command.args(["-s", &size.to_string()]);
        }
        None => {
            command.arg("-a");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_programs_sleep_only_in_sends() {
        let settings = |events| Settings {
            device: "soft0".to_owned(),
            gid_index: 0,
            iterations: 5,
            cq_mod: 1,
            post_list: 1,
            tx_depth: 128,
            preload: None,
            events,
            timeout: Duration::from_secs(1),
        };
        let sleeps = |command: Command| command.get_args().any(|argument| argument == "--events");
        for test in [Test::SendBw, Test::SendLat, Test::WriteBw, Test::ReadLat, Test::AtomicBw] {
            let is_send = matches!(test, Test::SendBw | Test::SendLat);
            for events in [false, true] {
                let settings = settings(events);
                assert_eq!(sleeps(perftest(None, test, Some(64), &settings)), events && is_send, "{test:?}");
                let ours = stride_client(Path::new("stride-perf"), test, Some(64), &settings);
                assert_eq!(sleeps(ours), events && is_send, "{test:?}");
            }
        }
    }
}
