//! Simulates malicious senders, which send hand-made frames and blocks to a real receiver.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdma_pipe::channel::{Block, BlockKind};
use rdma_pipe::copy::{CopyOptions, Outcome, Progress, Target, receive};
use rdma_pipe::error::{Error, Kind, Result};
use rdma_pipe::link::{Link, Listener, Options, Patience, connect};
use rdma_pipe::proto::{Entry, EntryKind, Frame, Peer, Purpose, ROOT, Special, Totals};
use rdma_pipe::tree::temporary_name;

use crate::common::{Place, Ran, port};

fn entry(name: &[u8], kind: EntryKind) -> Entry {
    Entry { name: name.to_vec(), kind, mode: 0o6755, owner: (0, 0), modified: (1, 0), attributes: Vec::new() }
}

fn file(name: &[u8], size: u64) -> Entry {
    entry(name, EntryKind::File { size, has_links: false, sum: None })
}

/// Runs a receiver whose destination is this folder, and the attack as its sender.
fn attacked(target: &Path, expected: Option<&[Vec<u8>]>, attack: impl FnOnce(&mut Link) + Send) -> Result<Outcome> {
    attacked_with(&CopyOptions::default(), target, expected, attack)
}

fn attacked_with(
    copy: &CopyOptions,
    target: &Path,
    expected: Option<&[Vec<u8>]>,
    attack: impl FnOnce(&mut Link) + Send,
) -> Result<Outcome> {
    let options =
        Options { timeout: Duration::from_secs(60), transport: trespass::Transport::Tcp, ..Options::default() };
    let listener = Listener::bind(Some("127.0.0.1:0".parse().unwrap()), 0, &options).unwrap();
    let peer = Peer::unnamed(format!("127.0.0.1:{}", listener.port()), b"key");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut link = connect(&peer, Purpose::Send, Patience::Coming(Duration::from_secs(60)), &options).unwrap();
            link.sender.frame(&Frame::Begin { again: false, chain: Vec::new() }).unwrap();
            attack(&mut link);
            // Ignores the answer of the receiver.
            _ = link.frame();
        });
        let mut only = Some(listener.accept(b"key", None).unwrap().0);
        let accept = || only.take().ok_or_else(|| Error::new(Kind::Broken, "the receiver accepts only one connection"));
        let target = Target::open(target, 1, false, false).unwrap();
        receive(accept, &target, expected, copy, &options, &Progress::default())
    })
}

fn list(link: &Link, dir: u32, entries: Vec<Entry>) {
    // The receiver may have ended the connection.
    _ = link.sender.frame(&Frame::List { dir, entries, whole: false });
}

/// Sends a file of one byte in a pack, then the end.
fn pack(link: &Link, id: u32, entries: u64) {
    let mut buffer = link.sender.buffer(1);
    buffer[0] = b'x';
    let block = Block::of(BlockKind::Pack, id, 0, b"x");
    // The receiver may have ended the connection.
    _ = link.sender.pack(&Frame::Pack(vec![(id, 1)]), &block, buffer, 1);
    _ = link.sender.frame(&Frame::End(Totals { entries, files: 1, bytes: 1, failed: 0 }));
}

#[test]
fn names_that_lead_elsewhere_end_the_transfer() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).unwrap();
    for name in [b"../out".as_slice(), b"..", b".", b"", b"/out", b"a/b", b"nul\0"] {
        let ended = attacked(&place.path("d"), None, |link| {
            list(link, ROOT, vec![file(name, 1)]);
            pack(link, 1, 1);
        });
        assert!(ended.is_err(), "{name:?}");
    }
    assert_eq!((place.names("."), place.names("d")), (vec!["bin".to_owned(), "d".to_owned()], vec![]));
}

#[test]
fn links_in_the_list_and_at_the_destination_do_not_lead_out() {
    let place = Place::new();
    for folder in ["d", "outside"] {
        std::fs::create_dir(place.path(folder)).unwrap();
    }
    // This list names a link as the parent directory of a file.
    let link_to = entry(b"l", EntryKind::Link(b"../outside".to_vec()));
    let through = attacked(&place.path("d"), None, |link| {
        list(link, ROOT, vec![link_to.clone()]);
        list(link, 1, vec![file(b"x", 1)]);
        pack(link, 2, 2);
    });
    assert!(through.is_err());
    // The list gives a directory the name of a link: first of a link in the same transfer, then of one that existed
    // before.
    for name in [b"l".as_slice(), b"planted"] {
        if name == b"planted" {
            symlink("../outside", place.path("d/planted")).unwrap();
        }
        let outcome = attacked(&place.path("d"), None, |link| {
            list(link, ROOT, vec![link_to.clone(), entry(name, EntryKind::Directory)]);
            list(link, 2, vec![file(b"x", 1)]);
            pack(link, 3, 3);
        });
        assert!(outcome.is_err() || outcome.is_ok_and(|outcome| outcome.status() == 23));
    }
    // A received file replaces a link of the same name, which the receiver does not follow.
    place.write("victim", "safe");
    symlink("../victim", place.path("d/f")).unwrap();
    attacked(&place.path("d"), None, |link| {
        list(link, ROOT, vec![file(b"f", 1)]);
        pack(link, 1, 1);
    })
    .unwrap();
    assert_eq!((place.read("victim").as_slice(), place.read("d/f").as_slice()), (b"safe".as_slice(), b"x".as_slice()));
    assert_eq!(place.names("outside"), [""; 0]);
}

