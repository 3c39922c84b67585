//! File systems that take several names for one.

use crate::common::{Place, may_not_run};

/// Runs a script with `m`, a file system that ignores the case of names. Returns its output, or `None` if this user
/// cannot mount one.
fn on_exfat(place: &Place, script: &str) -> Option<(i32, String)> {
    let script = format!(
        "mkdir m; truncate -s 16M image && mkfs.exfat image >&2 && device=$(losetup -f --show image) || exit 77
        trap 'losetup -d $device' EXIT
        mount.exfat-fuse $device m >&2 || exit 77
        trap 'umount m; losetup -d $device' EXIT
        {script}"
    );
    let ran = place.shell(&script);
    if matches!(ran.status, 77 | 127) {
        return None;
    }
    Some((ran.status, ran.out + &ran.err))
}

#[test]
fn entries_that_become_one_are_named() {
    let place = Place::with_tcp();
    for (name, contents) in
        [("s/A", "one"), ("s/a", "two"), ("s/D/x", "1"), ("s/d/x", "2"), ("s/dot.", "3"), ("s/u", "4")]
    {
        place.write(name, contents);
    }
    let Some((status, text)) = on_exfat(&place, "rdcp -r s h:$PWD/m; s=$?; ls m/s; exit $s") else {
        return may_not_run("no exFAT here");
    };
    assert_eq!(status, 23, "{text}");
    for (one, other) in [("A", "a"), ("D", "d")] {
        let lost =
            |name| text.contains(&format!("m/s/{name}: the file system takes its name for that of another entry"));
        assert!(lost(one) != lost(other), "{text}");
    }
    assert!(!text.contains("m/s/u:"), "{text}");
}

#[test]
fn entry_whose_name_changes_its_case_is_not_deleted() {
    let place = Place::with_tcp();
    place.write("s/readme", "new");
    place.write("s/sub/f", "x");
    let script = "mkdir -p m/d/SUB && echo old >m/d/README && echo gone >m/d/SURPLUS && echo y >m/d/SUB/G || exit 1
        rdcp --sync --delete -nr s/ h:$PWD/m/d || exit 2
        rdcp --sync --delete -r s/ h:$PWD/m/d || exit 3
        (cd m/d && find . | sort && cat readme)";
    let Some((status, text)) = on_exfat(&place, script) else { return may_not_run("no exFAT here") };
    assert_eq!(status, 0, "{text}");
    assert!(text.starts_with(".\n./readme\n./sub\n./sub/f\nnew"), "{text}");
    assert!(text.contains("deleting") && !text.contains("README"), "{text}");
}

#[test]
fn entries_of_several_sources_that_become_one_are_named() {
    let place = Place::with_tcp();
    place.write("s/A", "one");
    place.write("t/a", "two");
    let script = "mkdir m/d && rdcp -r s/. t/. h:$PWD/m/d";
    let Some((status, text)) = on_exfat(&place, script) else { return may_not_run("no exFAT here") };
    assert_eq!(status, 23, "{text}");
    assert!(text.contains("the file system takes its name for that of another entry"), "{text}");
}
