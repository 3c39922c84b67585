//! Copies that are killed, and go on.

use std::time::Duration;

use crate::common::{Place, Ran, bytes};

/// Kills a copy at one end after some time; then the same command completes it, and sends little again.
#[test]
fn killed_copies_go_on_and_are_right() {
    for (number, place) in [Place::new(), Place::with_tcp()].iter().enumerate() {
        let data = bytes(16_000_000 + number);
        place.write("file", &data);
        let to = place.on_host("copy");
        let mut killed = 0;
        for wait in [150, 300, 450] {
            let mut command = place.command("rdcp", ["--bwlimit", "16M", "file", &to]).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(wait));
            killed += usize::from(command.try_wait().unwrap().is_none());
            command.kill().unwrap();
            command.wait().unwrap();
            assert!(!place.path("copy").exists() || place.read("copy") == data);
        }
        assert!(killed > 0);
        // The killed far side may still hold the file.
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

#[test]
fn resumed_copy_sends_the_rest_alone() {
    let place = Place::new();
    let data = bytes(60_000_000);
    place.write("file", &data);
    let to = place.on_host("copy");
    let mut command = place.command("rdcp", ["--bwlimit", "40M", "file", &to]).spawn().unwrap();
    let until = std::time::Instant::now() + Duration::from_secs(30);
    let partial = || {
        let names = place.names(".");
        let map = names.iter().find(|name| name.ends_with(".map")).cloned()?;
        Some(std::fs::metadata(place.path(&map)).ok()?.len() / 32)
    };
    while partial().is_none_or(|records| records < 60) {
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
