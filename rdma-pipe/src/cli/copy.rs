//! `rdcp`.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use clap::Parser;

use super::patterns::Patterns;
use super::{LinkArguments, Operand};
use crate::copy::{self, CopyOptions, Outcome, Progress, Target};
use crate::error::{Error, Kind, Result, escape};
use crate::launch::{Far, LinkRequest, Reply, Request, Role, Shell, random_key, serve};
use crate::link::{Link, Options, connect};
use crate::proto::{Peer, Purpose};
use crate::show::{Report, Show, print_error};
use crate::standard::Standard;
use crate::tree::{Ancestry, Keep, Origin, base_name, own_stream};

/// Maximum number of failures that are printed.
const SHOWN: usize = 100;

/// Copy files and trees between hosts over RDMA, or TCP if RDMA is unavailable
#[derive(Debug, Parser)]
#[command(name = "rdcp", version, max_term_width = 100, override_usage = "rdcp [OPTIONS] SRC... DST")]
pub struct CopyCommand {
    #[command(flatten)]
    link: LinkArguments,
    /// Copy directories
    #[arg(short, long)]
    recursive: bool,
    /// Archive: -r, and keep modes, owners, links, special files and attributes
    #[arg(short, long)]
    archive: bool,
    /// Keep all mode bits [default: permissions, less the umask]
    #[arg(short = 'p', long)]
    perms: bool,
    /// Keep user and group (root only)
    #[arg(short, long)]
    owner: bool,
    /// Keep hard links
    #[arg(short = 'H', long)]
    hard_links: bool,
    /// Copy FIFOs, sockets and device nodes [default: skip them]
    #[arg(short = 'D', long)]
    specials: bool,
    /// Keep extended attributes and access control lists
    #[arg(short = 'X', long)]
    xattrs: bool,
    /// Skip files that exist with the same size and time
    #[arg(long)]
    sync: bool,
    /// Compare contents instead of times (--sync)
    #[arg(short, long, requires = "sync")]
    checksum: bool,
    /// Remove entries that the source does not have from copied directories (--sync)
    #[arg(long, requires = "sync")]
    delete: bool,
    /// Print the files that would be copied, and copy nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    #[command(flatten)]
    patterns: Patterns,
    /// Copy only the paths in FILE, one per line, below the source; - is stdin
    #[arg(long, value_name = "FILE")]
    files_from: Option<PathBuf>,
    /// Paths of --files-from are separated by NUL
    #[arg(short = '0', long, requires = "files_from")]
    from0: bool,
    /// Maximum bytes per second, with K, M or G [default: no limit]
    #[arg(long, value_name = "RATE", value_parser = rate, default_value = "0", hide_default_value = true)]
    bwlimit: u64,
    /// Write all data to the disks at the end, with a syncfs for each file system
    #[arg(long)]
    fsync: bool,
    /// Show a progress bar [default: on a terminal]
    #[arg(short = 'P', long)]
    progress: bool,
    /// Print only errors
    #[arg(short, long)]
    quiet: bool,
    /// Print a report in JSON
    #[arg(long)]
    json: bool,
    /// Remote shell
    #[arg(short = 'e', long, value_name = "COMMAND", default_value = "ssh")]
    rsh: String,
    /// Path of rdcp on the other host
    #[arg(long, value_name = "COMMAND", default_value = "rdcp")]
    rdcp_path: String,
    /// TCP port of the far side [default: any]
    #[arg(long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,
    /// Serve the rdcp that started this one: for a forced command of sshd
    #[arg(long)]
    server: bool,
    /// Serve only files below this directory (--server)
    #[arg(long, value_name = "DIR", requires = "server")]
    root: Option<PathBuf>,
    /// Sources and destination; [user@]host:path is on another host
    #[arg(value_name = "SRC... DST", required_unless_present = "server")]
    operands: Vec<OsString>,
}

impl CopyCommand {
    /// Returns the number of times that `-v` was given.
    pub fn verbosity(&self) -> u8 {
        if self.quiet { 0 } else { self.link.verbose.max(u8::from(!self.server)) }
    }

