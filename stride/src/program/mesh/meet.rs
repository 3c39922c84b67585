//! How the ranks find rank 0.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use super::pmi::Pmi;
use crate::cli::Mesh;
use crate::control::{self, ControlOptions, Family, Frame, Partial, Unframed, tune};
use crate::mesh::launcher::Membership;
use crate::mesh::message::{Join, LONGEST_ORDER, Order, Report, frame, message};
use crate::mesh::rendezvous::{LONGEST_NOTICE, Notice, Rendezvous};
use crate::plan::time;

/// The time limit of one attempt to connect.
const ATTEMPT: Duration = Duration::from_secs(2);

/// How long to wait for a reply at one of several ports.
const CANDIDATE: Duration = Duration::from_secs(10);

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// The name under which rank 0 publishes its address by PMI.
const KEY: &str = "stride-perf-mesh";

const REMEDY: &str = "give --rendezvous HOST:PORT with an address of rank 0, or a file that all hosts share";

/// Rank 0's listener, and how ranks find it.
pub(super) struct Meeting {
    pub(super) listener: TcpListener,
    /// The job that ranks must name.
    pub(super) job: String,
    /// The rendezvous file, which is removed at the end.
    _file: Option<Published>,
}

impl Meeting {
    /// Listens as the membership requires, and publishes the address.
    pub(super) fn open(membership: &Membership, mesh: &Mesh) -> Result<Self> {
        let family = mesh.contact.family;
        let any = || listen(0, family);
        match membership.rendezvous.as_ref().ok_or_else(|| nowhere(membership))? {
            Rendezvous::Address { host, ports } => {
                let is_local = host.parse().is_ok_and(|address: std::net::IpAddr| address.is_loopback());
                let mut trouble = None;
                for &port in ports {
                    let opened = if is_local {
                        TcpListener::bind((host.as_str(), port)).map_err(anyhow::Error::from)
                    } else {
                        listen(port, family)
                    };
                    match opened {
                        Ok(listener) => return Ok(Self { listener, job: membership.job.clone(), _file: None }),
                        Err(error) => trouble = Some(error),
                    }
                }
                let trouble = trouble.unwrap_or_else(|| anyhow!("there is no port"));
                Err(trouble)
                    .with_context(|| format!("rank 0 cannot listen for the other ranks at {}; {REMEDY}", list(ports)))
            }
            Rendezvous::File(file) => {
                let (listener, job) = (any()?, format!("{} {}", membership.job, nonce()));
                let notice = Notice { job: job.clone(), host: host_name(), port: listener.local_addr()?.port() };
                let published = Published::write(file, &notice)
                    .with_context(|| format!("cannot write the rendezvous file {}; {REMEDY}", file.display()))?;
                Ok(Self { listener, job, _file: Some(published) })
            }
            Rendezvous::Pmi { descriptor, is_local } => {
                let (listener, job) = (any()?, nonce());
                let host = if *is_local { "127.0.0.1".to_owned() } else { host_name() };
                let port = listener.local_addr()?.port();
                let mut pmi = Pmi::open(*descriptor, mesh.join).with_context(|| REMEDY)?;
                pmi.put(KEY, &format!("{host}/{port}/{job}")).with_context(|| REMEDY)?;
                pmi.barrier_and_end(None).with_context(|| REMEDY)?;
                Ok(Self { listener, job, _file: None })
            }
        }
    }
}

fn listen(port: u16, family: Option<Family>) -> Result<TcpListener> {
    let contact = ControlOptions { port, family, timeout: ATTEMPT };
    control::listen(&contact).map_err(|failure| anyhow!("{failure}"))
}

fn nowhere(membership: &Membership) -> anyhow::Error {
    anyhow!("{} does not state where rank 0 is; {REMEDY}", membership.launcher.name())
}

fn list(ports: &[u16]) -> String {
    let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
    format!("TCP port {}", ports.join(", "))
}

/// Returns the name of this host.
pub(super) fn host_name() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name = name.trim();
    if name.is_empty() { "localhost".to_owned() } else { name.to_owned() }
}

/// Returns a random text, which distinguishes this job from all others.
pub(super) fn nonce() -> String {
    use std::hash::{BuildHasher, Hasher, RandomState};
    let word = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", word(), word())
}

/// A rendezvous file, which is removed on drop unless another rank 0 has replaced it.
struct Published(PathBuf, Notice);

