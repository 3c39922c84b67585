//! The command lines of `rdsend` and `rdrecv`.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use rustix::fs::{Mode, OFlags};

use super::{KeyArgument, LinkArguments};
use crate::error::{Error, Kind, Result, escape};
use crate::link::{Listener, Patience, address, connect, reconnect};
use crate::proto::{Peer, Purpose};
use crate::show::print_error;
use crate::standard::Standard;
use crate::stream::{self, Output};

/// How long `rdsend` tries to connect while no receiver listens.
const PATIENCE: Duration = Duration::from_secs(10);

/// Send stdin or FILE to rdrecv on another host
#[derive(Debug, Parser)]
#[command(name = "rdsend", version, max_term_width = 100)]
pub struct SendCommand {
    #[command(flatten)]
    link: LinkArguments,
    /// Host on which rdrecv runs
    #[arg(value_name = "HOST")]
    host: String,
    /// Its port
    #[arg(value_name = "PORT", value_parser = peer_port)]
    port: u16,
    /// Shared key; @FILE reads it from a file, - from the first line of stdin [default: $RDPIPE_KEY]
    #[arg(value_name = "KEY")]
    key: Option<KeyArgument>,
    /// File to send [default: stdin]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Receive data from rdsend, and write it to stdout or FILE
#[derive(Debug, Parser)]
#[command(name = "rdrecv", version, max_term_width = 100)]
pub struct ReceiveCommand {
    #[command(flatten)]
    link: LinkArguments,
    /// TCP port to listen on; 0 selects a free one and prints it
    #[arg(value_name = "PORT", value_parser = own_port)]
    port: u16,
    /// Shared key; @FILE reads it from a file, - from the first line of stdin [default: $RDPIPE_KEY]
    #[arg(value_name = "KEY")]
    key: Option<KeyArgument>,
    /// File to write; it is replaced when the data is complete [default: stdout]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The port of `rdrecv`.
fn peer_port(text: &str) -> std::result::Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| "expected the TCP port of rdrecv, from 1 to 65535: rdsend HOST PORT [KEY] [FILE]".to_owned())
}

fn own_port(text: &str) -> std::result::Result<u16, String> {
    text.parse()
        .map_err(|_| "expected a TCP port up to 65535, or 0 for a free one: rdrecv PORT [KEY] [FILE]".to_owned())
}

impl SendCommand {
    /// Returns the number of times that `-v` was given.
    pub fn verbosity(&self) -> u8 {
        self.link.verbose
    }

    /// Sends.
    ///
    /// # Errors
    ///
    /// See [`connect`] and [`stream::send`].
    pub fn run(self) -> Result<u8> {
        let key = KeyArgument::read(self.key.as_ref())?;
        let (input, name) = match &self.file {
            Some(path) => {
                let cannot = |error: rustix::io::Errno| Error::file("open", path, &error.into());
                let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(cannot)?;
                (fd, escape(path))
            }
            None => (Standard::Input.open()?.into(), Standard::Input.name().to_owned()),
        };
        refuse_directory(&input, &name)?;
        let options = self.link.options();
        // Its name is on the command line.
        let peer = Peer::unnamed(address(&self.host, self.port), &key);
        let link = connect(&peer, Purpose::Send, Patience::Coming(PATIENCE), &options)?;
        if self.link.verbose > 1 {
            print_error(&format!("rdsend: {}", link.stats()?));
        }
        let again = |until| reconnect(&peer, Purpose::Send, until, &options);
        let summary = stream::send(link, again, &input, &name)?;
        if self.link.verbose > 0 {
            print_error(&summary.bandwidth());
        }
        Ok(0)
    }
}

impl ReceiveCommand {
    /// Returns the number of times that `-v` was given.
    pub fn verbosity(&self) -> u8 {
        self.link.verbose.max(1)
    }

    /// Receives.
    ///
    /// # Errors
    ///
    /// See [`Listener`] and [`stream::receive`].
    pub fn run(self) -> Result<u8> {
        let key = KeyArgument::read(self.key.as_ref())?;
        let listener = Listener::bind(None, self.port, &self.link.options())?;
        if self.port == 0 {
            print_error(&format!("rdrecv: port {}", listener.port()));
        }
        let output = match &self.file {
            Some(path) => Output::create(path)?,
            None => Output::Fd(Standard::Output.open()?.into(), Standard::Output.name().to_owned()),
        };
        let (mut link, purpose) = listener.accept(&key, None)?;
        if purpose != Purpose::Send {
            let error = Error::protocol("the peer does not send; start rdsend there");
            link.sender.abort(&error);
            // Ignores the error: it does not matter how the peer ends.
            _ = link.wait_for_close();
            return Err(error);
        }
        if self.link.verbose > 1 {
            print_error(&format!("rdrecv: {}", link.stats()?));
        }
        let again = |until| listener.accept_for(&key, Purpose::Send, until);
        let summary = stream::receive(link, again, output)?;
        if self.link.verbose > 0 {
            print_error(&summary.bandwidth());
        }
        Ok(0)
    }
}

/// Rejects a directory as input, which could not be read later. Call this before connecting.
fn refuse_directory(input: &OwnedFd, name: &str) -> Result<()> {
    let found = rustix::fs::fstat(input).map_err(|error| Error::file("read", name.as_ref(), &error.into()))?;
    if rustix::fs::FileType::from_raw_mode(found.st_mode).is_dir() {
        return Err(Error::new(Kind::File, format!("cannot read {name}: is a directory; use rdcp -r")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_port_is_answered_with_the_usage() {
        let send = |port: &str| SendCommand::try_parse_from(["rdsend", "host", port]).map(|command| command.port);
        for port in ["0", "65536", "http"] {
            let error = send(port).unwrap_err().to_string();
            assert!(error.contains("from 1 to 65535: rdsend HOST PORT [KEY] [FILE]"), "{error}");
        }
        assert_eq!(send("65535").unwrap(), 65535);
        let receive = |port: &str| ReceiveCommand::try_parse_from(["rdrecv", port]).map(|command| command.port);
        let error = receive("65536").unwrap_err().to_string();
        assert!(error.contains("or 0 for a free one: rdrecv PORT [KEY] [FILE]"), "{error}");
        assert_eq!(receive("0").unwrap(), 0);
    }
}
