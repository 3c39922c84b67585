//! softrnic's iWARP device and the kernel's siw as peers, in two network namespaces: one has siw, the other only TCP.

mod connects;
mod errors;
mod messages;
mod peer;

use std::env;
use std::path::Path;

use sideway_tests::hosts::Hosts;
use sideway_tests::interface::CHANGE_NETWORK;
use sideway_tests::requirements::may_not_run;

pub(super) use crate::kernel_peer::{LIMIT, Peer, Peers};

/// Returns `None`, and reports that the test did not run, if the kernel has no siw.
fn peers() -> Option<Peers> {
    if !Path::new("/sys/module/siw").exists() || env::var_os(CHANGE_NETWORK).is_none() {
        may_not_run("the kernel lacks siw, or tests may not change its network");
        return None;
    }
    Some(Peers::new(Hosts::new()?, "softiw0", ("siw_0", "siw")))
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn programs_connect_in_both_roles() {
    let Some(peers) = peers() else { return };
    for programs in [
        ["rping -s -C 20 -v", "our rping -c -C 20 -v -a"],
        ["our rping -s -C 5 -S 65000", "rping -c -C 5 -S 65000 -a"],
        ["ib_send_bw -R -F -n 100 -s 65536", "ib_send_bw -R -F -n 100 -s 65536"],
        ["ib_write_bw -R -F -n 100 -s 65536", "ib_write_bw -R -F -n 100 -s 65536"],
        ["ib_read_lat -R -F -n 100 -s 64", "ib_read_lat -R -F -n 100 -s 64"],
    ] {
        peers.play(programs);
    }
}

#[test]
#[ignore = "needs the kernel's siw: cargo xtask test --ring softroce"]
fn messages_of_every_kind_and_size_arrive() {
    let Some(peers) = peers() else { return };
    let all = [
        "write bw -R -s 1,1443,64K",
        "read bw -R -s 1,1443,64K -q 4",
        "send bw -R -s 1,1443,64K",
        "send lat -R -s 64,4K -e",
    ];
    peers.measure(&all, "over iWARP");
}
