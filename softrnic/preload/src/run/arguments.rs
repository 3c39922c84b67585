//! The command line.

use std::ffi::OsString;

use crate::{MISUSED, Refusal};

/// The text of `--help`.
pub(crate) const HELP: &str = "\
Run an RDMA program with softrnic, a software NIC for any Linux machine

Usage: softrnic-run [OPTIONS] COMMAND [ARGUMENT]...
       softrnic-run --control PID COMMAND...

The program finds the device soft0 after the system's devices. softrnic-run
installs nothing and does not change the program.

Options:
      --libraries  Replace libibverbs.so.1 and librdmacm.so.1 [default: preload]
                   For machines without them
      --no-devices Add no devices, for a library with other uses: see lens
      --control PID  Send a command to a running process: a fault, such as
                   `port down`, or `counters`; needs SOFTRNIC_CONTROL in both
  -h, --help       Print help
  -V, --version    Print version

Environment:
  SOFTRNIC_DEVICES       Names separated by commas, or a number
                         [default: soft0,softiw0], softroce0: RoCEv2
  SOFTRNIC_PROFILE       `connectx`: the limits of that NIC [default: none]
  SOFTRNIC_CONTROL       Folder of the control sockets [default: none]
  SOFTRNIC_PEERS         0 disables connections to other processes [default: 1]
  RDMA_MUMMY_RDMACM      librdmacm of `system` or `softrnic`
                         [default: system, if it has a device]
  SOFTRNIC_PRELOAD       Path of the library; with --libraries, of their folder
                         [default: softrnic-run's own]
  UCX_UD_ETH_DGID_CHECK  Required as n for UCX datagrams [default: n]

Examples:
  softrnic-run ibv_devinfo
  softrnic-run ibv_rc_pingpong -g 0 &
  softrnic-run ibv_rc_pingpong -g 0 127.0.0.1
  softrnic-run --control 4711 port down on soft0
";

/// How the loader finds softrnic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// The loader finds softrnic through `LD_PRELOAD`.
    Preload,
    /// The loader finds softrnic through `LD_LIBRARY_PATH`, in place of the system's libraries.
    Libraries,
}

/// What the command line requests.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Help,
    Version,
    /// Send a command to the process with this ID.
    Control {
        process: u32,
        command: String,
    },
    /// `devices`: whether the program gets softrnic's.
    Run {
        method: Method,
        devices: bool,
        program: OsString,
        arguments: Vec<OsString>,
    },
}

/// Parses the words after the name of this command. All words after the name of the program are its arguments.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Request, Refusal> {
    let misused = |text: String| Refusal::new(MISUSED, format!("{text}; see `softrnic-run --help`"));
    let mut method = Method::Preload;
    let mut words = words.into_iter();
    let (mut options, mut devices) = (true, true);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-h" | "--help") if options => return Ok(Request::Help),
            Some("-V" | "--version") if options => return Ok(Request::Version),
            Some("--libraries") if options => method = Method::Libraries,
            Some("--no-devices") if options => devices = false,
            Some("--control") if options => {
                let process = words.next().and_then(|word| word.to_str()?.parse().ok());
                let process = process.ok_or_else(|| misused("--control needs the ID of a process".to_owned()))?;
                let command: Vec<_> = words.map(|word| word.to_string_lossy().into_owned()).collect();
                return Ok(Request::Control { process, command: command.join(" ") });
            }
            Some("--") if options => options = false,
            Some(option) if options && option.starts_with('-') => {
                return Err(misused(format!("unknown option {option}")));
            }
            _ => return Ok(Request::Run { method, devices, program: word, arguments: words.collect() }),
        }
    }
    Err(misused("no command given".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, Refusal> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn options_after_the_program_belong_to_it() {
        let run = |method, devices, words: &[&str]| {
            let mut words = words.iter().map(OsString::from);
            Ok(Request::Run { method, devices, program: words.next().unwrap(), arguments: words.collect() })
        };
        assert_eq!(parsed("ibv_devinfo -v --help"), run(Method::Preload, true, &["ibv_devinfo", "-v", "--help"]));
        assert_eq!(parsed("--libraries rping -s"), run(Method::Libraries, true, &["rping", "-s"]));
        assert_eq!(parsed("--no-devices rping -s"), run(Method::Preload, false, &["rping", "-s"]));
        assert_eq!(parsed("-- --odd -h"), run(Method::Preload, true, &["--odd", "-h"]));
    }

    #[test]
    fn usage_error_suggests_help() {
        for line in ["", "--libraries", "--", "--preload x", "--control", "--control x port up"] {
            let refusal = parsed(line).unwrap_err();
            assert_eq!(refusal.code, MISUSED, "{line}");
            assert!(refusal.text.contains("--help"), "{}", refusal.text);
        }
        assert_eq!(parsed("--help x"), Ok(Request::Help));
        let control = Request::Control { process: 7, command: "port down".to_owned() };
        assert_eq!(parsed("--control 7 port down"), Ok(control));
        assert_eq!(parsed("-V"), Ok(Request::Version));
    }

    #[test]
    fn help_fits_80_columns() {
        assert!(HELP.lines().all(|line| line.len() <= 80), "{HELP}");
    }
}
