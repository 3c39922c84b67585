//! Runs the commands of a block in a folder that looks like a checkout with everything built.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sideway_test_names::{Folder, Turn};

use super::output::is_as_shown;
use super::table::{FILES, STAND_INS, hosts};
use super::text::{Block, Command};
use crate::test::programs::process::Process;

/// More than any command takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// The pause before a client without a server is started again.
const AGAIN: Duration = Duration::from_millis(100);
/// Programs that take the place of those that need another host or a file system.
const PROGRAMS: [(&str, &str); 2] = [
    // Each host has a home directory of its own.
    (
        "ssh",
        "while [ \"${1#-}\" != \"$1\" ]; do shift; done\nmkdir -p \"$HOSTS/${1#*@}\"; cd \"$HOSTS/${1#*@}\"\nshift\n\
         SSH_CONNECTION=\"127.0.0.1 1 127.0.0.1 22\" exec sh -c \"$*\"",
    ),
    ("zfs", "case $1 in recv) cat > received;; *) echo snapshot;; esac"),
];
/// The commands that build, install or test. The repository's tests check the names in them; the gate runs the others.
const BUILDS: [&str; 8] = [
    "cargo build",
    "cargo install",
    "cargo test",
    "cargo xtask capi",
    "cargo xtask package",
    "cargo xtask preload",
    "cargo xtask test",
    "cargo xtask trespass-capi",
];

/// The folders with the built programs.
#[derive(Debug)]
pub(super) struct Built<'a> {
    pub(super) root: &'a Path,
    pub(super) target: &'a Path,
}

/// A folder like a checkout, in which the commands of one document run.
pub(super) struct Place {
    folder: Folder,
    path: String,
    root: PathBuf,
}

impl Place {
    pub(super) fn new(built: &Built<'_>) -> Result<Self> {
        let folder = Folder::new();
        let link = |from: &Path, to: &str| {
            let to = folder.join(to);
            symlink(from, &to).with_context(|| format!("cannot create {}", to.display()))
        };
        for name in ["bin", "target", "hosts"] {
            fs::create_dir(folder.join(name)).with_context(|| format!("cannot create {name}"))?;
        }
        link(&built.root.join("trespass"), "trespass")?;
        // Other tests build the programs without optimizations, and those for C programs optimized.
        for (name, place) in [("debug", "debug"), ("debug", "release"), ("release", "for-c")] {
            link(&built.target.join(name), &format!("target/{place}"))?;
        }
        for name in ["preload", "capi", "trespass-capi"] {
            link(&built.target.join(name), &format!("target/{name}"))?;
        }
        link(&built.target.join("release/stride-perf"), "bin/stride-perf")?;
        for name in super::PROGRAMS {
            link(&built.target.join("debug").join(name), &format!("bin/{name}"))?;
        }
        for (name, script) in PROGRAMS {
            let file = folder.join("bin").join(name);
            fs::write(&file, format!("#!/bin/sh\n{script}\n")).with_context(|| format!("cannot write {name}"))?;
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}", folder.join("bin").display());
        Ok(Self { folder, path, root: built.root.to_path_buf() })
    }

    /// Makes the files that the commands of a document use.
    pub(super) fn furnish(&self, document: &str) -> Result<()> {
        for (_, script) in FILES.iter().filter(|(name, _)| *name == document) {
            let command = Command { text: format!("set -e; {script}"), ..Command::default() };
            self.run(&command, "", &command.text, &mut [])?;
        }
        Ok(())
    }

    /// Runs the commands of a block in turn. Returns how many have run.
    ///
    /// # Errors
    ///
    /// The first command that failed or printed other lines than shown, with its output.
    pub(super) fn play(&self, block: &Block, is_left_out: impl Fn(&str) -> bool) -> Result<usize> {
        // The documents name ports.
        let _turn = Turn::wait_for("readme")?;
        let (mut settings, mut servers, mut count) = (String::new(), Vec::new(), 0);
        for command in &block.commands {
            if is_left_out(&command.text) {
                continue;
            }
            let Some(line) = translated(&command.text) else { continue };
            count += 1;
            if line.starts_with("export ") || line.starts_with("PATH=") {
                settings.push_str(&line);
                settings.push('\n');
            } else if command.is_server {
                servers.push(self.serve(command, &settings, &line)?);
            } else {
                self.run(command, &settings, &line, &mut servers)?;
            }
        }
        for server in &mut servers {
            let status = server.ended()?;
            ensure!(status.is_none_or(|status| status.success()), "{status:?}\n{}", server.story());
        }
        Ok(count)
    }

    fn start(&self, settings: &str, line: &str) -> Result<Process> {
        let mut program = Program::new("sh");
        program.arg("-c").arg(format!("{settings}{line}")).current_dir(self.folder.path());
        program.env("PATH", &self.path).env("HOSTS", self.folder.join("hosts")).env("ROOT", &self.root);
        // Two devices stand in for the ports of a NIC.
        program.env("SOFTRNIC_DEVICES", "soft0,soft1,softiw0");
        for name in ["SOFTRNIC_PROFILE", "RDMA_MUMMY_RDMACM", "LD_PRELOAD", "LD_LIBRARY_PATH"] {
            program.env_remove(name);
        }
        Process::start(program)
    }

