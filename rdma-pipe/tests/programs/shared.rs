//! Tests files of the destination that have other names (hard links), inside or outside of the copy.

use std::os::unix::fs::MetadataExt as _;

use rustix::fs::XattrFlags;

use crate::common::{Place, bytes, may_not_run, remove};
use crate::directories::access_list;
use crate::machine::receive_as_other;

/// Describes files: name, permissions, owner, number of names, time.
fn list(place: &Place, names: &str) -> String {
    place.shell(&format!("stat -c '%n %a %u %g %h %Y' {names}")).expect(0).out
}

/// A name outside of the destination stands for a file that the copy must not change.
#[test]
fn file_outside_the_destination_is_not_changed_through_a_hard_link() {
    let place = Place::new();
    for options in ["-a --sync", "-rp --sync", "-aH --sync", "-r --sync -c", "-aH --sync -c"] {
        for to in ["d", "h:$PWD/d"] {
            place.write("s/x", "OUT");
            place.write("s/large", bytes(9 << 20));
            place.shell("cp -r s outside && cp -rl outside d && chmod 777 s/* && chmod 600 d/*").expect(0);
            place.shell("touch -d @1000 s/* d/*").expect(0);
            if options.ends_with("-c") {
                place.shell("touch -d @2000 s/*").expect(0);
            }
            let before = list(&place, "outside/*").replace(" 2 1000", " 1 1000");
            place.shell(&format!("rdcp {options} s/ {to}")).expect(0);
            assert_eq!(list(&place, "outside/*"), before, "{options} {to}");
            let keeps_mode = !options.contains('p') && !options.contains('a');
            let copied = if keeps_mode { "600\n600\n" } else { "777\n777\n" };
            assert_eq!(place.shell("stat -c %a d/*").out, copied, "{options} {to}");
            assert_eq!(place.shell("stat -c %Y d/*").out, place.shell("stat -c %Y s/*").out, "{options} {to}");
            place.shell("diff -r s d && diff -r s outside").expect(0);
            assert_eq!(place.names("d"), ["large", "x"]);
            ["s", "d", "outside"].iter().for_each(|name| remove(&place.path(name)));
        }
    }
}

/// One of the files is private at the source.
#[test]
fn names_that_are_linked_only_at_the_destination_get_their_own_metadata() {
    let place = Place::new();
    for (first, second) in [(600, 644), (644, 600), (600, 600), (640, 640)] {
        for options in ["-a --sync", "-rp --sync", "-rpX --sync"] {
            place.shell("mkdir s d; echo A > s/a; echo A > s/b; echo A > d/a; touch -d @1000 s/* d/*").expect(0);
            place.shell(&format!("chmod {first} s/a; chmod {second} s/b; chmod 644 d/a; ln d/a d/b")).expect(0);
            let run =
                || place.shell(&format!("rdcp -q {options} s/ d; stat -c '%n %a %Y' d/* && cat d/*")).expect(0).out;
            let expected = format!("d/a {first} 1000\nd/b {second} 1000\nA\nA\n");
            assert_eq!((run(), run()), (expected.clone(), expected), "{options}");
            ["s", "d"].iter().for_each(|name| remove(&place.path(name)));
        }
    }
}

/// With `-H`, the names of a file of the source stay the names of one file.
#[test]
fn linked_names_of_the_copy_stay_and_others_are_left_out() {
    let place = Place::new();
    let inode = |name: &str| place.path(name).metadata().unwrap().ino();
    // The other names of the file `d/a`: those of the copy, some of them, or others. `d/z` gets other contents first.
    for (links, stays) in [("d/b d/sub/c", true), ("d/b", true), ("out", false), ("d/b out", false), ("d/z", true)] {
        place.shell("mkdir -p s/sub d/sub; echo A > s/a; ln s/a s/b; ln s/a s/sub/c; echo Z > s/z").expect(0);
        place.shell("echo A > d/a; touch -d @1000 s/a d/a; chmod 640 s/a; chmod 600 d/a").expect(0);
        place.shell(&format!("for link in {links}; do ln d/a $link; done")).expect(0);
        let before = inode("d/a");
        place.shell("rdcp -a --sync s/ d").expect(0);
        assert_eq!(inode("d/a") == before, stays, "{links}");
        assert_eq!((inode("d/a"), inode("d/b")), (inode("d/sub/c"), inode("d/sub/c")), "{links}");
        let names = "d/a 640 0 0 3 1000\nd/b 640 0 0 3 1000\nd/sub/c 640 0 0 3 1000\n";
        let owner =
            format!(" {} {} ", place.path("s").metadata().unwrap().uid(), place.path("s").metadata().unwrap().gid());
        assert_eq!(list(&place, "d/a d/b d/sub/c"), names.replace(" 0 0 ", &owner), "{links}");
        place.shell("[ $(cat d/z) = Z ] && [ $(cat d/a) = A ]").expect(0);
        if links.contains("out") {
            place.shell("[ $(stat -c '%a %h' out | tr ' ' -) = 600-1 ]").expect(0);
        }
        ["s", "d", "out"].iter().for_each(|name| remove(&place.path(name)));
    }
}