impl Published {
    fn write(file: &Path, notice: &Notice) -> io::Result<Self> {
        // A reader finds either no file, the file of an earlier job, or the whole notice.
        let new = file.with_extension(format!("{}.new", nonce()));
        let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        out.write_all(notice.text().as_bytes()).inspect_err(|_| drop(fs::remove_file(&new)))?;
        fs::rename(&new, file).inspect_err(|_| drop(fs::remove_file(&new)))?;
        Ok(Self(file.to_owned(), notice.clone()))
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if read_notice(&self.0).is_some_and(|notice| notice == self.1) {
            let _ = fs::remove_file(&self.0);
        }
    }
}

fn read_notice(file: &Path) -> Option<Notice> {
    let mut text = String::new();
    let limit = u64::try_from(LONGEST_NOTICE).unwrap_or(u64::MAX);
    fs::File::open(file).ok()?.take(limit).read_to_string(&mut text).ok()?;
    Notice::parse(&text)
}

/// A connection attempt that has failed.
enum Failed {
    /// Another attempt may succeed.
    Now(String),
    /// No attempt can succeed.
    Always(String),
}

/// Connects to rank 0, and joins the mesh.
pub(super) fn join(membership: &Membership, mesh: &Mesh) -> Result<TcpStream> {
    let deadline = Instant::now() + mesh.join;
    let place = membership.rendezvous.as_ref().ok_or_else(|| nowhere(membership))?;
    let mut published = None;
    if let Rendezvous::Pmi { descriptor, .. } = place {
        let pmi = Pmi::open(*descriptor, mesh.join).with_context(|| REMEDY)?;
        let text = pmi.barrier_and_end(Some(KEY)).with_context(|| REMEDY)?.unwrap_or_default();
        let mut parts = text.split('/').map(str::to_owned);
        let port = |text: String| text.parse::<u16>().ok();
        let (host, port, job) = (parts.next(), parts.next().and_then(port), parts.next());
        let Some(((host, port), job)) = host.zip(port).zip(job) else {
            bail!("rank 0 has published no address by PMI: {text:?}; {REMEDY}");
        };
        published = Some(Notice { job, host, port });
    }
    loop {
        let failed = match place {
            Rendezvous::Address { host, ports } => {
                attempt_each(membership, mesh, host, ports, &membership.job, deadline)
            }
            Rendezvous::File(file) => match read_notice(file) {
                // A file of another job, or of an earlier one that was killed, remains until rank 0 replaces it.
                Some(notice) if notice.job.starts_with(&format!("{} ", membership.job)) => {
                    attempt_each(membership, mesh, &notice.host, &[notice.port], &notice.job, deadline)
                }
                Some(_) => Err(Failed::Now(format!("{} belongs to another job", file.display()))),
                None => Err(Failed::Now(format!("{} does not exist or is incomplete", file.display()))),
            },
            Rendezvous::Pmi { .. } => match &published {
                Some(Notice { job, host, port }) => attempt_each(membership, mesh, host, &[*port], job, deadline),
                None => Err(Failed::Always("rank 0 has published no address".to_owned())),
            },
        };
        match failed {
            Ok(stream) => return Ok(stream),
            Err(Failed::Always(why)) => bail!(why),
            Err(Failed::Now(why)) if Instant::now() >= deadline => {
                bail!("did not reach rank 0 within {}: {why}; {REMEDY}", time::show(mesh.join));
            }
            Err(Failed::Now(_)) => sleep(PAUSE),
        }
    }
}

/// Joins the mesh whose rank 0 is this process.
pub(super) fn join_at_home(membership: &Membership, mesh: &Mesh, port: u16) -> Result<TcpStream> {
    let deadline = Instant::now() + mesh.join;
    let local = [SocketAddr::from(([127, 0, 0, 1], port)), SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], port))];
    loop {
        let mut why = String::new();
        for address in local {
            match attempt(membership, mesh, address, &membership.job, deadline) {
                Ok(stream) => return Ok(stream),
                Err(Failed::Now(text)) => why = text,
                Err(Failed::Always(text)) => bail!(text),
            }
        }
        if Instant::now() >= deadline {
            bail!("cannot connect to this process: {why}; check the firewall of the loopback interface");
        }
        sleep(PAUSE);
    }
}

