//! The command line: parses the arguments into a [`Job`].

mod build;
mod command;
mod given_options;
#[cfg(feature = "manual")]
mod manual;
mod mesh;
#[cfg(not(feature = "manual"))]
mod no_manual;
mod options;
mod perftest;
mod preset;

use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, CommandFactory, FromArgMatches};

use self::build::Verb;
use self::command::{Measured, Program, TestWord, What, Word, with_all_options};
use self::given_options::{without_effect, without_effect_in};
pub use self::manual::{Shell, completions, man};
pub use self::mesh::{Hosts, Mesh, Rail};
#[cfg(not(feature = "manual"))]
use self::no_manual as manual;
pub use self::options::Output;
use self::options::{Local, Remote, Server, Test};
use crate::control::{ControlOptions, Family, LEAST_TIMEOUT, PORT};
use crate::features::Feature;
use crate::plan::{Contradiction, Given, Plan, SideConfig, time};

/// What the program is asked to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Run a test.
    Measure(Box<Measurement>),
    /// Test every pair of many hosts.
    Mesh(Box<Mesh>),
    /// Serve clients.
    Serve(Box<Service>),
    /// Test all operations and transports of a device.
    SelfTest(SideConfig),
    /// List the devices.
    Devices,
    /// Plot several runs.
    Plot {
        /// Files from `--json`, or output of perftest.
        runs: Vec<PathBuf>,
        /// The output file.
        output: PathBuf,
    },
    /// Make a page of several runs.
    Report {
        /// Files from `--json`, or output of perftest.
        runs: Vec<PathBuf>,
        /// The output file.
        output: PathBuf,
    },
    /// Print a shell completion script.
    Completions(Shell),
    /// Print the manual page of the command with these words.
    Man(Vec<String>),
}

/// A test, with everything that the client needs in order to run it.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    /// The test.
    pub plan: Plan,
    /// The options that the user gave.
    pub given: Given,
    /// Name or address of the server, or `None` with `--loopback`.
    pub server: Option<String>,
    /// Options of the control channel.
    pub contact: ControlOptions,
    /// How long to keep trying to reach the server; with `None`, the client tries once.
    pub wait: Option<Duration>,
    /// Output options.
    pub output: Output,
    /// Warnings about options that have no effect.
    pub warnings: Vec<String>,
    /// Notes on values that were set automatically.
    pub notes: Vec<String>,
}

/// What the program needs in order to run as a server.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// The options for device and memory that the server's user gave.
    pub config: SideConfig,
    /// The test that the server's user gave, which is only compared with the client's test.
    pub test: Option<(Plan, Given)>,
    /// Options of the control channel.
    pub contact: ControlOptions,
    /// Whether the server exits after one test.
    pub is_one_off: bool,
    /// Warnings about options that have no effect.
    pub warnings: Vec<String>,
}

/// Parses a command line, whose first word is the name of the program.
///
/// # Errors
///
/// Returns the text of the help or of the version, which `exit` prints with status 0, or an error about invalid
/// arguments, which `exit` prints with status 2.
pub fn parse<A: Into<OsString> + Clone>(arguments: impl IntoIterator<Item = A>) -> Result<Job, clap::Error> {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let is_long = arguments.iter().any(|argument| argument == "--help" || argument == "help");
    let mut command = Program::command();
    command.build();
    let mut matches = command.try_get_matches_from_mut(arguments.clone());
    if is_long && matches.as_ref().is_err_and(|error| error.kind() == ErrorKind::DisplayHelp) {
        matches = with_all_options(Program::command()).try_get_matches_from(arguments.clone());
    }
    let matches = matches.map_err(|error| perftest::with_tip(with_test(error), &command))?;
    let given = given_options::given(&command, &matches);
    let program = Program::from_arg_matches(&matches)?;
    let job = match program.word {
        None => serve(&program.server),
        Some(Word::Server(server)) => serve(&server),
        Some(Word::Test(word)) => verb(word).and_then(|(verb, measured)| test(verb, measured, given)),
        Some(Word::Mesh(mesh)) => {
            let arguments = arguments.into_iter().skip(1).collect();
            mesh::mesh(mesh.word, mesh.options, given, arguments).map(|mesh| Job::Mesh(Box::new(mesh)))
        }
        Some(Word::SelfTest(local)) => self_test(&local),
        Some(Word::Devices) => Ok(Job::Devices),
        Some(Word::Plot(plot)) => picture(&plot.output).map(|()| Job::Plot { runs: plot.runs, output: plot.output }),
        Some(Word::Report(report)) => Ok(Job::Report { runs: report.runs, output: report.output }),
        Some(Word::Completions { shell }) => built(Feature::Manual, "`completions`").map(|()| Job::Completions(shell)),
        Some(Word::Man { command }) => built(Feature::Manual, "`man`").and_then(|()| manual_of(command)),
    };
    job.map_err(|contradiction| clap::Error::raw(ErrorKind::ArgumentConflict, format!("{contradiction}\n")))
}