    /// Starts a command that runs beside the later ones, and waits for the output that the document shows.
    fn serve(&self, command: &Command, settings: &str, line: &str) -> Result<Process> {
        let mut server = self.start(settings, line)?;
        let deadline = Instant::now() + LIMIT;
        let shown = [&command.output[..], &["…".to_owned()]].concat();
        while !is_as_shown(&shown, &server.printed()) {
            let has_ended = server.ended()?.is_some();
            if has_ended && !is_as_shown(&shown, &server.printed()) || Instant::now() > deadline {
                bail!("`{}` did not print what is shown:\n{}", command.text, server.story());
            }
            std::thread::sleep(AGAIN);
        }
        Ok(server)
    }

    /// Runs a command to its end. While a server runs that may not listen yet, a client that fails starts again.
    fn run(&self, command: &Command, settings: &str, line: &str, servers: &mut [Process]) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let mut process = self.start(settings, line)?;
            let status = process.wait(deadline)?;
            let mut is_served = false;
            for server in servers.iter_mut() {
                is_served |= server.ended()?.is_none();
            }
            if status.is_some_and(|status| status.success()) {
                let is_right = command.output.is_empty() || is_as_shown(&command.output, &process.printed());
                ensure!(is_right, "`{}` printed other lines than shown:\n{}", command.text, process.story());
                return Ok(());
            }
            if !is_served || Instant::now() + AGAIN > deadline {
                let servers: Vec<String> = servers.iter().map(Process::story).collect();
                let servers = servers.join("\n");
                bail!("`{}` ended with {status:?}:\n{}\n{servers}", command.text, process.story());
            }
            std::thread::sleep(AGAIN);
        }
    }
}

/// The command with built programs in place of `cargo run`, and this host in place of others. `None` if it only builds.
fn translated(text: &str) -> Option<String> {
    if BUILDS.iter().any(|build| text.starts_with(build)) {
        return None;
    }
    let mut line = built(text);
    for (shown, stand_in) in STAND_INS.iter().copied().chain(hosts()) {
        line = replaced(&line, shown, stand_in);
    }
    Some(line)
}

/// `cargo run` and `cargo stride` as the programs that they run.
fn built(text: &str) -> String {
    let Some((before, after)) = text.split_once("cargo ") else { return text.to_owned() };
    if let Some(options) = after.strip_prefix("stride ") {
        return format!("{before}stride-perf {options}");
    }
    for (kind, folder) in [("--example ", "target/debug/examples"), ("--bin ", "target/debug")] {
        if let Some((_, named)) = after.split_once(kind).filter(|_| after.starts_with("run ")) {
            let (name, options) = named.split_once(' ').unwrap_or((named, ""));
            let options = options.strip_prefix("-- ").unwrap_or(options);
            return format!("{before}{} {options}", PathBuf::from(folder).join(name).display());
        }
    }
    text.to_owned()
}

/// The line with another text for `from`, where it is a whole word or words.
fn replaced(line: &str, from: &str, to: &str) -> String {
    let is_part = |letter: char| letter.is_alphanumeric() || "-_./".contains(letter);
    let (mut text, mut rest) = (String::new(), line);
    while let Some((before, after)) = rest.split_once(from) {
        let is_whole = !before.ends_with(is_part) && !after.starts_with(is_part);
        text.push_str(before);
        text.push_str(if is_whole { to } else { from });
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_becomes_the_built_program() {
        for (text, expected) in [
            ("cargo stride write bw --loopback", "stride-perf write bw --loopback"),
            ("cargo run --release --example rping -- -s", "target/debug/examples/rping -s"),
            ("A=0 cargo run -p trespass --example echo 127.0.0.1", "A=0 target/debug/examples/echo 127.0.0.1"),
            ("cargo run -p trespass --bin trespass-doctor", "target/debug/trespass-doctor "),
            ("echo hi", "echo hi"),
        ] {
            assert_eq!(built(text), expected);
        }
        assert_eq!(translated("cargo test -p softrnic"), None);
    }

    #[test]
    fn only_whole_words_are_replaced() {
        assert_eq!(replaced("a host:x host1 /host -- host", "host", "h"), "a h:x host1 /host -- h");
    }

    #[test]
    fn command_that_fails_or_prints_other_lines_is_a_fault() {
        let (folder, root) = (Folder::new(), crate::repo::root().unwrap());
        let place = Place::new(&Built { root: &root, target: folder.path() }).unwrap();
        let play = |text: &str| {
            let blocks = super::super::text::blocks(&format!("```console\n{text}\n```\n")).unwrap();
            place.play(&blocks[0], |text| text == "left out").map_err(|error| format!("{error:#}"))
        };
        assert_eq!(play("$ export A=7\n$ left out\n$ echo $A and b\n5 and b"), Ok(2));
        assert_eq!(play("$ until [ -e x ]; do sleep 0.01; done; echo ready; sleep 1000 & sleep 1\n$ touch x"), Ok(2));
        assert!(play("$ echo a\nb").unwrap_err().contains("`echo a` printed other lines than shown:"));
        assert!(play("$ false\n").unwrap_err().contains("`false` ended with"));
        assert!(play("$ echo a  # the server\nb").unwrap_err().contains("did not print what is shown"));
        assert!(play("$ false  # the server\n$ sleep 0.1; true").unwrap_err().contains("false"));
    }
}