/// Tries each port of rank 0's host.
fn attempt_each(
    membership: &Membership,
    mesh: &Mesh,
    host: &str,
    ports: &[u16],
    job: &str,
    deadline: Instant,
) -> Result<TcpStream, Failed> {
    // At one of several ports, another program may listen that never replies.
    let deadline = if ports.len() > 1 { deadline.min(Instant::now() + CANDIDATE) } else { deadline };
    let mut why = format!("{host} has no address");
    for &port in ports {
        let found =
            (host, port).to_socket_addrs().map_err(|error| Failed::Now(format!("cannot resolve {host}: {error}")))?;
        let is_allowed = |address: &SocketAddr| match mesh.contact.family {
            None => true,
            Some(Family::V4) => address.is_ipv4(),
            Some(Family::V6) => address.is_ipv6(),
        };
        for address in found.filter(is_allowed) {
            match attempt(membership, mesh, address, job, deadline) {
                Err(Failed::Now(text)) => why = format!("{address}: {text}"),
                other => return other,
            }
        }
    }
    Err(Failed::Now(why))
}

fn attempt(
    membership: &Membership,
    mesh: &Mesh,
    address: SocketAddr,
    job: &str,
    deadline: Instant,
) -> Result<TcpStream, Failed> {
    let now = |error: io::Error| Failed::Now(error.to_string());
    let mut stream = TcpStream::connect_timeout(&address, ATTEMPT).map_err(now)?;
    tune(&stream, mesh.contact.timeout);
    stream.set_read_timeout(Some(ATTEMPT.max(deadline.saturating_duration_since(Instant::now())))).map_err(now)?;
    stream.set_write_timeout(Some(ATTEMPT)).map_err(now)?;
    let test = mesh.test().map_err(|error| Failed::Always(error.to_string()))?;
    let join = Join { job: job.to_owned(), rank: membership.rank, size: membership.size, host: host_name(), test };
    write(&mut stream, &Report::Join(join)).map_err(now)?;
    match read(&mut stream, &mut Partial::new(LONGEST_ORDER)).map_err(Failed::Now)? {
        Order::Welcome => Ok(stream),
        Order::Reject { why, is_final: true } => Err(Failed::Always(why)),
        Order::Reject { why, .. } => Err(Failed::Now(why)),
        _ => Err(Failed::Now("it sent a message out of order".to_owned())),
    }
}

/// Sends a message to rank 0.
pub(super) fn write(stream: &mut TcpStream, report: &Report) -> io::Result<()> {
    stream.write_all(&frame(report)?.bytes()?)
}

/// Receives a message of rank 0. The error is a text for the user.
pub(super) fn read(stream: &mut TcpStream, partial: &mut Partial) -> Result<Order, String> {
    loop {
        match partial.read(|into| stream.read(into)) {
            Ok(Some(frame)) => return message(&frame),
            Ok(None) => {}
            Err(Unframed::Io(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(unframed) => return Err(unread(&unframed)),
        }
    }
}

/// Returns why a frame could not be read.
pub(super) fn unread(unframed: &Unframed) -> String {
    match unframed {
        Unframed::End(_) => "it disconnected: it ended or was stopped".to_owned(),
        Unframed::Foreign(_) => "it is not stride-perf".to_owned(),
        Unframed::Long(length) => format!("it announced a message of {length} bytes, above the limit"),
        Unframed::Io(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
            "it was silent".to_owned()
        }
        Unframed::Io(error) => format!("the connection failed: {error}"),
    }
}

/// Returns the bytes of a message to a rank.
pub(super) fn bytes(order: &Order) -> io::Result<Vec<u8>> {
    let frame: Frame = frame(order)?;
    frame.bytes()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn rendezvous_file_is_private_and_replaces_links() {
        let folder = sideway_test_names::Folder::new();
        let (file, other) = (folder.join("meet"), folder.join("other"));
        fs::write(&other, "mine").unwrap();
        symlink(&other, &file).unwrap();
        let notice = Notice { job: "j".to_owned(), host: "h".to_owned(), port: 7 };
        let published = Published::write(&file, &notice).unwrap();
        assert_eq!(fs::symlink_metadata(&file).unwrap().mode() & 0o170_777, 0o100_600);
        assert_eq!(fs::read_to_string(&other).unwrap(), "mine");
        drop(published);
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1);
    }
}
