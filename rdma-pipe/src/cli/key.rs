//! Reads the key that the command line names.

use std::os::fd::AsFd;
use std::str::FromStr;

use rustix::io::Errno;

use crate::error::{Error, Kind, Result};
use crate::standard::Standard;

/// The environment variable for the key, which keeps the key out of process lists.
const VARIABLE: &str = "RDPIPE_KEY";

/// The source of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyArgument {
    /// The argument is the key.
    Given(String),
    /// The first line of a file.
    File(String),
    /// The first line of the standard input.
    Input,
}

impl FromStr for KeyArgument {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> std::result::Result<KeyArgument, Self::Err> {
        Ok(match text.strip_prefix('@') {
            Some(path) => KeyArgument::File(path.to_owned()),
            None if text == "-" => KeyArgument::Input,
            None => KeyArgument::Given(text.to_owned()),
        })
    }
}

impl KeyArgument {
    /// Returns the bytes of the key. If there is no argument, they are those of the variable `RDPIPE_KEY`.
    ///
    /// # Errors
    ///
    /// There is no key, or its file cannot be read.
    pub fn read(argument: Option<&KeyArgument>) -> Result<Vec<u8>> {
        let key = match argument {
            Some(KeyArgument::Given(key)) => key.clone().into_bytes(),
            Some(KeyArgument::File(path)) => {
                let text =
                    std::fs::read(path).map_err(|error| Error::file("read the key of", path.as_ref(), &error))?;
                text.split(|&byte| byte == b'\n').next().unwrap_or_default().to_vec()
            }
            Some(KeyArgument::Input) => first_line(Standard::Input.open()?)?,
            None => std::env::var(VARIABLE).map(String::into_bytes).unwrap_or_default(),
        };
        if key.is_empty() {
            return Err(Error::new(
                Kind::Usage,
                "no key: pass KEY, @FILE, or - for the standard input, or set RDPIPE_KEY",
            ));
        }
        Ok(key)
    }
}

/// Reads a line byte by byte, without a buffer, because the bytes after it belong to the stream.
fn first_line(input: impl AsFd) -> Result<Vec<u8>> {
    let mut key = Vec::new();
    let mut byte = [0];
    loop {
        match rustix::io::read(&input, &mut byte) {
            Ok(1) if byte != *b"\n" => key.extend(byte),
            Ok(_) => return Ok(key),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::file("read the key of", "the standard input".as_ref(), &error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_comes_from_the_argument_or_a_file() {
        assert_eq!(KeyArgument::read(Some(&"k".parse().unwrap())).unwrap(), b"k");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "secret\nmore\n").unwrap();
        let argument = format!("@{}", path.display()).parse().unwrap();
        assert_eq!(KeyArgument::read(Some(&argument)).unwrap(), b"secret");
        std::fs::write(&path, "").unwrap();
        assert_eq!(KeyArgument::read(Some(&argument)).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn first_line_of_the_input_is_the_key() {
        let mut input = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut input, b"secret\nrest").unwrap();
        std::io::Seek::rewind(&mut input).unwrap();
        assert_eq!(first_line(&input).unwrap(), b"secret");
        assert_eq!(std::io::read_to_string(input).unwrap(), "rest");
        assert_eq!("-".parse(), Ok(KeyArgument::Input));
    }
}