    /// Copies; returns the exit status.
    ///
    /// # Errors
    ///
    /// The copy as a whole failed.
    pub fn run(self) -> Result<u8> {
        if self.server {
            return serve(self.root.as_deref());
        }
        let operands: Vec<Operand> = self.operands.iter().map(|text| Operand::parse(text)).collect();
        if let Some(home) = operands.iter().find_map(Operand::other_home) {
            let text = format!("cannot resolve {}: give the whole path", escape(OsStr::from_bytes(home).as_ref()));
            return Err(Error::new(Kind::Usage, text));
        }
        let [first, _, ..] = operands.as_slice() else {
            return Err(Error::new(Kind::Usage, "an operand is missing: rdcp SRC DST; see rdcp --help"));
        };
        // The sources are on one host; all operands after them are destinations.
        let count = operands.iter().take_while(|operand| operand.host == first.host).count();
        let (sources, destinations) = operands.split_at(count.min(operands.len() - 1));
        if destinations.len() > 1 && destinations.iter().any(|destination| destination.host.is_none()) {
            return Err(Error::new(Kind::Usage, "the sources are on several hosts; copy from one at a time"));
        }
        let options = CopyOptions { chained: destinations.len() > 1, ..self.options()? };
        options.check()?;
        let copy = Copy {
            command: &self,
            shell: Shell::new((self.rsh != "ssh").then_some(self.rsh.as_str()), "rdcp", &self.rdcp_path)?,
            options,
            links: self.link.options(),
            progress: Arc::new(Progress::new(self.link.verbose > 0 || self.dry_run)),
            started: Instant::now(),
        };
        let shows = !self.quiet && (self.progress || (Show::on_terminal() && !self.dry_run));
        let show = (shows || !self.quiet && (self.link.verbose > 0 || self.dry_run))
            .then(|| Show::start(Arc::clone(&copy.progress), shows));
        let done = match (&first.host, destinations) {
            (Some(_), [destination @ Operand { host: None, .. }]) => copy.pull(sources, destination),
            // This process has the stream, which another process on this host has not.
            (None, [destination]) if is_own_stream(destination) => copy.pull(sources, destination),
            (Some(_), _) => copy.between(sources, destinations),
            (None, _) => copy.push(sources, destinations),
        };
        drop(show);
        let (outcome, transport) = done.inspect_err(|error| {
            // The caller prints the error of the copy.
            if self.json
                && let Err(unprinted) = Report::failed(error, copy.started).print()
            {
                print_error(&format!("rdcp: {unprinted}"));
            }
        })?;
        let report = Report::new(&outcome, copy.started, &transport);
        let mut printed = Ok(());
        if self.json {
            printed = report.print();
        } else if self.link.verbose > 0 {
            print_error(&report.lines());
        }
        let (skipped, failed): (Vec<&Error>, Vec<&Error>) =
            outcome.failures.iter().partition(|error| error.kind() == Kind::Skipped);
        for (errors, what) in [(skipped, "were skipped"), (failed, "failed")] {
            if self.quiet && what != "failed" {
                continue;
            }
            errors.iter().take(SHOWN).for_each(|error| print_error(&format!("rdcp: {error}")));
            if errors.len() > SHOWN {
                print_error(&format!("rdcp: {} entries {what} in all", errors.len()));
            }
        }
        printed.map(|()| outcome.status())
    }

    fn options(&self) -> Result<CopyOptions> {
        let keep = Keep {
            mode: self.perms || self.archive,
            owner: self.owner || self.archive,
            attributes: self.xattrs || self.archive,
            links: self.hard_links || self.archive,
            specials: self.specials || self.archive,
        };
        Ok(CopyOptions {
            recursive: self.recursive || self.archive,
            sync: self.sync,
            checksum: self.checksum,
            delete: self.delete,
            dry_run: self.dry_run,
            keep,
            filter: self.patterns.0.clone(),
            files_from: self.selected()?,
            limit: self.bwlimit,
            chained: false,
            alone: false,
            fsync: self.fsync,
            again: false,
            into: Vec::new(),
        })
    }

    fn selected(&self) -> Result<Option<Vec<Vec<u8>>>> {
        let Some(path) = &self.files_from else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = if path == Path::new("-") {
            Standard::Input.open()?.read_to_end(&mut bytes)
        } else {
            std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes))
        };
        read.map_err(|error| Error::file("read", path, &error))?;
        let end = if self.from0 { 0 } else { b'\n' };
        let paths = bytes.split(|&byte| byte == end).filter(|path| !path.is_empty());
        Ok(Some(paths.map(<[u8]>::to_vec).collect()))
    }
}

/// A requested copy.
struct Copy<'c> {
    command: &'c CopyCommand,
    shell: Shell,
    options: CopyOptions,
    links: Options,
    progress: Arc<Progress>,
    started: Instant,
}

