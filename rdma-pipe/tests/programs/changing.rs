//! Tests copies of sources that other processes change meanwhile.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, RenameFlags, XattrFlags};

use crate::common::{Place, Ran, remove};

/// Runs copies while another thread changes the source again and again.
fn while_changed(place: &Place, arguments: &[&str], change: impl Fn() + Sync, check: impl Fn(Ran)) {
    for _ in 0..12 {
        let is_over = AtomicBool::new(false);
        let ran = std::thread::scope(|scope| {
            scope.spawn(|| {
                // If the copy hangs, the test must nevertheless end.
                let until = Instant::now() + Duration::from_secs(70);
                while !is_over.load(Relaxed) && Instant::now() < until {
                    change();
                    std::thread::sleep(Duration::from_micros(50));
                }
            });
            let ran = place.run("rdcp", arguments.iter().copied().chain([place.on_host("d").as_str()]));
            is_over.store(true, Relaxed);
            ran
        });
        assert!(matches!(ran.status, 0 | 24), "{ran:?}");
        assert!(ran.status == 0 || ran.err.contains("changed") || ran.err.contains("vanished"), "{ran:?}");
        check(ran);
        remove(&place.path("d"));
    }
}

/// Exchanges two entries while copies run.
fn while_exchanged(place: &Place, (one, other): (&str, &str), arguments: &[&str], check: impl Fn(Ran)) {
    let (one, other) = (place.path(one), place.path(other));
    let exchange = || rustix::fs::renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    while_changed(place, arguments, exchange, check);
}

/// Creates a file with an old time, so that size and time do not distinguish files of one length.
fn old(place: &Place, name: &str, contents: &str, mode: u32) {
    let path = place.write(name, contents);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000)).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// All files below a directory.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap());
    let below = |entry: std::fs::DirEntry| match entry.file_type().unwrap().is_dir() {
        true => files(&entry.path()),
        false => vec![entry.path()],
    };
    entries.flat_map(below).collect()
}

#[test]
fn link_that_replaces_a_directory_of_the_source_is_not_followed() {
    let place = Place::with_tcp();
    for number in 0..200 {
        old(&place, &format!("s/sub/deep/f{number}"), "inside", 0o644);
        old(&place, &format!("out/deep/f{number}"), "secret", 0o644);
    }
    symlink(place.path("out"), place.path("link")).unwrap();
    while_exchanged(&place, ("s/sub", "link"), &["-r", "s"], |ran| {
        for path in files(&place.path("d")).iter().filter(|path| !path.is_symlink()) {
            assert_eq!(std::fs::read_to_string(path).unwrap(), "inside", "{ran:?}");
        }
    });
}

#[test]
fn file_that_replaces_another_brings_its_own_metadata() {
    let place = Place::with_tcp();
    for (name, contents, mode) in [("s/one/f", "public", 0o644), ("s/two/f", "secret", 0o600)] {
        old(&place, name, contents, mode);
        _ = rustix::fs::setxattr(place.path(name), "user.kind", contents.as_bytes(), XattrFlags::empty());
    }
    while_exchanged(&place, ("s/one/f", "s/two/f"), &["-a", "--tcp", "s"], |ran| {
        for path in files(&place.path("d")) {
            let contents = std::fs::read_to_string(&path).unwrap();
            let mode = path.metadata().unwrap().mode() & 0o777;
            assert_eq!(mode, if contents == "secret" { 0o600 } else { 0o644 }, "{contents}: {ran:?}");
            let mut kind = [0; 8];
            if let Ok(length) = rustix::fs::getxattr(&path, "user.kind", &mut kind) {
                assert_eq!(&kind[..length], contents.as_bytes(), "{ran:?}");
            }
        }
    });
}

#[test]
fn private_directory_that_replaces_a_public_one_stays_private() {
    let place = Place::with_tcp();
    for number in 0..50 {
        old(&place, &format!("s/one/sub/f{number}"), "public", 0o644);
        old(&place, &format!("s/two/sub/f{number}"), "secret", 0o644);
    }
    std::fs::set_permissions(place.path("s/two"), std::fs::Permissions::from_mode(0o700)).unwrap();
    while_exchanged(&place, ("s/one", "s/two"), &["-r", "s"], |ran| {
        for path in files(&place.path("d")) {
            let mode = path.parent().unwrap().parent().unwrap().metadata().unwrap().mode() & 0o777;
            let is_secret = std::fs::read(&path).unwrap() == b"secret";
            assert!(!is_secret || mode == 0o700, "{}: {mode:o} {ran:?}", path.display());
        }
    });
}

#[test]
fn entries_that_vanish_are_named() {
    let place = Place::with_tcp();
    for number in 0..50 {
        old(&place, &format!("s/sub/f{number}"), "inside", 0o644);
    }
    std::fs::create_dir(place.path("away")).unwrap();
    let (sub, away) = (place.path("s/sub"), place.path("away/sub"));
    let change = || {
        std::fs::rename(&sub, &away).unwrap();
        std::thread::sleep(Duration::from_micros(200));
        std::fs::rename(&away, &sub).unwrap();
    };
    while_changed(&place, &["-r", "s"], change, |ran| {
        assert!(ran.status == 0 || ran.err.contains("s/sub"), "{ran:?}");
    });
}

#[test]
fn files_that_shrink_and_grow_are_named_as_changed() {
    let place = Place::with_tcp();
    let paths: Vec<_> = (0..200).map(|number| place.write(&format!("s/f{number}"), [b'x'; 64])).collect();
    let change = || {
        for (path, length) in paths.iter().zip([0, 32, 64, 100_000].iter().cycle()) {
            std::fs::write(path, vec![b'y'; *length]).unwrap();
        }
        for path in &paths {
            std::fs::File::options().write(true).open(path).unwrap().set_len(16).unwrap();
        }
    };
    while_changed(&place, &["-r", "s"], change, |_| {});
}