#[test]
fn directory_that_is_swapped_for_a_link_meanwhile_does_not_lead_out() {
    let place = Place::new();
    for folder in ["d/sub", "d/real", "outside"] {
        std::fs::create_dir_all(place.path(folder)).unwrap();
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (sub, real) = (place.path("d/sub"), place.path("d/real"));
            while !over.load(Ordering::Relaxed) {
                // Each step may fail, because the receiver may have created an entry of that name.
                _ = std::fs::rename(&sub, &real);
                _ = symlink("../outside", &sub);
                _ = std::fs::remove_file(&sub);
                _ = std::fs::rename(&real, &sub);
            }
        });
        for _ in 0..30 {
            // The transfer may succeed or fail.
            _ = attacked(&place.path("d"), None, |link| {
                list(link, ROOT, vec![entry(b"sub", EntryKind::Directory)]);
                list(link, 1, vec![file(b"x", 1)]);
                pack(link, 2, 2);
            });
        }
        over.store(true, Ordering::Relaxed);
    });
    assert_eq!(place.names("outside"), [""; 0]);
}

#[test]
fn unrequested_entries_are_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).unwrap();
    for name in [b".bashrc".as_slice(), b"authorized_keys"] {
        let ended = attacked(&place.path("d"), Some(&[b"wanted".to_vec()]), |link| {
            list(link, ROOT, vec![file(name, 1)]);
            pack(link, 1, 1);
        });
        assert!(ended.unwrap_err().to_string().contains("not requested"));
    }
    assert_eq!(place.names("d"), [""; 0]);
}

/// What the receiver's own options do not select is not made.
#[test]
fn device_nodes_need_their_option() {
    let place = Place::new();
    place.write("d/file", "data");
    let attack = |name: &[u8], kind| entry(name, EntryKind::Special { kind, has_links: true });
    let outcome = attacked(&place.path("d"), None, |link| {
        let memory = Special::Character(0x101);
        list(
            link,
            ROOT,
            vec![attack(b"file", Special::Fifo), attack(b"socket", Special::Socket), attack(b"memory", memory)],
        );
        list(link, ROOT, vec![entry(b"other", EntryKind::Same(3))]);
        _ = link.sender.frame(&Frame::End(Totals { entries: 4, ..Totals::default() }));
    });
    assert_eq!(outcome.unwrap().failures.len(), 1, "nothing can be linked to a node that was not made");
    assert_eq!((place.names("d"), place.read("d/file")), (vec!["file".into()], b"data".into()));
}

#[test]
fn special_bits_are_dropped() {
    use std::os::unix::fs::MetadataExt;
    let place = Place::new();
    std::fs::create_dir(place.path("d")).unwrap();
    attacked(&place.path("d"), None, |link| {
        list(link, ROOT, vec![file(b"f", 1)]);
        pack(link, 1, 1);
    })
    .unwrap();
    assert_eq!(std::fs::metadata(place.path("d/f")).unwrap().mode() & 0o7000, 0);
}

#[test]
fn blocks_packs_and_counts_that_do_not_fit_end_the_transfer() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).unwrap();
    let attacks: [fn(&mut Link); 5] = [
        |link| pack(link, 1, 0),
        |link| {
            list(link, ROOT, vec![file(b"f", 2)]);
            pack(link, 1, 1);
        },
        |link| list(link, ROOT, vec![file(b"f", u64::MAX)]),
        |link| {
            list(link, ROOT, vec![file(b"f", 1)]);
            _ = link.sender.frame(&Frame::End(Totals::default()));
        },
        |link| {
            list(link, ROOT, vec![file(b"f", 1)]);
            let mut buffer = link.sender.buffer(1);
            buffer[0] = b'y';
            let block = Block::of(BlockKind::Pack, 1, 0, b"x");
            _ = link.sender.pack(&Frame::Pack(vec![(1, 1)]), &block, buffer, 1);
            _ = link.sender.frame(&Frame::End(Totals { entries: 1, files: 1, bytes: 1, failed: 0 }));
        },
    ];
    for (number, attack) in attacks.into_iter().enumerate() {
        assert!(attacked(&place.path("d"), None, attack).is_err(), "attack {number}");
    }
    assert_eq!(place.names("d"), [""; 0]);
}

