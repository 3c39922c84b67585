//! Tests of the members of multicast groups.

use std::sync::atomic::Ordering;

use super::{end, part, until};
use crate::ipc::group::listed;
use crate::wire::address::Gid;
use crate::wire::packet::{BLOCK, Packet, Payload};
use crate::wire::transport::Routes;

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn group_finds_its_members() {
    let ends = [end(), end(), end()];
    let blocks = ends.each_ref().map(|end| end.host.claim().unwrap());
    // Only this test uses this group.
    let mut group = [0xff; 16];
    group[8..].copy_from_slice(&sideway_test_names::random().to_be_bytes());
    let group = Gid(group);
    let [sender, one, other] = &ends;
    assert!(sender.host.group(group).is_empty());
    for member in &ends {
        member.host.joined(group);
    }
    one.host.joined(Gid([0xfe; 16]));
    // An earlier snapshot is still used for a while.
    until(|| sender.host.group(group).len() == 2);
    for carrier in sender.host.group(group) {
        carrier.put(&Packet::Part(part(0xff_ffff, 0)), Payload::Bytes(&[])).unwrap();
    }
    for member in [one, other] {
        until(|| member.seen.parts.lock().unwrap().len() == 1);
    }
    assert!(sender.seen.parts.lock().unwrap().is_empty());
    other.host.left(group);
    until(|| sender.host.group(group).len() == 1);
    let carrier = sender.host.carrier(blocks[1] * BLOCK).unwrap();
    assert!(std::sync::Arc::ptr_eq(&carrier, &sender.host.group(group)[0]));
    assert_eq!(sender.seen.lost.load(Ordering::SeqCst), 0);
}

#[test]
fn block_is_listed_once_in_canonical_spelling() {
    let group = Gid([0xab; 16]);
    let line = |block: &str| {
        format!("0000: 00000003 00000000 00000000 0001 01 7 @softrnic/1/group/{}/{block}\n", "ab".repeat(16))
    };
    let names: String =
        ["1f", "01f", "+1f", "1F", "0x1f", "1f", " 2", "-3", "", "4", "100000000", "5/6"].map(line).concat();
    assert_eq!(Vec::from_iter(listed(&names, group)), [4, 0x1f]);
    assert!(listed(&names, Gid([0xac; 16])).is_empty());
}
