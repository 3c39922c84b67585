//! Operands of `rdcp`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// A path, on this host or another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operand {
    /// `[user@]host`; `None` means this host.
    pub host: Option<String>,
    /// The path on that host.
    pub path: Vec<u8>,
}

impl Operand {
    /// Parses `path` or `[user@]host:path`. If a slash comes before the colon, the path is local. IPv6 addresses
    /// require brackets.
    pub fn parse(text: &OsStr) -> Operand {
        let bytes = text.as_bytes();
        let local = || Operand { host: None, path: bytes.to_vec() };
        let colon = match bytes.iter().position(|&byte| byte == b'[') {
            Some(open) if open == 0 || bytes[open - 1] == b'@' => {
                let close = bytes.iter().position(|&byte| byte == b']');
                close.map(|close| close + 1).filter(|at| bytes.get(*at) == Some(&b':'))
            }
            _ => bytes.iter().position(|&byte| byte == b':'),
        };
        let slash = bytes.iter().position(|&byte| byte == b'/');
        match colon {
            Some(colon) if colon != 0 && slash.is_none_or(|slash| slash > colon) => {
                match std::str::from_utf8(&bytes[..colon]) {
                    Ok(host) => {
                        let host = host.replace(['[', ']'], "");
                        Operand { host: Some(host), path: at_home(&bytes[colon + 1..]).to_vec() }
                    }
                    Err(_) => local(),
                }
            }
            _ => local(),
        }
    }

    /// The name `~USER` with which a path on another host begins. Only a shell there could resolve it.
    pub fn other_home(&self) -> Option<&[u8]> {
        self.host.as_ref()?;
        self.path.split(|&byte| byte == b'/').next().filter(|first| first.starts_with(b"~"))
    }

    /// Returns the path for this host's system calls.
    pub fn local_path(&self) -> OsString {
        OsStr::from_bytes(&self.path).to_owned()
    }
}

/// Removes `~/`: ssh starts the far side in the home directory.
fn at_home(path: &[u8]) -> &[u8] {
    match path.strip_prefix(b"~") {
        Some(b"" | b"/") => b".",
        Some([b'/', rest @ ..]) if !rest.starts_with(b"/") => rest,
        _ => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_paths_are_distinguished_as_by_scp() {
        let parse = |text: &str| {
            let operand = Operand::parse(OsStr::new(text));
            (operand.host, String::from_utf8(operand.path).unwrap())
        };
        let remote = |host: &str, path: &str| (Some(host.to_owned()), path.to_owned());
        assert_eq!(parse("host:path"), remote("host", "path"));
        assert_eq!(parse("user@host:/a:b"), remote("user@host", "/a:b"));
        assert_eq!(parse("host:"), remote("host", ""));
        assert_eq!(parse("[fe80::1]:/x"), remote("fe80::1", "/x"));
        assert_eq!(parse("u@[::1]:x"), remote("u@::1", "x"));
        assert_eq!(
            (parse("h:~/x"), parse("h:~"), parse("h:~/")),
            (remote("h", "x"), remote("h", "."), remote("h", "."))
        );
        assert_eq!(Operand::parse(OsStr::new("h:~u/x")).other_home(), Some(&b"~u"[..]));
        assert_eq!(
            (Operand::parse(OsStr::new("h:x~")).other_home(), Operand::parse(OsStr::new("~u")).other_home()),
            (None, None)
        );
        for local in ["path", "./a:b", "/a:b", ":x", "a/b:c"] {
            assert_eq!(parse(local), (None, local.to_owned()));
        }
    }
}