/// `--delete` removes entries only from directories of the source, and only if the source has listed them completely.
#[test]
fn sender_cannot_widen_what_is_deleted() {
    let place = Place::new();
    let copy = CopyOptions { sync: true, delete: true, recursive: true, ..CopyOptions::default() };
    let whole = |link: &Link, dir, entries| {
        // The receiver may have ended the connection.
        _ = link.sender.frame(&Frame::List { dir, entries, whole: true });
    };
    let end = |link: &Link, entries, failed| {
        _ = link.sender.frame(&Frame::End(Totals { entries, files: 0, bytes: 0, failed }));
    };
    let attacks: [&(dyn Fn(&Link) + Sync); 4] = [
        // First attack: a list of the destination itself, which belongs to the user.
        &|link| {
            whole(link, ROOT, vec![]);
            end(link, 0, 0);
        },
        // Second attack: a directory that is listed only partly, because the source could not read all of it.
        &|link| {
            list(link, ROOT, vec![entry(b"own", EntryKind::Directory)]);
            whole(link, 1, vec![]);
            end(link, 1, 1);
        },
        // Third attack: a link that is treated as a directory. Last attack: a directory that was not listed.
        &|link| {
            list(link, ROOT, vec![entry(b"own", EntryKind::Link(b"..".to_vec()))]);
            whole(link, 1, vec![]);
            end(link, 1, 0);
        },
        &|link| {
            whole(link, 7, vec![]);
            end(link, 0, 0);
        },
    ];
    for (number, attack) in attacks.into_iter().enumerate() {
        place.write("d/keep", "x");
        // The third attack creates `own` itself, so `own` must not exist.
        if number != 2 {
            place.write("d/own/keep", "x");
        }
        // Some attacks end the transfer.
        _ = attacked_with(&copy, &place.path("d"), None, |link| attack(link));
        assert_eq!(place.read("d/keep"), b"x", "attack {number}");
        assert!(number == 2 || place.read("d/own/keep") == b"x", "attack {number}");
        std::fs::remove_dir_all(place.path("d")).unwrap();
    }
}

/// If a link has the name of a temporary file, the receiver replaces it and does not follow it.
#[test]
fn planted_links_for_temporary_files_do_not_lead_out() {
    let place = Place::new();
    let size = 9 << 20;
    let partial = temporary_name(b"large", b"file");
    std::fs::create_dir(place.path("d")).unwrap();
    for (number, name) in [temporary_name(b"f", b"file"), partial].into_iter().enumerate() {
        let victim = place.write(&format!("victim{number}"), "untouched");
        symlink(victim, place.path("d").join(std::ffi::OsStr::from_bytes(&name))).unwrap();
    }
    attacked(&place.path("d"), None, |link| {
        list(link, ROOT, vec![file(b"f", 1), file(b"large", size)]);
        let _answer = link.frame();
        let mut buffer = link.sender.buffer(1);
        buffer[0] = b'x';
        let block = Block::of(BlockKind::Data, 2, size - 1, b"x");
        _ = link.sender.block(&block, buffer, 1);
        _ = link.sender.frame(&Frame::Close(2, Ok(())));
        let mut buffer = link.sender.buffer(1);
        buffer[0] = b'x';
        _ = link.sender.pack(&Frame::Pack(vec![(1, 1)]), &Block::of(BlockKind::Pack, 1, 0, b"x"), buffer, 1);
        _ = link.sender.frame(&Frame::End(Totals { entries: 2, files: 2, bytes: 2, failed: 0 }));
    })
    .unwrap();
    assert_eq!(place.names("d"), ["f", "large"]);
    (0..2).for_each(|number| assert_eq!(place.read(&format!("victim{number}")), b"untouched"));
}

/// A peer that sends single bytes slowly is disconnected at the time limit of its handshake, and does not block other
/// peers.
#[test]
fn trickling_peer_times_out() {
    let place = Place::with_tcp();
    let port = port().to_string();
    let mut receiver = place.command("rdrecv", ["--tcp", &port, "key"]).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    let mut trickling = loop {
        match std::net::TcpStream::connect(format!("127.0.0.1:{port}")) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    // Sends a hello of 200 bytes, one byte per second.
    _ = trickling.write_all(&[1, 200]);
    let until = Instant::now() + Duration::from_secs(60);
    while trickling.write_all(&[0]).is_ok() {
        assert!(Instant::now() < until, "the peer may continue to send single bytes");
        std::thread::sleep(Duration::from_secs(1));
    }
    place.run_with(b"data", "rdsend", ["--tcp", "127.0.0.1", &port, "key"]).expect(0);
    assert_eq!(Ran::from(&mut receiver, b"").expect(0).out, "data");
}
