//! rdma-pipe: a copy of a tree, as by `rdcp -r`, and a stream, as by `rdsend` and `rdrecv`.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rdma_pipe::copy::{self, CopyOptions, Progress, Target};
use rdma_pipe::error::Error;
use rdma_pipe::link::{Listener, Options, Patience, connect, reconnect};
use rdma_pipe::proto::{Peer, Purpose};
use rdma_pipe::stream::{self, Output};
use rdma_pipe::tree::Origin;
use trespass::Transport;

use crate::harness::{Ended, Left};
use crate::schedules::{is_survived, sweep};

const PATIENCE: Duration = Duration::from_secs(5);
const KEY: &[u8] = b"key";

/// The files of the tree, and their lengths: two of them are longer than a block.
const FILES: [(&str, usize); 6] = [
    ("empty", 0),
    ("short", 10),
    ("one", 5_000),
    ("inner/long", 1_200_000),
    ("inner/two", 70_000),
    ("inner/deep/three", 3),
];

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("inner/deep")).unwrap();
    for (name, length) in FILES {
        fs::write(root.join(name), content(length)).unwrap();
    }
}

fn options(transport: Transport) -> Options {
    Options { transport, timeout: Duration::from_secs(5), ..Options::default() }
}

/// Each side has a worker of its own, as in two processes.
fn both<T: Send>(
    transport: Transport,
    send: impl FnOnce(&Options, String) -> Result<T, Error> + Send,
    receive: impl FnOnce(&Options, &Listener) -> Result<T, Error>,
) -> Result<(T, T), String> {
    let (near, far) = (options(transport), options(transport));
    let listener =
        Listener::bind(Some("127.0.0.1:0".parse().unwrap()), 0, &far).map_err(|error| format!("listen: {error}"))?;
    let address = format!("127.0.0.1:{}", listener.port());
    let (sent, received) = thread::scope(|scope| {
        let sending = scope.spawn(|| send(&near, address));
        let received = receive(&far, &listener);
        (sending.join().unwrap(), received)
    });
    match (sent, received) {
        (Ok(sent), Ok(received)) => Ok((sent, received)),
        (Err(error), Ok(_)) => Err(format!("send: {error}")),
        (Ok(_), Err(error)) => Err(format!("receive: {error}")),
        (Err(sent), Err(received)) => Err(format!("send: {sent} | receive: {received}")),
    }
}

fn copy_tree(transport: Transport) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("tree"), folder.path().join("copies"));
    make_tree(&from);
    fs::create_dir(&into).unwrap();
    let copied = CopyOptions { recursive: true, ..CopyOptions::default() };
    let send = |options: &Options, address: String| {
        let peer = Peer::unnamed(address, KEY);
        let connect = |_: Option<&Peer>| connect(&peer, Purpose::Send, Patience::Listening(PATIENCE), options);
        let origin = Origin::default();
        copy::send(connect, Vec::new(), &origin, std::slice::from_ref(&from), &copied, &Progress::default())
    };
    let receive = |options: &Options, listener: &Listener| {
        let target = Target::open(&into, 1, false, false)?;
        let accept = || listener.accept_for(KEY, Purpose::Send, Instant::now() + PATIENCE);
        copy::receive(accept, &target, None, &copied, options, &Progress::default())
    };
    let ended = both(transport, send, receive);
    let is_complete = ended.as_ref().is_ok_and(|(sent, received)| sent.status() == 0 && received.status() == 0);
    for (name, length) in FILES {
        match fs::read(into.join("tree").join(name)) {
            // A file appears under its name when it is complete.
            Ok(found) => assert!(found == content(length), "{name} has changed"),
            Err(error) => assert!(!is_complete, "{name} is missing: {error}"),
        }
    }
    let (sent, received) = ended?;
    let failures: Vec<String> = sent.failures.iter().chain(&received.failures).map(ToString::to_string).collect();
    if failures.is_empty() { Ok(()) } else { Err(failures.join(" | ")) }
}

fn send_stream(transport: Transport) -> Ended {
    let folder = tempfile::tempdir().unwrap();
    let (from, into) = (folder.path().join("from"), folder.path().join("into"));
    let bytes = content(2_200_000);
    fs::write(&from, &bytes).unwrap();
    let send = |options: &Options, address: String| {
        let peer = Peer::unnamed(address, KEY);
        let link = connect(&peer, Purpose::Send, Patience::Coming(PATIENCE), options)?;
        let input: OwnedFd = fs::File::open(&from).unwrap().into();
        stream::send(link, |until| reconnect(&peer, Purpose::Send, until, options), &input, "input")
    };
    let receive = |_: &Options, listener: &Listener| {
        let link = listener.accept_for(KEY, Purpose::Send, Instant::now() + PATIENCE)?;
        stream::receive(link, |until| listener.accept_for(KEY, Purpose::Send, until), Output::create(&into)?)
    };
    let ended = both(transport, send, receive);
    match fs::read(&into) {
        Ok(found) => assert!(found == bytes, "the stream has changed"),
        Err(error) => assert!(ended.is_err(), "the file is missing: {error}"),
    }
    ended.map(drop)
}

#[test]
fn copies_of_a_tree() {
    sweep("rdcp", || copy_tree(Transport::Any), Left::Nothing, is_survived);
}

#[test]
fn streams_of_bytes() {
    sweep("rdsend", || send_stream(Transport::Any), Left::Nothing, is_survived);
}
