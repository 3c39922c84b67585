//! Tests streams within one process, over RDMA on softrnic and over TCP.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use trespass::Transport;

use super::*;
use crate::error::{Kind, Result};
use crate::link::{Fault, Listener, Options, Patience, connect, reconnect};
use crate::proto::{Peer, Purpose};

const PATIENCE: Duration = Duration::from_secs(60);

fn temporary(bytes: &[u8]) -> OwnedFd {
    let folder = tempfile::tempfile().unwrap();
    (&folder).write_all(bytes).unwrap();
    rustix::fs::seek(&folder, rustix::fs::SeekFrom::Start(0)).unwrap();
    folder.into()
}

/// Sends bytes into a new file; returns the results of both sides, and the file's bytes if it exists.
fn transfer(bytes: &[u8], options: &Options) -> (Result<Summary>, Result<Summary>, Option<Vec<u8>>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let listener = Listener::bind(Some("127.0.0.1:0".parse().unwrap()), 0, options).unwrap();
    let address = format!("127.0.0.1:{}", listener.port());
    let (sent, received) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let link =
                connect(&Peer::unnamed(address.clone(), b"key"), Purpose::Send, Patience::Coming(PATIENCE), options)?;
            send(
                link,
                |until| reconnect(&Peer::unnamed(address.clone(), b"key"), Purpose::Send, until, options),
                &temporary(bytes),
                "input",
            )
        });
        let received = listener.accept(b"key", None).and_then(|(link, purpose)| {
            assert_eq!(purpose, Purpose::Send);
            let again = |until| listener.accept_for(b"key", Purpose::Send, until);
            receive(link, again, Output::create(&path)?)
        });
        (sending.join().unwrap(), received)
    });
    let names = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(names, usize::from(path.exists()), "a temporary file was left");
    (sent, received, std::fs::read(path).ok())
}

fn options(transport: Transport) -> Options {
    Options { transport, ..Options::default() }
}

fn some_bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn streams_of_all_lengths_arrive_over_both_transports() {
    for transport in [Transport::Rdma, Transport::Tcp] {
        for encrypt in [Some(false), Some(true)] {
            for length in [0, 1, 12, 4096, crate::channel::BLOCK, 3 * crate::channel::BLOCK + 17] {
                let bytes = some_bytes(length);
                let (sent, received, file) = transfer(&bytes, &Options { encrypt, ..options(transport) });
                assert_eq!(sent.unwrap().bytes, length as u64);
                assert_eq!(received.unwrap().bytes, length as u64);
                assert!(file == Some(bytes), "{transport:?} {length}");
            }
        }
    }
}

#[test]
fn flipped_dropped_and_swapped_blocks_are_found_and_no_file_appears() {
    for transport in [Transport::Rdma, Transport::Tcp] {
        for encrypt in [Some(false), Some(true)] {
            for fault in [Fault::Flip(0), Fault::Flip(2), Fault::Drop(1), Fault::Drop(3), Fault::Swap(1)] {
                let bytes = some_bytes(3 * crate::channel::BLOCK + 17);
                let options = Options { encrypt, fault: Some(fault), ..options(transport) };
                let (sent, received, file) = transfer(&bytes, &options);
                let kinds = (sent.map_err(|error| error.kind()), received.map_err(|error| error.kind()));
                assert!(matches!(kinds, (Err(Kind::Protocol), Err(Kind::Protocol))), "{fault:?}: {kinds:?}");
                assert_eq!(file, None);
            }
        }
    }
}

#[test]
fn wrong_key_ends_only_the_sender() {
    for transport in [Transport::Rdma, Transport::Tcp] {
        let options = options(transport);
        let listener = Listener::bind(Some("127.0.0.1:0".parse().unwrap()), 0, &options).unwrap();
        let address = format!("127.0.0.1:{}", listener.port());
        thread::scope(|scope| {
            scope.spawn(|| listener.accept(b"key", None).unwrap());
            let refused =
                connect(&Peer::unnamed(address.clone(), b"other"), Purpose::Send, Patience::Coming(PATIENCE), &options);
            assert_eq!(refused.map_err(|error| error.kind()).err(), Some(Kind::WrongKey));
            connect(&Peer::unnamed(address.clone(), b"key"), Purpose::Send, Patience::Coming(PATIENCE), &options)
                .unwrap();
        });
    }
}

#[test]
fn missing_receiver_is_unreachable_after_the_patience() {
    let free = sideway_test_names::Port::reserve();
    let address = format!("127.0.0.1:{}", free.number());
    let patience = Duration::from_millis(100);
    let refused = connect(
        &Peer::unnamed(address.clone(), b"key"),
        Purpose::Send,
        Patience::Coming(patience),
        &options(Transport::Tcp),
    );
    assert_eq!(refused.map_err(|error| error.kind()).err(), Some(Kind::Unreachable));
}

#[test]
fn unfinished_file_has_no_name_for_a_killed_process_to_leave() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    if rustix::fs::openat(rustix::fs::CWD, folder.path(), OFlags::WRONLY | OFlags::TMPFILE, Mode::RUSR).is_err() {
        eprintln!("DID NOT RUN: the file system of the temporary folder does not support O_TMPFILE");
        return;
    }
    let output = Output::create(&path).unwrap();
    assert_eq!(names(), 0);
    output.keep().unwrap();
    assert!(path.is_file() && names() == 1);
    // If an output is dropped, the existing file stays as it is. `keep` replaces it.
    std::fs::write(&path, b"old").unwrap();
    drop(Output::create(&path).unwrap());
    assert_eq!(std::fs::read(&path).unwrap(), b"old");
    Output::create(&path).unwrap().keep().unwrap();
    assert!(std::fs::read(&path).unwrap().is_empty() && names() == 1);
}

#[test]
fn file_replaced_through_a_swapped_folder_stays_in_the_folder_that_was_opened() {
    let folder = tempfile::tempdir().unwrap();
    let [inner, moved, victim] = ["inner", "moved", "victim"].map(|name| folder.path().join(name));
    std::fs::create_dir(&inner).unwrap();
    std::fs::create_dir(&victim).unwrap();
    std::fs::write(victim.join("file"), b"precious").unwrap();
    let output = Output::create(&inner.join("file")).unwrap();
    std::fs::rename(&inner, &moved).unwrap();
    std::os::unix::fs::symlink(&victim, &inner).unwrap();
    output.keep().unwrap();
    assert_eq!(std::fs::read(victim.join("file")).unwrap(), b"precious");
    assert!(moved.join("file").is_file());
}

#[test]
fn short_transfers_do_not_wait_for_the_next_ping() {
    let options = Options { timeout: Duration::from_secs(4 * 3600), ..options(Transport::Tcp) };
    for _ in 0..20 {
        transfer(b"hello", &options).0.unwrap();
    }
}
