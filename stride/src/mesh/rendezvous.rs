//! The place at which the ranks meet rank 0.

use std::path::PathBuf;

use super::MOST_RANKS;

/// Number of ports that are tried if they are derived from the job, because other programs may use some of them.
const CANDIDATES: u64 = 8;

/// The ports that can be derived from a job. They are below those that the system gives to outgoing connections.
const DERIVED: std::ops::Range<u64> = 20_000..30_000;

/// The place at which the ranks meet rank 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rendezvous {
    /// Rank 0 listens at the first free of these TCP ports.
    Address {
        /// The host of rank 0.
        host: String,
        /// The ports.
        ports: Vec<u16>,
    },
    /// Rank 0 writes its address to this file, which all ranks can read.
    File(PathBuf),
    /// Rank 0 publishes its address through the launcher, by the PMI protocol on this inherited descriptor.
    Pmi {
        /// The descriptor.
        descriptor: i32,
        /// Whether all ranks run on one host.
        is_local: bool,
    },
}

impl Rendezvous {
    /// Parses the value of `--rendezvous`.
    ///
    /// # Errors
    ///
    /// Returns an error for the user if the text is neither an address nor a path.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.contains('/') {
            return Ok(Self::File(text.into()));
        }
        let wrong = || format!("{text:?} is neither HOST:PORT nor a path with a slash");
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        if host.is_empty() || bare.is_none() && host.contains(':') {
            return Err(format!("{}; write an IPv6 address as [ADDRESS]:PORT", wrong()));
        }
        let port = port.parse().ok().filter(|&port: &u16| port > 0).ok_or_else(wrong)?;
        Ok(Self::Address { host: bare.unwrap_or(host).to_owned(), ports: vec![port] })
    }

    /// Returns a file in the current folder for the ranks of this job.
    pub fn of_job(job: &str) -> Self {
        Self::File(format!("./.stride-perf-mesh-{:016x}", hash(job)).into())
    }
}

/// Returns the ports at which rank 0 of a job listens on this host, derived from the name of the job.
pub fn derived(host: &str, job: &str) -> Rendezvous {
    let width = DERIVED.end - DERIVED.start;
    let port = |at: u64| u16::try_from(DERIVED.start + (hash(job) % width + at * 1009) % width).ok();
    Rendezvous::Address { host: host.to_owned(), ports: (0..CANDIDATES).filter_map(port).collect() }
}

/// FNV-1a, which all ranks compute alike.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What rank 0 writes to a rendezvous file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The job of the rank 0 that has written the file.
    pub job: String,
    /// Its host.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
}

/// Maximum length of a notice in bytes.
pub const LONGEST_NOTICE: usize = 1024;

impl Notice {
    /// Returns the text of the file.
    pub fn text(&self) -> String {
        format!("stride-perf mesh\n{}\n{}\n{}\n", self.job, self.host, self.port)
    }

    /// Parses the text of the file. Returns `None` if the file is incomplete or belongs to another program.
    pub fn parse(text: &str) -> Option<Self> {
        let mut lines = text.strip_prefix("stride-perf mesh\n")?.lines();
        let (job, host, port) = (lines.next()?, lines.next()?, lines.next()?);
        (text.ends_with('\n')).then_some(())?;
        Some(Self { job: job.to_owned(), host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// Parses the value of `--ranks`.
///
/// # Errors
///
/// Returns an error for the user if the number is out of range.
pub fn ranks(text: &str) -> Result<u32, String> {
    let ranks = text.parse().ok().filter(|ranks| (2..=MOST_RANKS).contains(ranks));
    ranks.ok_or_else(|| format!("it must be a number from 2 to {MOST_RANKS}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_paths_are_parsed() {
        let address = |host: &str, port| Ok(Rendezvous::Address { host: host.to_owned(), ports: vec![port] });
        assert_eq!(Rendezvous::parse("h1:4000"), address("h1", 4000));
        assert_eq!(Rendezvous::parse("[fd00::2]:4000"), address("fd00::2", 4000));
        assert_eq!(Rendezvous::parse("/home/x/meet"), Ok(Rendezvous::File("/home/x/meet".into())));
        for wrong in ["h1", "h1:0", "h1:70000", ":4000", "fd00::2:4000", ""] {
            assert!(Rendezvous::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn ports_of_a_job_differ_from_each_other() {
        let Rendezvous::Address { ports, .. } = derived("h", "slurm 7.0") else { panic!() };
        let mut sorted = ports.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!((sorted.len(), ports.len() as u64), (ports.len(), CANDIDATES));
        assert_ne!(derived("h", "slurm 7.1"), derived("h", "slurm 7.0"));
    }

    #[test]
    fn incomplete_notice_is_none() {
        let notice = Notice { job: "j".to_owned(), host: "h".to_owned(), port: 7 };
        let text = notice.text();
        assert_eq!(Notice::parse(&text), Some(notice));
        for end in 0..text.len() {
            assert_eq!(Notice::parse(&text[..end]), None);
        }
    }
}
