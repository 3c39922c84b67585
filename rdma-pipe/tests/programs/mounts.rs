//! Tests file systems that are not local, and lack what local ones have.

use crate::common::{Place, Ran, bytes, may_not_run};
use crate::machine::is_root;

/// Makes `bin/sftp`, which serves sshfs as ssh would.
const SFTP: &str = "for server in /usr/lib/openssh /usr/lib/ssh /usr/libexec/openssh; do
        ls $server/sftp-server >&2 && break
    done
    printf '#!/bin/sh\\nexec %s/sftp-server' $server >bin/sftp && chmod 755 bin/sftp";

/// A file system may give a file another time when it is renamed, and may not be able to set its length.
#[test]
fn files_arrive_on_file_systems_that_change_times_at_a_rename() {
    let place = Place::with_tcp();
    place.write("s/small", "x");
    place.write("s/large", bytes(3_000_000));
    let script = "mkdir m && touch -d @1600000000 s/small s/large && truncate -s 64M image || exit 1
        mkfs.vfat -F 32 image >&2 && fusefat -o rw+ image m >&2 || exit 77
        trap 'fusermount -u m || umount m' EXIT
        rdcp s/small h:$PWD/m/small && rdcp s/large h:$PWD/m/large || exit 2
        cmp s/large m/large && stat -c %Y m/small m/large";
    let ran = place.shell(script);
    if matches!(ran.status, 77 | 127) {
        return may_not_run(&format!("no FAT here: {}", ran.err));
    }
    assert_eq!((ran.status, ran.out.as_str()), (0, "1600000000\n1600000000\n"), "{}", ran.err);
}

/// sshfs sets the time and the owner of the file to which a link leads, instead of those of the link.
#[test]
fn files_to_which_links_lead_do_not_change() {
    let place = Place::with_tcp();
    place.write("out/file", "x");
    let script = "mkdir s back m && ln -s $PWD/out/file s/link && touch -h -d @1500000000 s/link || exit 1
        touch -d @1600000000 out/file
        sshfs -o ssh_command=$PWD/bin/sftp h:$PWD/back m || exit 77
        trap 'fusermount -u m || umount m' EXIT
        rdcp -r s h:$PWD/m && rdcp -r --sync s/ h:$PWD/m/s || exit 2
        readlink back/s/link && ls -A back/s && stat -c %Y out/file
        chown -h 12345 s/link || exit 0
        rdcp -ra s h:$PWD/m; echo $? $(stat -c '%u %Y' out/file)";
    let ran = place.shell(&format!("{SFTP}\n{script}"));
    if matches!(ran.status, 77 | 127) {
        return may_not_run(&format!("no sshfs here: {}", ran.err));
    }
    let Ran { out, err, .. } = ran.expect(0);
    let target = place.path("out/file").display().to_string();
    assert!(out.starts_with(&format!("{target}\nlink\n1600000000\n")), "{out}");
    if is_root() {
        assert!(out.ends_with("23 0 1600000000\n"), "{out}");
        assert!(err.contains("s/link: the file system does not store it; omit -a, -p, -o or -X\n"), "{err}");
    }
}

/// sshfs stores seconds, and ext4 in inodes of 128 bytes, too.
#[test]
fn files_whose_times_are_stored_in_a_larger_unit_are_copied_once() {
    let place = Place::with_tcp();
    place.write("s/a", "x");
    place.write("s/b", "y");
    let copies = "printf y >s/b && touch -d @1600000001.7 s/a && touch -d @1600000001 s/b || exit 1
        for options in '' '' -n; do rdcp -r --sync --json $options s/ h:$PWD/m/d >report || exit 2; cat report; done
        touch -d @1600000001.999 s/b && rdcp -r --sync --json s/ h:$PWD/m/d || exit 2
        printf z >s/b && touch -d @1600000002.5 s/b && rdcp -r --sync --json s/ h:$PWD/m/d";
    let mounts = [
        "sshfs -o ssh_command=$PWD/bin/sftp h:$PWD/back m || exit 77
        trap 'fusermount -u m || umount m' EXIT",
        "truncate -s 16M image && mkfs.ext4 -q -I 128 image >&2 && mount -o loop image m || exit 77
        trap 'umount m' EXIT",
    ];
    for mount in mounts {
        let ran = place.shell(&format!("mkdir -p back m; {SFTP}; {mount}\n{copies}"));
        if matches!(ran.status, 77 | 127) {
            may_not_run(&format!("no such file system here: {}", ran.err));
            continue;
        }
        let out = ran.expect(0).out;
        let sent: Vec<Option<u64>> = serde_json::Deserializer::from_str(&out)
            .into_iter::<serde_json::Value>()
            .map(|report| report.unwrap()["bytes"].as_u64())
            .collect();
        assert_eq!(sent, [2, 0, 0, 0, 1].map(Some), "{mount}: {out}");
    }
}

/// sshfs gives each name of a file another inode.
#[test]
fn hard_links_that_exist_leave_no_other_name() {
    let place = Place::with_tcp();
    place.write("s/a", "x");
    let script = "mkdir back m && ln s/a s/b || exit 1
        sshfs -o ssh_command=$PWD/bin/sftp h:$PWD/back m || exit 77
        trap 'fusermount -u m || umount m' EXIT
        rdcp -rH --sync s/ h:$PWD/m/d && rdcp -rH --sync s/ h:$PWD/m/d || exit 2
        ls -A back/d && stat -c %h back/d/a";
    let ran = place.shell(&format!("{SFTP}\n{script}"));
    if matches!(ran.status, 77 | 127) {
        return may_not_run(&format!("no sshfs here: {}", ran.err));
    }
    assert_eq!((ran.status, ran.out.as_str()), (0, "a\nb\n2\n"), "{}", ran.err);
}