/// A snapshot shares its files with the one before. A file with equal metadata stays shared.
#[test]
fn equal_files_stay_shared_and_holes_stay_holes() {
    let place = Place::new();
    std::fs::create_dir(place.path("d")).unwrap();
    place.write("d/keep", "");
    let is_other = receive_as_other(&place);
    let to = if is_other { "h:$PWD/d" } else { "d" };
    place.write("s/f", "data");
    place.shell("truncate -s 30M s/holes && echo end >> s/holes && mkfifo s/fifo && ln -s nowhere s/link").expect(0);
    let inodes = |folder: &str| place.shell(&format!("cd {folder} && stat -c %i f holes fifo link")).expect(0).out;
    place.shell(&format!("rdcp -a --sync s/ {to} && cp -al d before")).expect(0);
    place.shell(&format!("rdcp -a --sync s/ {to}")).expect(0);
    assert_eq!(inodes("d"), inodes("before"), "as another user: {is_other}");
    // All of them differ, and none is changed in the snapshot before.
    let before = list(&place, "before/*");
    place.shell("chmod 604 s/f s/holes s/fifo && touch -h -d @1000 s/f s/holes s/fifo s/link && rm d/keep").expect(0);
    let files = if is_other { "f holes" } else { "f holes fifo link" };
    place.shell(&format!("touch -d @1000 d/f d/holes; rdcp -a --sync s/ {to}")).expect(0);
    for name in files.split(' ') {
        let of = |folder: &str| place.shell(&format!("stat -c '%a %Y' {folder}/{name}")).expect(0).out;
        assert_eq!(of("d"), of("s"), "{name}");
    }
    let kept = |list: &str| -> Vec<String> {
        let lines = list.lines().filter(|line| !line.contains("/keep"));
        lines.map(|line| line.split(' ').take(4).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(kept(&list(&place, "before/*")), kept(&before));
    place.shell("cmp s/holes d/holes && [ $(stat -c %b d/holes) -lt 100 ]").expect(0);
}

/// As with an entry that has no other name, what the options do not name stays: owner, mode, set-ID bits, attributes.
#[test]
fn entry_in_the_place_of_a_shared_one_keeps_what_the_copy_does_not_set() {
    let place = Place::new();
    let set = |name: &str, attribute: &str, value: &[u8]| {
        rustix::fs::lsetxattr(place.path(name), attribute, value, XattrFlags::empty()).is_ok()
    };
    let make = "mkdir s d && echo data > s/f && mkfifo s/p && ln -s nowhere s/l && cp -a s/. d
        chown -h 12345:12346 d/* && chmod 6751 d/f && chmod 621 d/p && touch -h -d @1000 s/* && touch -h -d @2000 d/*";
    let list = access_list([7, 5, 1, 5, 1]);
    if place.shell(make).status != 0
        || !set("d/f", "user.k", b"value")
        || !["d/f", "d/p"].iter().all(|name| set(name, "system.posix_acl_access", &list))
        || !["d/f", "d/p", "d/l"].iter().all(|name| set(name, "trusted.k", b"value"))
    {
        may_not_run("this user cannot set owners or attributes");
        return;
    }
    place.shell("chmod 6751 d/f && cp -a d alone && cp -al d before").expect(0);
    let found = |folder: &str| {
        let attributes = ["f", "p", "l"].map(|name| {
            let path = place.path(folder).join(name);
            ["user.k", "system.posix_acl_access", "trusted.k"].map(|attribute| {
                let mut value = vec![0; 100];
                rustix::fs::lgetxattr(&path, attribute, value.as_mut_slice()).map(|length| value[..length].to_vec())
            })
        });
        (place.shell(&format!("cd {folder} && stat -c '%n %a %u %g' f p l")).expect(0).out, attributes)
    };
    let before = found("d");
    for options in ["-r", "-rH", "-rp", "-ro", "-rX", "-a"] {
        place.shell("rm -rf d apart && cp -al before d && cp -a alone apart").expect(0);
        for to in ["d", "apart"] {
            place.shell(&format!("rdcp {options} -D --sync -c s/ {to}")).expect(0);
        }
        assert_eq!(found("d"), found("apart"), "{options}");
        assert_eq!(found("d") == before, ["-r", "-rH"].contains(&options), "{options}");
        assert_eq!(found("before"), before, "{options}");
        place.shell("[ $(stat -c %Y d/f d/p d/l | sort -u) = 1000 ] && [ $(stat -c %h d/f) = 1 ]").expect(0);
    }
}
