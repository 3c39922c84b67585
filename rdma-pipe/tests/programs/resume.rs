//! Tests copies that are killed and resumed.

use std::time::Duration;

use rdma_pipe::channel::BLOCK;
use rdma_pipe::copy::{CopyOptions, Progress, send};
use rdma_pipe::error::Kind;
use rdma_pipe::link::{Listener, Options, Patience, Received, connect};
use rdma_pipe::proto::{Frame, Have, Peer, Purpose};
use rdma_pipe::tree::Origin;
use rustix::process::{Signal, kill_process};

use crate::common::{Place, Ran, bytes};

/// Kills one end of a copy after some time. The same command must then complete the copy, and send only a few blocks
/// again.
#[test]
fn killed_copies_resume_and_are_correct() {
    for (number, place) in [Place::new(), Place::with_tcp()].iter().enumerate() {
        let data = bytes(16_000_000 + number);
        place.write("file", &data);
        let to = place.on_host("copy");
        let mut killed = 0;
        for wait in [150, 300, 450] {
            let mut command = place.command("rdcp", ["--bwlimit", "4M", "file", &to]).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(wait));
            killed += usize::from(command.try_wait().unwrap().is_none());
            command.kill().unwrap();
            command.wait().unwrap();
            assert!(!place.path("copy").exists() || place.read("copy") == data);
        }
        assert!(killed > 0);
        // The killed far side may still have the file open.
        let mut command = place.command("rdcp", ["--json", "file", &to]).spawn().unwrap();
        let mut ran = Ran::from(&mut command, b"");
        while ran.status == 23 && ran.err.contains("another transfer") {
            std::thread::sleep(Duration::from_millis(50));
            ran = place.run("rdcp", ["--json", "file", &to]);
        }
        ran.expect(0);
        assert!(place.read("copy") == data);
        assert_eq!(place.names("."), ["bin", "copy", "file"]);
    }
}

/// The number of whole blocks that a copy into this folder has written.
fn blocks(place: &Place, folder: &str) -> usize {
    place.partial(folder).map_or(0, |(_, length)| length as usize / BLOCK)
}

