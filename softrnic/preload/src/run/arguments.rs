//! The command line.

use std::ffi::OsString;

use crate::{MISUSED, Refusal};

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Run a program that uses RDMA on softrnic: a NIC in software, on any Linux machine

Usage: softrnic-run [OPTIONS] COMMAND [ARGUMENT]...

The program finds the device soft0 beside those that the machine has. Nothing is installed, and nothing of the program is changed.

Options:
      --libraries  Take the place of libibverbs.so.1 and librdmacm.so.1 instead of standing before them: for a machine that has
                   neither, and for programs that open them by themselves
  -h, --help       Print this
  -V, --version    Print the version

Environment:
  SOFTRNIC_DEVICES   The devices: names separated by commas, or how many; soft0 where it is not set
  RDMA_MUMMY_RDMACM  Who serves connections by address: `system` or `softrnic`; where it is not set the system, if it has a device
  SOFTRNIC_PRELOAD   The library to use, or with --libraries the folder with both, in place of the ones beside this command
  UCX_UD_ETH_DGID_CHECK  Set to n unless it is set: UCX needs this for datagrams on devices other than ConnectX

Examples:
  softrnic-run ibv_devinfo
  softrnic-run ibv_rc_pingpong -g 0 &
  softrnic-run ibv_rc_pingpong -g 0 127.0.0.1
";

/// How the program comes to softrnic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By `LD_PRELOAD`.
    Preload,
    /// By `LD_LIBRARY_PATH`.
    Libraries,
}

/// What the command line asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Help,
    Version,
    Run { way: Way, program: OsString, arguments: Vec<OsString> },
}

/// Reads the words after the name of this command. What follows the program's name is the program's.
pub(crate) fn parse(words: Vec<OsString>) -> Result<Asked, Refusal> {
    let misused = |text: String| Refusal::new(MISUSED, format!("{text}\nTry `softrnic-run --help`."));
    let mut way = Way::Preload;
    let mut words = words.into_iter();
    let mut options = true;
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("-h" | "--help") if options => return Ok(Asked::Help),
            Some("-V" | "--version") if options => return Ok(Asked::Version),
            Some("--libraries") if options => way = Way::Libraries,
            Some("--") if options => options = false,
            Some(option) if options && option.starts_with('-') => {
                return Err(misused(format!("there is no option {option}")));
            }
            _ => return Ok(Asked::Run { way, program: word, arguments: words.collect() }),
        }
    }
    Err(misused("which program is to run?".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Asked, Refusal> {
        parse(line.split_whitespace().map(OsString::from).collect())
    }

    #[test]
    fn options_after_the_program_are_the_programs() {
        let run = |way, words: &[&str]| {
            let mut words = words.iter().map(OsString::from);
            Ok(Asked::Run { way, program: words.next().unwrap(), arguments: words.collect() })
        };
        assert_eq!(parsed("ibv_devinfo -v --help"), run(Way::Preload, &["ibv_devinfo", "-v", "--help"]));
        assert_eq!(parsed("--libraries rping -s"), run(Way::Libraries, &["rping", "-s"]));
        assert_eq!(parsed("-- --odd -h"), run(Way::Preload, &["--odd", "-h"]));
    }

    #[test]
    fn wrong_use_is_told_with_what_to_do() {
        for line in ["", "--libraries", "--", "--preload x"] {
            let refusal = parsed(line).unwrap_err();
            assert_eq!(refusal.code, MISUSED, "{line}");
            assert!(refusal.text.contains("--help"), "{}", refusal.text);
        }
        assert_eq!(parsed("--help x"), Ok(Asked::Help));
        assert_eq!(parsed("-V"), Ok(Asked::Version));
    }

    #[test]
    fn the_help_fits_a_wide_terminal() {
        assert!(HELP.lines().all(|line| line.len() <= 132), "{HELP}");
    }
}
