//! The control socket, on which other processes send commands.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};
use std::{env, io, process};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::Command;
use crate::sys::descriptor::Descriptor;
use crate::sys::exit;
use crate::sys::fork::PerProcess;
use crate::sys::thread::{Next, Place, Reactor, Task};
use crate::sys::unpoisoned;

/// Name of the environment variable that contains the folder of the control sockets. If it is set, each process that
/// opens a soft device listens on the Unix socket `FOLDER/PID`. A line on the socket is a [`Command`], and the reply is the
/// line `ok`, `ok: ` with the counters, or `error: ` with the reason. The folder is created with the mode 0700, and must be accessible to this user
/// only.
pub const CONTROL_VARIABLE: &str = "SOFTRNIC_CONTROL";

/// The number of the listener in events. Clients have higher numbers.
const LISTENER: u64 = 0;
/// The maximum number of clients.
const MAX_CLIENTS: usize = 16;
/// How long the listener rests after an error.
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum length of a command.
const MAX_LENGTH: usize = 1024;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();
/// Whether this process has tried to listen.
static HAS_TRIED: PerProcess<Mutex<bool>> = PerProcess::new(Mutex::new(false), Box::default);

/// Makes each process listen when it opens a device, if the environment variable is set.
pub(crate) fn enable() {
    if let Some(folder) = env::var_os(CONTROL_VARIABLE).filter(|folder| !folder.is_empty()) {
        let _ = FOLDER.set(folder.into());
        crate::verbs::open::on_open(serve);
    }
}

fn serve() {
    let Some(folder) = FOLDER.get() else { return };
    if std::mem::replace(&mut *unpoisoned(HAS_TRIED.get().lock()), true) {
        return;
    }
    let listening = listen(folder).and_then(|listener| {
        let task = |place: Place| {
            place.watch(&listener, LISTENER, EventFlags::IN)?;
            Ok(Box::new(Server { place, listener, clients: BTreeMap::new(), last: LISTENER, paused_until: None })
                as Box<dyn Task>)
        };
        Ok(Reactor::of_process().add(task)?)
    });
    if let Err(error) = listening {
        rdma_mummy_sys::log!(
            error,
            "no control socket in {}: {error}; choose another {CONTROL_VARIABLE}",
            folder.display()
        );
    }
}

fn listen(folder: &Path) -> io::Result<Descriptor> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() || found.mode() & 0o77 != 0 {
        return Err(io::Error::other("it is not a folder that only this user can access"));
    }
    remove_sockets_of_ended_processes(folder);
    // The process may change its working directory.
    let path = std::path::absolute(folder)?.join(process::id().to_string());
    // A process that has ended may have had this ID.
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = || rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let listener = Descriptor::open(socket)?;
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path)?)?;
    exit::remove_at_exit(path);
    rustix::net::listen(&listener, MAX_CLIENTS as i32)?;
    Ok(listener)
}

/// Processes that were killed leave their sockets.
fn remove_sockets_of_ended_processes(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_number = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        if !is_number || Path::new("/proc").join(&name).exists() {
            continue;
        }
        // A process of another PID namespace may use the folder too.
        let refused =
            UnixStream::connect(entry.path()).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if refused {
            // Another process may have removed it.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// What the thread does for the socket.
struct Server {
    place: Place,
    listener: Descriptor,
    /// The clients, and the part of a command that each has sent.
    clients: BTreeMap<u64, (Descriptor, Vec<u8>)>,
    last: u64,
    /// When the listener is watched again.
    paused_until: Option<Instant>,
}

impl Task for Server {
    fn event(&mut self, id: u64) {
        if id == LISTENER {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let accepted = Descriptor::open(|| rustix::net::accept_with(&self.listener, flags));
            let Ok(client) = accepted else {
                // The client would wake the thread again and again, as without free descriptors.
                self.place.unwatch(&self.listener);
                self.paused_until = Some(Instant::now() + PAUSE);
                return;
            };
            self.last += 1;
            if self.clients.len() < MAX_CLIENTS && self.place.watch(&client, self.last, EventFlags::IN).is_ok() {
                self.clients.insert(self.last, (client, Vec::new()));
            }
        } else if let Some((client, text)) = self.clients.get_mut(&id)
            && !answer(client, text)
            && let Some((client, _)) = self.clients.remove(&id)
        {
            self.place.unwatch(&client);
        }
    }

    fn turn(&mut self) -> Next {
        if self.paused_until.is_some_and(|until| until <= Instant::now()) {
            let is_watched = self.place.watch(&self.listener, LISTENER, EventFlags::IN).is_ok();
            self.paused_until = (!is_watched).then(|| Instant::now() + PAUSE);
        }
        self.paused_until.into()
    }
}

/// Executes the commands that have arrived. Returns `false` if the client has closed its socket or sent too much.
fn answer(client: &Descriptor, text: &mut Vec<u8>) -> bool {
    let mut buffer = [0; MAX_LENGTH];
    match rustix::net::recv(client, &mut buffer[..], RecvFlags::DONTWAIT) {
        Ok((_, 0)) => return false,
        Ok((_, length)) => text.extend_from_slice(&buffer[..length]),
        Err(Errno::AGAIN | Errno::INTR) => return true,
        Err(_) => return false,
    }
    while let Some(end) = text.iter().position(|&byte| byte == b'\n') {
        let line: Vec<u8> = text.drain(..=end).collect();
        let reply = match String::from_utf8_lossy(&line).parse::<Command>() {
            Ok(command) => command.run().map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let reply = match reply {
            Ok(text) if text.is_empty() => "ok\n".to_owned(),
            Ok(text) => format!("ok: {text}\n"),
            Err(error) => format!("error: {error}\n"),
        };
        if rustix::net::send(client, reply.as_bytes(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL).is_err() {
            return false;
        }
    }
    text.len() <= MAX_LENGTH
}