impl Copy<'_> {
    /// Copies sources of this host to far sides.
    fn push(&self, sources: &[Operand], destinations: &[Operand]) -> Result<(Outcome, String)> {
        let paths: Vec<PathBuf> = sources.iter().map(|source| source.local_path().into()).collect();
        // Nothing is created at the destination if no source can be copied. Otherwise the copy reports those that cannot.
        let cannot = |path: &PathBuf| {
            let follows = self.options.follows();
            let found = if follows { std::fs::metadata(path) } else { std::fs::symlink_metadata(path) };
            match found {
                Ok(found) if found.is_dir() && !self.options.recursive && self.options.files_from.is_none() => {
                    Some(Error::new(Kind::File, format!("{} is a directory; copy it with -r", escape(path))))
                }
                Ok(_) => None,
                Err(error) => Some(Error::file("read", path, &error)),
            }
        };
        if let Some(Some(error)) = paths.iter().map(cannot).reduce(|first, next| first.filter(|_| next.is_some())) {
            return Err(error);
        }
        for destination in destinations.iter().filter(|destination| destination.host.is_none()) {
            copy::check_itself(&paths, Path::new(&destination.local_path()), &self.options)?;
        }
        copy::check_names(&Origin::default(), &paths, &self.options)?;
        let (fars, chain, lost) = self.start_sinks(sources, destinations)?;
        let into = fars.iter().filter_map(Far::destination).cloned().collect();
        let options = CopyOptions { into, ..self.options.clone() };
        copy::check_ancestry(&Origin::default(), &paths, &options)?;
        let mut transport = String::new();
        let connect = |peer: Option<&Peer>| match peer {
            Some(peer) => self.connect(peer, Purpose::Send, &mut transport),
            None => Err(Error::new(Kind::Unreachable, "all hosts are lost")),
        };
        let mut outcome = copy::send(connect, chain, &Origin::default(), &paths, &options, &self.progress)?;
        outcome.failures.extend(lost);
        drop(fars);
        Ok((outcome, transport))
    }

    /// Copies sources of a far side to this host.
    fn pull(&self, sources: &[Operand], destination: &Operand) -> Result<(Outcome, String)> {
        let contents = self.is_contents(sources);
        let name = |source: &Operand| base_name(Path::new(OsStr::from_bytes(&source.path)));
        let names: Option<Vec<Vec<u8>>> = sources.iter().map(name).collect();
        // If contents or listed paths are copied, the far side determines the names, and this side accepts any name.
        let expected = names.filter(|_| !contents);
        let path = destination.local_path();
        let into = Ancestry::of(Path::new(&path)).into_iter().collect();
        let target = Target::open(Path::new(&path), sources.len(), contents, self.options.dry_run)?;
        let role = Role::Source { paths: paths(sources), options: self.options.clone(), to: Vec::new(), into };
        let key = random_key()?;
        let mut far = Far::start(&self.shell, sources[0].host.as_deref(), None, &self.request(key.clone(), role))?;
        // Meanwhile the far side starts. The connection reports an error.
        _ = self.links.prepare();
        let peer = far.peer(key)?;
        let mut transport = String::new();
        let connect = || self.connect(&peer, Purpose::Receive, &mut transport);
        let (expected, options) = (expected.as_deref(), &self.options);
        let received = copy::receive(connect, &target, expected, options, &self.links, &self.progress);
        let outcome = self.with_failures(far, received?)?;
        Ok((outcome, transport))
    }

    /// Copies from one far side to another; the data goes directly between them.
    fn between(&self, sources: &[Operand], destinations: &[Operand]) -> Result<(Outcome, String)> {
        let (fars, chain, lost) = self.start_sinks(sources, destinations)?;
        let into = fars.iter().filter_map(|far| far.destination().cloned()).collect();
        let role = Role::Source { paths: paths(sources), options: self.options.clone(), to: chain, into };
        let mut from = Far::start(&self.shell, sources[0].host.as_deref(), None, &self.request(random_key()?, role))?;
        let mut outcome = finish(&mut from, &self.progress)?;
        outcome.failures.extend(lost);
        let names: Vec<&str> = fars.iter().map(Far::name).collect();
        Ok((outcome, format!("{} to {}", from.name(), names.join(" to "))))
    }

    /// Starts the far sides that write. If several are requested, each of them that does not start is reported as lost.
    fn start_sinks(&self, sources: &[Operand], destinations: &[Operand]) -> Result<(Vec<Far>, Vec<Peer>, Vec<Error>)> {
        let contents = self.is_contents(sources);
        let start = |destination: &Operand| {
            let sources = (sources.len(), contents);
            let role = Role::Sink { path: destination.path.clone(), sources, options: self.options.clone() };
            let key = random_key()?;
            Ok((Far::start(&self.shell, destination.host.as_deref(), None, &self.request(key.clone(), role))?, key))
        };
        let started: Vec<Result<(Far, Vec<u8>)>> = destinations.iter().map(start).collect();
        if sources.iter().all(|source| source.host.is_none()) {
            // Meanwhile the far sides start. The connection reports an error.
            _ = self.links.prepare();
        }
        let (mut fars, mut chain, mut lost) = (Vec::new(), Vec::new(), Vec::new());
        for (number, (started, destination)) in started.into_iter().zip(destinations).enumerate() {
            match started.and_then(|(mut far, key)| Ok((far.peer(key)?, far))) {
                Ok((peer, far)) => {
                    let path = String::from_utf8_lossy(&destination.path);
                    let name = match &destination.host {
                        // A path without a host is on this one.
                        None => String::new(),
                        Some(host) if destinations.len() == 1 => host.clone(),
                        Some(_) if destinations[..number].contains(destination) => {
                            format!("{}:{path} (operand {})", far.name(), number + 1)
                        }
                        Some(_) => format!("{}:{path}", far.name()),
                    };
                    chain.push(Peer { name, ..peer });
                    fars.push(far);
                }
                Err(error) => lost.push(error),
            }
        }
        if chain.is_empty() { Err(lost.remove(0)) } else { Ok((fars, chain, lost)) }
    }

    /// Adds the failures that the far side, which sends, reports at its end.
    fn with_failures(&self, mut far: Far, mut outcome: Outcome) -> Result<Outcome> {
        let theirs = finish(&mut far, &Progress::default())?;
        // The far side also reports this side's failures, which are recorded here already.
        let known: Vec<String> =
            outcome.failures.iter().map(|error| error.clone().on(far.name()).to_string()).collect();
        outcome.failures.extend(theirs.failures.into_iter().filter(|error| !known.contains(&error.to_string())));
        Ok(outcome)
    }

    /// Whether the entries of a source are copied instead of the source itself.
    fn is_contents(&self, sources: &[Operand]) -> bool {
        sources.iter().any(|source| self.options.is_contents(&source.path))
    }

    fn request(&self, key: Vec<u8>, role: Role) -> Request {
        Request { key, role, link: LinkRequest::new(&self.links, self.command.port) }
    }

    fn connect(&self, peer: &Peer, purpose: Purpose, transport: &mut String) -> Result<Link> {
        let link = connect(peer, purpose, self.options.patience(self.links.timeout), &self.links)?;
        *transport = link.stats()?.to_string();
        Ok(link)
    }
}

