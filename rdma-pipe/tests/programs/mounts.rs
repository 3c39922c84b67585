//! Tests file systems that are not local, and lack what local ones have.

use crate::common::{Place, bytes, may_not_run};
use crate::machine::is_root;

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
        for server in /usr/lib/openssh /usr/lib/ssh /usr/libexec/openssh; do ls $server/sftp-server && break; done >&2
        printf '#!/bin/sh\\nexec %s/sftp-server' $server >bin/sftp && chmod 755 bin/sftp
        sshfs -o ssh_command=$PWD/bin/sftp h:$PWD/back m || exit 77
        trap 'fusermount -u m || umount m' EXIT
        rdcp -r s h:$PWD/m && rdcp -r --sync s/ h:$PWD/m/s || exit 2
        readlink back/s/link && ls -A back/s && stat -c %Y out/file
        chown -h 12345 s/link || exit 0
        rdcp -ra s h:$PWD/m; echo $? $(stat -c '%u %Y' out/file)";
    let ran = place.shell(script);
    if matches!(ran.status, 77 | 127) {
        return may_not_run(&format!("no sshfs here: {}", ran.err));
    }
    let out = ran.expect(0).out;
    let target = place.path("out/file").display().to_string();
    assert!(out.starts_with(&format!("{target}\nlink\n1600000000\n")), "{out}");
    if is_root() {
        assert!(out.ends_with("23 0 1600000000\n"), "{out}");
    }
}
