//! A malicious sender: frames and blocks by hand, against a real receiver.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rdma_pipe::channel::{Block, BlockKind};
use rdma_pipe::copy::{CopyOptions, Outcome, Progress, Target, receive};
use rdma_pipe::error::Result;
use rdma_pipe::link::{Link, Listener, Options, connect};
use rdma_pipe::proto::{Entry, EntryKind, Frame, Purpose, ROOT, Totals};

use crate::common::Place;

fn entry(name: &[u8], kind: EntryKind) -> Entry {
    Entry { name: name.to_vec(), kind, mode: 0o6755, owner: (0, 0), modified: (1, 0), attributes: Vec::new() }
}

fn file(name: &[u8], size: u64) -> Entry {
    entry(name, EntryKind::File { size, has_links: false, sum: None })
}

/// Receives into a folder what the attack sends.
fn attacked(target: &Path, expected: Option<&[Vec<u8>]>, attack: impl FnOnce(&mut Link) + Send) -> Result<Outcome> {
    let options =
        Options { timeout: Duration::from_secs(20), transport: trespass::Transport::Tcp, ..Options::default() };
    let listener = Listener::bind(Some("127.0.0.1:0".parse().unwrap()), 0, &options).unwrap();
    let address = [format!("127.0.0.1:{}", listener.port())];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut link = connect(&address, b"key", Purpose::Send, Duration::from_secs(20), &options).unwrap();
            attack(&mut link);
            // Whatever the answer is.
            _ = link.frame();
        });
        let (link, _) = listener.accept(b"key", None).unwrap();
        let target = Target::open(target, 1, false).unwrap();
        receive(link, target, expected, &CopyOptions::default(), &Progress::default())
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
    for name in [b"../out".as_slice(), b"..", b".", b"", b"/tmp/out", b"a/b", b"nul\0"] {
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
    // A link is no directory.
    let link_to = entry(b"l", EntryKind::Link(b"../outside".to_vec()));
    let through = attacked(&place.path("d"), None, |link| {
        list(link, ROOT, vec![link_to.clone()]);
        list(link, 1, vec![file(b"x", 1)]);
        pack(link, 2, 2);
    });
    assert!(through.is_err());
    // The link stands where a directory of the list belongs; so does one that was there before.
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
    // A file replaces a link, and does not follow it.
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
                // Each step fails if the receiver has made something meanwhile.
                _ = std::fs::rename(&sub, &real);
                _ = symlink("../outside", &sub);
                _ = std::fs::remove_file(&sub);
                _ = std::fs::rename(&real, &sub);
            }
        });
        for _ in 0..30 {
            // It may succeed or fail.
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
fn entries_that_were_not_asked_for_are_refused() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).unwrap();
    for name in [b".bashrc".as_slice(), b"authorized_keys"] {
        let ended = attacked(&place.path("d"), Some(&[b"wanted".to_vec()]), |link| {
            list(link, ROOT, vec![file(name, 1)]);
            pack(link, 1, 1);
        });
        assert!(ended.unwrap_err().to_string().contains("not asked for"));
    }
    assert_eq!(place.names("d"), [""; 0]);
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