#[test]
fn resumed_copy_sends_only_the_rest() {
    let place = Place::new();
    let data = bytes(60_000_000);
    place.write("file", &data);
    let to = place.on_host("copy");
    let mut command = place.command("rdcp", ["--bwlimit", "10M", "file", &to]).spawn().unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(60);
    while blocks(&place, ".") < 60 {
        assert!(std::time::Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    command.kill().unwrap();
    command.wait().unwrap();
    let sent = loop {
        let ran = place.run("rdcp", ["--json", "file", &to]);
        if ran.status == 0 {
            let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
            break report["bytes"].as_u64().unwrap();
        }
        assert!(ran.err.contains("another transfer"), "{ran:?}");
    };
    assert!(sent < 50_000_000, "{sent} of 60,000,000 bytes were sent again");
    assert!(place.read("copy") == data);
}

/// Kills either end of the copy of a tree at random moments, and after a random number of blocks. After each kill, the
/// same command must complete the copy. `RDPIPE_KILLS` sets the number of kills.
#[test]
fn copies_killed_at_random_moments_are_correct() {
    let kills = std::env::var("RDPIPE_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let place = [Place::new(), Place::with_tcp()];
    let large = bytes(24_000_000);
    for place in &place {
        place.write("tree/large", &large);
        (0..50).for_each(|number| _ = place.write(&format!("tree/d/small{number}"), bytes(number * 997)));
    }
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = |limit: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) % limit
    };
    let (mut killed, mut resumed) = (0, 0);
    for attempt in 0.. {
        if killed == kills {
            break;
        }
        let place = &place[random(2) as usize];
        let to = place.on_host("copy");
        let arguments = ["-r", "--sync", "--delete", "--json", "--no-encrypt", "tree/", &to];
        let mut command = place.command("rdcp", arguments.iter().chain(&["--bwlimit", "40M"])).spawn().unwrap();
        // Both kinds are needed: a moment may be before the first block, and on a busy machine it often is.
        if attempt % 2 == 0 {
            std::thread::sleep(Duration::from_millis(random(700)));
        } else {
            let some = 4 + random(24) as usize;
            while blocks(place, "copy") < some && command.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        match place.far_side("h").filter(|_| random(2) == 0) {
            // The far side may have exited in the meantime.
            Some(far) => _ = kill_process(far, Signal::KILL),
            None => _ = command.kill(),
        }
        killed += usize::from(Ran::from(&mut command, b"").status != 0);
        // Waits until the server process of the killed starter has exited and so closed its files.
        while place.far_side("h").is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let names = if place.path("copy").exists() { place.names("copy") } else { Vec::new() };
        let is_whole = names.contains(&"large".to_owned());
        assert!(!is_whole || place.read("copy/large") == large);
        let durable = if is_whole { large.len() } else { blocks(place, "copy") * BLOCK };
        let ran = place.run("rdcp", arguments).expect(0);
        let report: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
        let (sent, small) = (report["bytes"].as_u64().unwrap(), (0..50).map(|number| number * 997).sum::<u64>());
        assert!(
            sent <= (large.len() - durable.min(large.len())) as u64 + small,
            "{sent} bytes were sent, although {durable} existed"
        );
        resumed += usize::from(durable != 0 && !is_whole);
        let mut compare = std::process::Command::new("diff");
        let same = compare.arg("-r").args(["tree", "copy"].map(|name| place.path(name))).status();
        assert!(same.unwrap().success());
        std::fs::remove_dir_all(place.path("copy")).unwrap();
    }
    assert!(resumed * 4 >= killed, "{resumed} of {killed} copies were resumed");
}

/// The link breaks after one block of each connection. The copy continues only while files grow.
#[test]
fn connections_that_complete_nothing_end_the_copy() {
    let place = Place::new();
    let paths = [place.write("file", bytes(16 * BLOCK))];
    let timeout = Duration::from_secs(60);
    let options = Options { timeout, transport: trespass::Transport::Tcp, ..Options::default() };
    let most = 12;
    for (grows, expected) in [(false, 5), (true, most)] {
        let listener = Listener::bind(Some("127.0.0.1:0".parse().unwrap()), 0, &options).unwrap();
        let peer = Peer::unnamed(format!("127.0.0.1:{}", listener.port()), b"key");
        let connections = std::sync::atomic::AtomicUsize::new(0);
        let count = || connections.load(std::sync::atomic::Ordering::SeqCst);
        let connecting = || {
            let number = connections.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let patience = Patience::Coming(if number < most { timeout } else { Duration::ZERO });
            connect(&peer, Purpose::Send, patience, &options)
        };
        let has_ended = std::sync::atomic::AtomicBool::new(false);
        let ended = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let result = send(
                    |_| connecting(),
                    Vec::new(),
                    &Origin::default(),
                    &paths,
                    &CopyOptions::default(),
                    &Progress::default(),
                );
                has_ended.store(true, std::sync::atomic::Ordering::SeqCst);
                result
            });
            scope.spawn(|| {
                let mut number = 0;
                while number < most && !has_ended.load(std::sync::atomic::Ordering::SeqCst) {
                    let until = std::time::Instant::now() + Duration::from_secs(4);
                    let Ok((mut link, _)) = listener.accept(b"key", Some(until)) else { continue };
                    while let Ok(received) = link.receiver.receive() {
                        match received {
                            Received::Frame(Frame::List { .. }) => {
                                let have = number as u64 * BLOCK as u64;
                                let have = if grows && have > 0 { Have::Check(have) } else { Have::Until(0) };
                                link.sender.frame(&Frame::Have(vec![(1, have)])).unwrap();
                            }
                            Received::Frame(Frame::Sums { sums, last: true, .. }) => {
                                assert_eq!(sums.len(), number);
                                let have = Have::Until(number as u64 * BLOCK as u64);
                                link.sender.frame(&Frame::Have(vec![(1, have)])).unwrap();
                            }
                            Received::Block(..) => break,
                            _ => {}
                        }
                    }
                    number += 1;
                }
                drop(listener);
            });
            sending.join().unwrap()
        });
        assert_eq!(ended.map(drop).unwrap_err().kind(), Kind::Broken);
        assert_eq!(count().min(most), expected, "the file grows: {grows}");
    }
}