/// Rejects a command or an option whose feature this build lacks.
fn built(feature: Feature, what: &str) -> Result<(), Contradiction> {
    feature.check(what).map_err(Contradiction)
}

fn manual_of(words: Vec<String>) -> Result<Job, Contradiction> {
    match manual::command(&words) {
        Some(_) => Ok(Job::Man(words)),
        None => Err(Contradiction(format!("no command {:?}: stride-perf --help lists the commands", words.join(" ")))),
    }
}

/// Adds an explanation to the error if the user gave only a server, as with perftest's programs, but named no test.
fn with_test(mut error: clap::Error) -> clap::Error {
    if let (ErrorKind::InvalidSubcommand, None, Some(ContextValue::String(word))) =
        (error.kind(), error.get(ContextKind::SuggestedSubcommand), error.get(ContextKind::InvalidSubcommand).cloned())
    {
        let tip = match word.as_str() {
            "bw" | "lat" => format!("the operation comes first: stride-perf write {word}"),
            _ => format!("the test comes before the server: stride-perf write bw {word}"),
        };
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn self_test(local: &Local) -> Result<Job, Contradiction> {
    let config = local.config().map_err(Contradiction)?;
    if config.count() > 1 {
        let lengths = [
            ("device", local.device.as_ref().map_or(0, Vec::len)),
            ("ib-port", local.ib_port.as_ref().map_or(0, Vec::len)),
            ("gid-index", local.gid_index.as_ref().map_or(0, Vec::len)),
        ];
        let several = lengths.into_iter().filter(|(_, length)| *length > 1);
        let mut ways: Vec<_> = several.map(|(option, _)| format!("give one --{option}")).collect();
        ways.extend(local.dualport.then(|| "leave out -O".to_owned()));
        return Err(Contradiction(format!("self-test supports one port; {}", ways.join(" and "))));
    }
    Ok(Job::SelfTest(config))
}

fn serve(server: &Server) -> Result<Job, Contradiction> {
    Ok(Job::Serve(Box::new(Service {
        config: server.local.config().map_err(Contradiction)?,
        test: None,
        contact: contact(&server.contact)?,
        is_one_off: server.contact.one_off,
        warnings: Vec::new(),
    })))
}

/// Returns the operation of a test, and its arguments.
fn verb(word: TestWord) -> Result<(Verb, Measured), Contradiction> {
    Ok(match word {
        TestWord::Write(measured) => (Verb::Write, measured),
        TestWord::Read(measured) => (Verb::Read, measured),
        TestWord::Send(measured) => (Verb::Send, measured),
        TestWord::Atomic(measured) => (Verb::Atomic, measured),
        TestWord::Msg(measured) => {
            built(Feature::Msg, "`msg`")?;
            (Verb::Message, measured)
        }
    })
}

/// Returns whether a test measures a latency, and its options.
fn split(measure: What) -> (bool, Box<Test>) {
    match measure {
        What::Bw(test) => (false, test),
        What::Lat(test) => (true, test),
    }
}

fn test(verb: Verb, measured: Measured, given: Given) -> Result<Job, Contradiction> {
    let (is_latency, test) = split(measured.measure);
    let contact = contact(&test.contact)?;
    let own = test.local.config().map_err(Contradiction)?;
    if test.connect.loopback && test.server.is_some() {
        return Err(Contradiction("--loopback runs both sides in this process; leave out the server".to_owned()));
    }
    check_output(is_latency, &test.output)?;
    if test.server.is_none() && !test.connect.loopback {
        let client = SideConfig::default().spread(own.count());
        let (plan, _) = build::plan(verb, is_latency, &test, &given, client, own.clone())?;
        let options = client_only();
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let without_effect = without_effect(&given, &options, "a server; name a server to run a client");
        let is_one_off = test.contact.one_off;
        let service = Service { config: own, test: Some((plan, given)), contact, is_one_off, warnings: without_effect };
        return Ok(Job::Serve(Box::new(service)));
    }
    test.server.as_deref().map_or(Ok(()), |server| reachable(server, contact.port))?;
    let mut server = test.remote.config(&test.local).map_err(Contradiction)?;
    // If the peer has several ports, a value for one port of this side applies to all of its ports.
    let ports = own.count().max(server.count());
    let own = own.spread(ports);
    server = server.spread(ports);
    let mut warnings = without_effect(&given, &["--one-off"], "a client");
    if test.connect.loopback {
        warnings = without_effect(&given, &["--one-off", "--wait-server", "--port", "--ipv4", "--ipv6"], "--loopback");
        if server.gpu_registration.is_some() && server.memory.is_none() {
            return Err(Contradiction(
                "--remote-gpu-registration requires --remote-use-cuda; give --remote-use-cuda as well".to_owned(),
            ));
        }
        // With `--loopback`, the options of this side apply to the server as well.
        server = server.or(&SideConfig { memory: None, cpus: None, gpu_registration: None, ..own.clone() });
    }
    let (plan, note) = build::plan(verb, is_latency, &test, &given, own, server)?;
    warnings.extend(without_effect_in(&plan, &given));
    Ok(Job::Measure(Box::new(Measurement {
        plan,
        given,
        server: test.server,
        contact,
        wait: test.connect.wait_server,
        output: test.output,
        warnings,
        notes: note.into_iter().collect(),
    })))
}

fn is_ipv6(text: &str) -> bool {
    text.parse::<std::net::Ipv6Addr>().is_ok()
}

/// Rejects an invalid server name, such as a name that contains a port.
fn reachable(server: &str, port: u16) -> Result<(), Contradiction> {
    if port == 0 {
        return Err(Contradiction(
            "--port 0 is valid for servers only; give the server's port, or leave it out".to_owned(),
        ));
    }
    if let Some((name, port)) = server.rsplit_once(':')
        && (!name.contains(':') || name.starts_with('[') && name.ends_with(']') || is_ipv6(name) && !is_ipv6(server))
        && port.parse::<u16>().is_ok()
    {
        let name = name.trim_start_matches('[').trim_end_matches(']');
        return Err(Contradiction(format!("{server:?} includes a port; give the server as {name}, and -p {port}")));
    }
    match server.parse::<std::net::Ipv6Addr>() {
        Ok(address) if address.is_unicast_link_local() => Err(Contradiction(format!(
            "{server} is a link-local address; add the local interface, such as {server}%eth0"
        ))),
        _ => Ok(()),
    }
}

fn contact(options: &options::ControlArgs) -> Result<ControlOptions, Contradiction> {
    let family = match (options.ipv4, options.ipv6) {
        (true, true) => {
            return Err(Contradiction("-4 and -6 exclude each other; give one of them, or none for both".to_owned()));
        }
        (true, false) => Some(Family::V4),
        (false, true) => Some(Family::V6),
        (false, false) => None,
    };
    let timeout = options.timeout.unwrap_or(Duration::from_secs(30));
    if timeout < LEAST_TIMEOUT || timeout > Duration::from_secs(24 * 3600) {
        return Err(Contradiction(format!(
            "--timeout is {}; it can be {} to a day",
            time::show(timeout),
            time::show(LEAST_TIMEOUT)
        )));
    }
    Ok(ControlOptions { port: options.port.unwrap_or(PORT), family, timeout })
}

/// Returns the options that have an effect on the client only, so that a server ignores them.
fn client_only() -> Vec<String> {
    let command = Remote::augment_args(Output::augment_args(clap::Command::new("client")));
    let declared = command.get_arguments().filter_map(|option| option.get_long());
    declared.chain(["counters", "like-perftest", "wait-server"]).map(|long| format!("--{long}")).collect()
}

fn check_output(is_latency: bool, output: &Output) -> Result<(), Contradiction> {
    if output.threshold.is_some() && output.compare.is_none() {
        return Err(Contradiction("--threshold requires --compare; give --compare as well".to_owned()));
    }
    if output.min_gbps.is_some() && is_latency {
        return Err(Contradiction("--min-gbps applies to `bw` only; give --max-p99 for a latency".to_owned()));
    }
    if output.min_mpps.is_some() && is_latency {
        return Err(Contradiction("--min-mpps applies to `bw` only; give --max-p99 for a latency".to_owned()));
    }
    if output.max_p99.is_some() && !is_latency {
        return Err(Contradiction(
            "--max-p99 applies to `lat` only; give --min-gbps or --min-mpps for a bandwidth".to_owned(),
        ));
    }
    let files = [("--json", &output.json), ("--csv", &output.csv), ("--plot", &output.plot)];
    let files: Vec<_> = files.into_iter().filter_map(|(option, file)| Some((option, file.as_deref()?))).collect();
    for (at, (option, file)) in files.iter().enumerate() {
        if *file == Path::new("-") {
            return Err(Contradiction(format!(
                "{option} does not support -; give a file name or /dev/stdout, or use --json-stream for one line per event"
            )));
        }
        if let Some((other, _)) = files[..at].iter().find(|(_, other)| plain(other).eq(plain(file))) {
            return Err(Contradiction(format!("{other} and {option} name the same file, {file:?}; give each its own")));
        }
    }
    output.plot.as_deref().map_or(Ok(()), picture)
}

/// Returns the components of a path, without any `./`.
fn plain(file: &Path) -> impl Iterator<Item = Component<'_>> {
    file.components().filter(|part| *part != Component::CurDir)
}

/// Checks that the file name of a plot ends in a supported format, and that this build has plots.
fn picture(file: &Path) -> Result<(), Contradiction> {
    let ending = file.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    match ending.as_deref() {
        Some("svg" | "png") => built(Feature::Plot, "plots"),
        _ => Err(Contradiction(format!(
            "unsupported plot format {:?}; name a file that ends in .svg or .png",
            file.display()
        ))),
    }
}

#[cfg(test)]
mod tests;
