//! Tests of the side that receives files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

pub(crate) fn entry(name: &[u8], kind: EntryKind) -> Entry {
    Entry { name: name.to_vec(), kind, mode: 0o644, owner: (0, 0), modified: (0, 0), attributes: Vec::new() }
}

fn file(name: &[u8], size: u64) -> Entry {
    entry(name, EntryKind::File { size, has_links: false, sum: None })
}

#[test]
fn forbidden_names_are_refused() {
    for name in [b"".as_slice(), b".", b"..", b"a/b", b"/etc", b"a\0", &[b'a'; 256]] {
        assert!(Sink::new(false).list(ROOT, &[file(name, 1)], false).is_err(), "{name:?}");
    }
}

/// The limit applies to the process, so the test runs in a process of its own.
#[test]
fn list_without_memory_is_refused() {
    const ALONE: &str = "RDMA_PIPE_TEST_MEMORY";
    if std::env::var_os(ALONE).is_none() {
        let mut test = std::process::Command::new(std::env::current_exe().unwrap());
        test.args(["proto::sink::tests::list_without_memory_is_refused", "--exact", "--nocapture"]);
        // Another arena would have reserved 64 MiB already.
        let ran = test.env(ALONE, "1").env("MALLOC_ARENA_MAX", "1").output().unwrap();
        let text = [ran.stdout, ran.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(ran.status.success() && text.contains("1 passed"), "{}: {text}", ran.status);
        return;
    }
    let mut sink = Sink::new(false);
    sink.list(ROOT, &[entry(b"d", EntryKind::Directory)], false).unwrap();
    let many: Vec<Entry> = (0..200_000).map(|number| file(format!("{number}").as_bytes(), 1)).collect();
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit = pages * 4096 + (4 << 20);
    setrlimit(Resource::As, Rlimit { current: Some(limit), ..getrlimit(Resource::As) }).unwrap();
    let refused = sink.list(1, &many, true).unwrap_err();
    assert!(refused.to_string().contains("no memory"), "{refused}");
}

#[test]
fn only_directories_get_entries() {
    let mut sink = Sink::new(false);
    let link = entry(b"l", EntryKind::Link(b"/etc".to_vec()));
    let id = sink.list(ROOT, &[link, file(b"f", 1), entry(b"d", EntryKind::Directory)], false).unwrap();
    assert!(sink.list(id, &[file(b"x", 1)], false).is_err());
    assert!(sink.list(id + 1, &[file(b"x", 1)], false).is_err());
    assert!(sink.list(id + 7, &[file(b"x", 1)], false).is_err());
    sink.list(id + 2, &[file(b"x", 1)], true).unwrap();
    assert!(sink.list(id + 2, &[file(b"y", 1)], false).is_err(), "the directory was complete");
}

#[test]
fn blocks_outside_their_file_are_refused() {
    let mut sink = Sink::new(true);
    let id = sink.list(ROOT, &[file(b"f", 100)], false).unwrap();
    assert!(sink.block(id, 0, 10).is_err(), "not answered");
    sink.answer(id, Have::Until(20));
    for (offset, length) in [(95, 6), (100, 1), (u64::MAX, 2), (20, usize::MAX), (20, BLOCK + 1)] {
        assert!(sink.block(id, offset, length).is_err(), "{offset} {length}");
    }
    sink.block(id, 20, 30).unwrap();
    assert!(sink.block(id, 20, 30).is_err(), "repeated");
    assert!(sink.block(id, 0, 10).is_err(), "backwards");
    sink.block(id, 60, 40).unwrap();
    sink.close(id).unwrap();
    assert!(sink.close(id).is_err());
    assert!(sink.block(id, 100, 0).is_err());
    assert!(sink.block(id + 1, 0, 0).is_err());
}

#[test]
fn packs_fit_their_files() {
    let files = [file(b"a", 3), file(b"b", 0), file(b"c", 5)];
    let cases: [(&[(Id, u32)], usize); 6] = [
        (&[(1, 3), (3, 5)], 7),
        (&[(1, 3), (3, 5)], 9),
        (&[(1, 4)], 4),
        (&[(1, 3), (1, 3)], 6),
        (&[(4, 0)], 0),
        (&[(1, u32::MAX)], 3),
    ];
    for (pack, length) in cases {
        let mut sink = Sink::new(false);
        sink.list(ROOT, &files, true).unwrap();
        assert!(sink.pack(pack, length).is_err(), "{pack:?}");
    }
    let mut sink = Sink::new(false);
    sink.list(ROOT, &files, true).unwrap();
    sink.pack(&[(2, 0), (1, 3), (3, 5)], 8).unwrap();
    sink.end(&Totals { entries: 3, files: 3, bytes: 8, failed: 0 }).unwrap();
    assert!(sink.end(&Totals { entries: 3, files: 3, bytes: 9, failed: 0 }).is_err());
}

/// An earlier host of a chain has less.
#[test]
fn files_arrive_although_they_are_here() {
    let mut sink = Sink::new(true);
    sink.list(ROOT, &[file(b"a", 3), file(b"b", 100), file(b"c", 100), file(b"d", 5)], true).unwrap();
    sink.answer(1, Have::All);
    sink.answer(2, Have::All);
    sink.answer(3, Have::Until(50));
    sink.answer(4, Have::All);
    assert!(sink.pack(&[(1, 4)], 4).is_err() && sink.block(2, 90, 11).is_err());
    sink.pack(&[(1, 3)], 3).unwrap();
    for id in [2, 3] {
        sink.block(id, 0, 100).unwrap();
        assert!(sink.block(id, 0, 100).is_err());
        sink.close(id).unwrap();
    }
    sink.end(&Totals { entries: 4, files: 4, bytes: 203, failed: 0 }).unwrap();
    assert!(sink.close(2).is_err());
}

#[test]
fn incomplete_file_is_found_at_the_end() {
    let mut sink = Sink::new(false);
    sink.list(ROOT, &[file(b"a", 3)], true).unwrap();
    assert!(sink.end(&Totals { entries: 1, files: 1, bytes: 0, failed: 0 }).is_err());
    sink.close(1).unwrap();
    sink.end(&Totals { entries: 1, files: 1, bytes: 0, failed: 1 }).unwrap();
}

#[test]
fn repeated_names_are_refused() {
    let folder = || entry(b"d", EntryKind::Directory);
    assert!(Sink::new(false).list(ROOT, &[file(b"d", 1), folder()], false).is_err());
    let mut sink = Sink::new(false);
    let id = sink.list(ROOT, &[folder()], false).unwrap();
    sink.list(id, &[folder()], true).unwrap();
    assert!(sink.list(ROOT, &[folder()], false).is_err());
}

#[test]
fn other_names_belong_to_files() {
    let mut sink = Sink::new(false);
    sink.list(ROOT, &[entry(b"d", EntryKind::Directory), file(b"a", 0)], false).unwrap();
    for id in [0, 1, 3, 9] {
        let name = format!("h{id}");
        assert!(sink.list(ROOT, &[entry(name.as_bytes(), EntryKind::Same(id))], false).is_err(), "{id}");
    }
    sink.list(ROOT, &[entry(b"h", EntryKind::Same(2))], false).unwrap();
}

#[test]
fn names_of_several_sources_are_compared() {
    let mut sink = Sink::new(false);
    sink.list(ROOT, &[file(b"a", 0), entry(b"d", EntryKind::Directory)], true).unwrap();
    sink.list(ROOT, &[file(b"A", 0)], true).unwrap();
    assert!(sink.list(ROOT, &[file(b"a", 0)], true).is_err(), "of the first source");
    sink.list(2, &[file(b"x", 0), file(b"y", 0)], true).unwrap();
    assert!(sink.names(2).is_some_and(|names| names.has(b"x")) && sink.is_whole(2));
    sink.complete(2);
    assert!(sink.names(2).is_none());
    let alike: Vec<_> = sink.alike().map(|(dir, names)| (dir, names.len())).collect();
    assert_eq!(alike, [(ROOT, 2)]);
}
