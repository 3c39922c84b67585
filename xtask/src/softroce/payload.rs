//! The shell script that is sent to the guest: the caller's environment, folder and command, byte for byte.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use crate::repo;

/// The command to run in the guest, with its environment and folder.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The program and its arguments; at least one word.
    pub(crate) words: Vec<OsString>,
    /// The whole environment of the program.
    pub(crate) environment: Vec<(OsString, OsString)>,
    /// The folder in which the program starts.
    pub(crate) folder: PathBuf,
}

impl Request {
    /// A request with the caller's environment and folder.
    pub(crate) fn new(words: Vec<OsString>) -> anyhow::Result<Self> {
        let mut environment: Vec<_> =
            std::env::vars_os().filter(|(name, _)| is_passed_on(&name.to_string_lossy())).collect();
        environment.push(("SIDEWAY_TEST_DEVICE".into(), DEVICE.into()));
        environment.push((CHANGE_NETWORK.into(), "1".into()));
        Ok(Self { words, environment, folder: std::env::current_dir()? })
    }

    /// The script that becomes the command: it sets the environment, changes to the folder and execs the program.
    pub(crate) fn script(&self) -> Vec<u8> {
        let mut script = Vec::new();
        for (name, value) in &self.environment {
            script.extend_from_slice(b"export ");
            script.extend_from_slice(name.as_bytes());
            script.push(b'=');
            quote(value, &mut script);
            script.push(b'\n');
        }
        script.extend_from_slice(b"cd ");
        quote(self.folder.as_os_str(), &mut script);
        script.extend_from_slice(b" || exit 125\nexec");
        for word in &self.words {
            script.push(b' ');
            quote(word, &mut script);
        }
        script.push(b'\n');
        script
    }
}

/// The RDMA device of the guest.
pub(crate) const DEVICE: &str = "rxe_0";

/// Allows tests to change the guest's interfaces, routes and neighbours.
const CHANGE_NETWORK: &str = "SIDEWAY_CHANGE_NETWORK";

/// Quotes a word for a POSIX shell. Inside single quotes every byte except the quote is literal.
fn quote(word: &OsStr, script: &mut Vec<u8>) {
    script.push(b'\'');
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => script.extend_from_slice(b"'\\''"),
            other => script.push(other),
        }
    }
    script.push(b'\'');
}

/// Whether to pass on a variable of the caller's environment.
///
/// Variables are left out if they name a session, a display or an agent of the host, if the shell sets them itself, or
/// if `cargo run` sets them for xtask (a test would use them).
fn is_passed_on(name: &str) -> bool {
    let is_identifier = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_');
    let of_session = ["SSH_", "DBUS_", "XDG_", "WAYLAND_", "GPG_"].iter().any(|prefix| name.starts_with(prefix));
    let of_shell =
        ["_", "SHLVL", "PWD", "OLDPWD", "DISPLAY", "XAUTHORITY", "SIDEWAY_TEST_DEVICE", CHANGE_NETWORK].contains(&name);
    // Some shells exit if a script sets one of these variables.
    let of_shell =
        of_shell || ["UID", "EUID", "GID", "EGID", "PPID", "SHELLOPTS", "BASHOPTS", "OPTIND", "IFS"].contains(&name);
    is_identifier && !of_session && !of_shell && !repo::set_by_cargo_run(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;
    use std::process::Command;

    use super::*;

    fn run(words: &[&OsStr], environment: &[(&str, &OsStr)]) -> Vec<u8> {
        let request = Request {
            words: words.iter().map(|&word| word.to_owned()).collect(),
            environment: environment.iter().map(|&(name, value)| (name.into(), value.to_owned())).collect(),
            folder: "/".into(),
        };
        let script = OsString::from_vec(request.script());
        let output = Command::new("/bin/sh").arg("-c").arg(script).env_clear().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    #[test]
    fn arguments_arrive_byte_for_byte() {
        let all_bytes: Vec<u8> = (1..=255).collect();
        let words = ["it's", "", " a  b ", "$HOME `id` \"q\" \\", "two\nlines\n", "zażółć 你好", "--", "*", "-n"];
        let mut expected = Vec::new();
        let mut all: Vec<&OsStr> = vec![OsStr::new("/usr/bin/printf"), OsStr::new("%s\\0")];
        all.extend(words.iter().map(OsStr::new));
        all.push(OsStr::from_bytes(&all_bytes));
        for word in &all[2..] {
            expected.extend_from_slice(word.as_bytes());
            expected.push(0);
        }
        assert_eq!(run(&all, &[]), expected);
    }

    #[test]
    fn environment_and_the_folder_arrive() {
        let value = OsStr::from_bytes(b"a 'b'\n\xff\x81$c");
        let words = ["/bin/sh", "-c", "printf '%s' \"$PWD\" \"$VALUE\""].map(OsStr::new);
        assert_eq!(run(&words, &[("VALUE", value)]), b"/a 'b'\n\xff\x81$c");
    }

    #[test]
    fn variables_of_the_host_are_left_out() {
        for name in ["PATH", "HOME", "RUST_BACKTRACE", "CI", "SIDEWAY_X", "RDMA_X", "CARGO_TARGET_DIR", "LANG"] {
            assert!(is_passed_on(name), "{name}");
        }
        for name in [
            "PWD",
            "SSH_AUTH_SOCK",
            "BASH_FUNC_x%%",
            "CARGO_PKG_NAME",
            "CARGO_MANIFEST_DIR",
            "DISPLAY",
            CHANGE_NETWORK,
            "1A",
            "",
        ] {
            assert!(!is_passed_on(name), "{name}");
        }
    }
}
