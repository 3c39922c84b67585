//! Command lines: options that several programs share, and error reporting.

mod copy;
mod generate;
mod key;
mod operand;
mod patterns;
mod pipe;
mod stream;

pub use copy::CopyCommand;
pub use generate::Page;
pub use key::KeyArgument;
pub use operand::Operand;
pub use pipe::PipeCommand;
pub use stream::{ReceiveCommand, SendCommand};

use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser};
use trespass::Transport;

use crate::error::{Error, Kind, Result, reason};
use crate::link::{LONGEST_TIMEOUT, Options};
use crate::show::{has_lost_messages, print, print_error, print_record};
use crate::standard::refuse_closed;

/// Options of connections.
#[derive(Args, Clone, Debug)]
pub struct LinkArguments {
    /// Print the manual page or a shell's completions; excludes other options
    #[arg(long, value_enum, value_name = "PAGE")]
    generate: Option<Page>,
    /// Use RDMA only; fail if it is unavailable
    #[arg(long, conflicts_with = "tcp")]
    pub rdma: bool,
    /// Use TCP only
    #[arg(long)]
    pub tcp: bool,
    /// RDMA device [default: the device with a route to the peer]
    #[arg(long, value_name = "NAME")]
    pub device: Option<String>,
    /// Encrypt the data also over RDMA [default: only over TCP]
    #[arg(long, overrides_with = "no_encrypt")]
    pub encrypt: bool,
    /// Do not encrypt the data over TCP; names and sizes are always encrypted
    #[arg(long)]
    pub no_encrypt: bool,
    /// Seconds of silence after which a peer is considered lost
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=LONGEST_TIMEOUT))]
    pub timeout: u64,
    /// Inject a fault into block N, for tests: flip:N, drop:N or swap:N
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "FAULT", hide = true)]
    pub fault: Option<crate::link::Fault>,
    /// Print the bandwidth at the end; -vv also prints connection details
    #[arg(short, long, action = ArgAction::Count)]
    pub verbose: u8,
}

impl LinkArguments {
    /// Converts the arguments to options of connections.
    pub fn options(&self) -> Options {
        let transport = match (self.rdma, self.tcp) {
            (true, _) => Transport::Rdma,
            (_, true) => Transport::Tcp,
            _ => Transport::Any,
        };
        let encrypt = match (self.encrypt, self.no_encrypt) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        };
        let timeout = Duration::from_secs(self.timeout);
        Options {
            transport,
            device: self.device.clone(),
            encrypt,
            timeout,
            #[cfg(debug_assertions)]
            fault: self.fault,
            ..Options::default()
        }
    }
}

/// Prints log records to the standard error.
struct Log {
    program: &'static str,
}

impl log::Log for Log {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let level = record.level().to_string().to_lowercase();
            print_record(&format!("{}: {level}: {}", self.program, record.args()));
        }
    }

    fn flush(&self) {}
}

/// Parses a command line, runs it, and reports an error with its exit status. `--help` and `--version` exit with 0, a
/// wrong command line with 1.
pub fn main<C: Parser + CommandFactory + FromArgMatches>(
    program: &'static str,
    verbosity: impl Fn(&C) -> u8,
    status: impl Fn(&Error) -> u8,
    run: impl FnOnce(C) -> Result<u8>,
) -> ExitCode {
    let report = |error: &Error| {
        print_error(&format!("{program}: {error}"));
        ExitCode::from(status(error))
    };
    if let Err(error) = refuse_closed().and_then(|()| catch_size_limit()) {
        return report(&error);
    }
    let printed = |printed: Result<()>| printed.map_or_else(|error| report(&error), |()| ExitCode::SUCCESS);
    if let Some(page) = generate::printed::<C>(program) {
        return printed(page);
    }
    let command = match C::try_parse() {
        Ok(command) => command,
        Err(error) if error.use_stderr() => {
            // If this fails, the status reports the error.
            _ = error.print();
            return ExitCode::from(1);
        }
        Err(help) => return printed(print_help(&help)),
    };
    static LOG: std::sync::OnceLock<Log> = std::sync::OnceLock::new();
    let level = match verbosity(&command) {
        0 => log::LevelFilter::Error,
        1 => log::LevelFilter::Warn,
        _ => log::LevelFilter::Info,
    };
    if log::set_logger(LOG.get_or_init(|| Log { program })).is_ok() {
        log::set_max_level(level);
    }
    match run(command) {
        // As with cp, output that is lost is a failure.
        Ok(0) if has_lost_messages() => ExitCode::from(status(&Error::new(Kind::File, "messages are lost"))),
        Ok(status) => ExitCode::from(status),
        Err(error) => report(&error),
    }
}

/// Catches the signal of the file size limit, so that the write fails with `EFBIG` and the process does not end. The
/// signal is not ignored, because commands that this process starts would ignore it too.
fn catch_size_limit() -> Result<()> {
    let caught = signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default());
    caught.map(drop).map_err(|error| Error::new(Kind::Usage, format!("cannot catch SIGXFSZ: {}", reason(&error))))
}

/// Prints the text of `--help` or `--version`, with colours on a terminal.
fn print_help(help: &clap::Error) -> Result<()> {
    let text = help.render();
    let is_terminal = std::io::stdout().is_terminal();
    print(&if is_terminal { text.ansi().to_string() } else { text.to_string() })
}