/// Waits until a far side exits.
fn finish(far: &mut Far, progress: &Progress) -> Result<Outcome> {
    loop {
        match far.reply()? {
            Reply::Finished { totals, failures, .. } => {
                let failures = failures.into_iter().map(|failure| Error::from(failure).on(far.name())).collect();
                return Ok(Outcome { totals, carried: totals.bytes, failures });
            }
            Reply::Progress(listed, done, is_listed) => progress.set(listed, done, is_listed),
            _ => {}
        }
    }
}

/// Whether a destination is the standard output or the standard error of this process.
fn is_own_stream(destination: &Operand) -> bool {
    destination.host.is_none() && own_stream(Path::new(&destination.local_path())).is_some()
}

fn paths(sources: &[Operand]) -> Vec<Vec<u8>> {
    sources.iter().map(|source| if source.path.is_empty() { b".".to_vec() } else { source.path.clone() }).collect()
}

fn rate(text: &str) -> std::result::Result<u64, String> {
    let (digits, factor) = match text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic()) {
        digits if digits.len() == text.len() => (digits, 1.0),
        digits => match &text[digits.len()..] {
            "K" | "k" => (digits, 1e3),
            "M" => (digits, 1e6),
            "G" => (digits, 1e9),
            _ => return Err("expected a number with K, M or G".to_owned()),
        },
    };
    let number: f64 = digits.parse().map_err(|_| "expected a number with K, M or G")?;
    let rate = number * factor;
    if rate == 0.0 || (1.0..1e18).contains(&rate) { Ok(rate as u64) } else { Err("out of range".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_decimal_units() {
        assert_eq!(rate("10"), Ok(10));
        assert_eq!(rate("1.5M"), Ok(1_500_000));
        assert_eq!(rate("2G"), Ok(2_000_000_000));
        assert!(rate("M").is_err() && rate("1X").is_err() && rate("-1").is_err() && rate("0.5").is_err());
    }

    #[test]
    fn command_line_is_consistent() {
        use clap::CommandFactory;
        CopyCommand::command().debug_assert();
        super::super::SendCommand::command().debug_assert();
        super::super::ReceiveCommand::command().debug_assert();
    }
}
