//! `rdpipe`.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::common::{Place, Ran, break_connections, bytes};

#[test]
fn command_of_a_host_gets_the_input() {
    for place in [Place::new(), Place::with_tcp()] {
        assert_eq!(place.run_with(b"hello\n", "rdpipe", ["h:wc -c"]).expect(0).out.trim(), "6");
    }
}

#[test]
fn data_passes_through_a_chain() {
    let place = Place::new();
    let input = "some words\n".repeat(100_000);
    let ran = place.run_with(input.as_bytes(), "rdpipe", ["a:tr a-z A-Z", "b:cat", "c:tr A-Z a-z"]).expect(0);
    assert!(ran.out == input);
}

#[test]
fn files_are_lifted_in_and_out_at_head_middle_and_end() {
    let place = Place::new();
    place.write("textfile", "some text\n");
    let ran = place.run("rdpipe", ["fs1:< textfile", "CAPS:tr [:lower:] [:upper:]", "fs2:> TEXTFILE"]).expect(0);
    assert_eq!((ran.out.as_str(), place.read("TEXTFILE").as_slice()), ("", b"SOME TEXT\n".as_slice()));
    // If a segment in the middle writes a file, the next segment starts when the file is complete.
    let ran = place.run_with(b"abc", "rdpipe", ["a:> one", "b:cat one", "c:>> all", "d:< all"]).expect(0);
    assert_eq!(ran.out, "abc");
    let ran = place.run_with(b"def", "rdpipe", ["a:>> all", "b:< all"]).expect(0);
    assert_eq!(ran.out, "abcdef");
    // If the segment has no input, the file is truncated or created.
    place.run("rdpipe", ["a:> new", "b:>> one", "c:> all"]).expect(0);
    assert_eq!((place.read("new").len(), place.read("one").len(), place.read("all").len()), (0, 3, 0));
}

#[test]
fn first_segment_without_host_runs_here() {
    let place = Place::new();
    assert_eq!(place.run("rdpipe", ["echo data", "h:wc -c"]).expect(0).out.trim(), "5");
}

#[test]
fn status_is_that_of_the_first_segment_that_failed() {
    let place = Place::new();
    let ran = place.run("rdpipe", ["a:cat", "b:cat > /dev/null; exit 3", "c:cat; exit 4"]).expect(3);
    assert!(ran.err.contains("segment 2 at b failed with status 3"), "{}", ran.err);
    let ran = place.run("rdpipe", ["a:< missing", "b:cat"]).expect(23);
    assert!(ran.err.contains("cannot read missing"), "{}", ran.err);
    let ran = place.run("rdpipe", ["a:kill -9 $$", "b:cat"]).expect(137);
    assert_eq!(ran.out, "");
}

#[test]
fn reader_that_has_enough_ends_the_pipeline() {
    let place = Place::new();
    assert_eq!(place.run("rdpipe", ["a:yes", "b:head -n 2"]).expect(0).out, "y\ny\n");
}

#[test]
fn killed_starter_leaves_no_command() {
    let place = Place::new();
    let marker = format!("31{}.5", sideway_test_names::random() % 1_000_000_000);
    let command = [format!("a:exec sleep {marker}"), "b:cat".to_owned()];
    let mut starter = place.command("rdpipe", command).stdin(Stdio::piped()).spawn().unwrap();
    let runs = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.map(|process| fs::read(process.path().join("cmdline")).unwrap_or_default());
        lines.filter(|line| line.starts_with(b"sleep") && String::from_utf8_lossy(line).contains(&marker)).count()
    };
    let wait = |count: usize| {
        let until = Instant::now() + Duration::from_secs(60);
        while runs() != count {
            assert!(Instant::now() < until, "{} commands instead of {count}", runs());
            std::thread::sleep(Duration::from_millis(10));
        }
    };
    wait(1);
    starter.kill().unwrap();
    starter.wait().unwrap();
    wait(0);
}

/// The terminal sends the signal of Ctrl-C to all processes of its foreground group.
#[test]
fn interrupted_starter_leaves_no_command() {
    let place = Place::new();
    for signal in [Signal::INT, Signal::HUP, Signal::QUIT] {
        // In a shell without job control, and under nohup, this process ignores some of the signals.
        let words = ["--default-signal=HUP,INT,QUIT", "rdpipe", "echo $$ > pid; exec sleep 1000", "cat"];
        let mut starter = place.prepare(Command::new("env"), words).process_group(0).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let written = || fs::read_to_string(place.path("pid")).unwrap_or_default();
        while !written().ends_with('\n') {
            assert!(Instant::now() < until && starter.try_wait().unwrap().is_none(), "the command does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        rustix::process::kill_process_group(Pid::from_child(&starter), signal).unwrap();
        starter.wait().unwrap();
        let command = PathBuf::from(format!("/proc/{}/cmdline", written().trim()));
        while fs::read(&command).is_ok_and(|line| line.starts_with(b"sleep")) {
            assert!(Instant::now() < until, "the command survives {signal:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        fs::remove_file(place.path("pid")).unwrap();
    }
}

/// Commands end also if they ignore SIGTERM, and with them what they have started.
#[test]
fn killed_starter_leaves_no_command_that_ignores_sigterm() {
    let place = Place::new();
    let command = "a:trap '' TERM; echo $$ > outer; (echo $(exec sh -c 'echo $PPID') > inner; \
                   while :; do sleep 0.1; done)";
    for signal in [Signal::KILL, Signal::TERM] {
        let errors = fs::File::create(place.path("errors")).unwrap();
        let mut starter = place.command("rdpipe", [command, "b:cat"]);
        let mut starter = starter.stdin(Stdio::piped()).stderr(errors).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        let pid = |name: &str| {
            let text = fs::read_to_string(place.path(name)).ok()?;
            text.strip_suffix('\n')?.parse().ok().and_then(Pid::from_raw)
        };
        let pids = loop {
            if let (Some(outer), Some(inner)) = (pid("outer"), pid("inner")) {
                break [outer, inner];
            }
            let said = || fs::read_to_string(place.path("errors"));
            let ended = starter.try_wait().unwrap();
            assert!(Instant::now() < until && ended.is_none(), "the command does not start: {ended:?} {:?}", said());
            std::thread::sleep(Duration::from_millis(10));
        };
        rustix::process::kill_process(Pid::from_child(&starter), signal).unwrap();
        starter.wait().unwrap();
        for pid in pids {
            // A zombie has ended.
            let lives = || {
                let path = format!("/proc/{}/stat", pid.as_raw_nonzero());
                fs::read_to_string(path).is_ok_and(|stat| !stat.contains(") Z "))
            };
            while lives() {
                assert!(Instant::now() < until, "the command still runs");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        fs::remove_file(place.path("outer")).unwrap();
        fs::remove_file(place.path("inner")).unwrap();
    }
}

/// The remedy names this program and its own option.
#[test]
fn missing_far_side_is_named() {
    let place = Place::new();
    let ran = place.run("rdpipe", ["--rdpipe-path", "./missing", "h:cat"]).expect(12);
    assert!(ran.err.contains("rdpipe is not installed") && ran.err.contains("--rdpipe-path"), "{}", ran.err);
    let ran = place.run("rdcp", ["--rdcp-path", "./missing", "bin/ssh", "h:copy"]).expect(12);
    assert!(ran.err.contains("rdcp is not installed") && ran.err.contains("--rdcp-path"), "{}", ran.err);
}

/// A remote shell may end only when its standard input does.
#[test]
fn shells_end_with_their_input() {
    let place = Place::new();
    let shell = place.write(
        "lingers",
        "#!/bin/sh\nhost=$1; shift\nmkfifo $host\n\
         SSH_CONNECTION='1 1 127.0.0.1 22' sh -c \"$*\" < $host &\ncat > $host\nwait && echo $host >> ended\n",
    );
    fs::set_permissions(shell, fs::Permissions::from_mode(0o755)).unwrap();
    let ran = place.run_with(b"data", "rdpipe", ["-e", "./lingers", "h:cat", "i:cat"]).expect(0);
    // A shell that is killed writes nothing.
    let mut ended = place.read("ended");
    ended.sort_unstable();
    assert_eq!((ran.out.as_str(), ended.as_slice()), ("data", b"\n\nhi".as_slice()));
}

#[test]
fn large_input_arrives_whole() {
    let place = Place::new();
    let data = bytes(5_000_000);
    place.write("data", &data);
    place.run("rdpipe", ["a:< data", "b:cat", "c:> copy"]).expect(0);
    assert!(place.read("copy") == data);
}

#[test]
fn pipeline_continues_over_other_connections() {
    let place = Place::with_tcp();
    let data = bytes(12_000_000);
    let mut starter = place.command("rdpipe", ["a:cat", "b:cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let (mut input, mut output) = (starter.stdin.take().unwrap(), starter.stdout.take().unwrap());
    let count = AtomicUsize::new(0);
    let arrived = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut bytes, mut part) = (Vec::new(), vec![0; 1 << 16]);
            while let length @ 1.. = output.read(&mut part).unwrap() {
                bytes.extend_from_slice(&part[..length]);
                count.store(bytes.len(), Ordering::Relaxed);
            }
            bytes
        });
        for (number, part) in data.chunks(1_000_000).enumerate() {
            let before = count.load(Ordering::Relaxed);
            input.write_all(part).unwrap();
            // The stream fails after several consecutive connections without progress, so a slow machine needs time.
            let end = Instant::now() + Duration::from_secs(60);
            while count.load(Ordering::Relaxed) == before && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            let process = match number % 3 {
                0 => Some(Pid::from_child(&starter)),
                1 => place.far_side("a"),
                _ => place.far_side("b"),
            };
            break_connections(process.unwrap());
        }
        drop(input);
        reading.join().unwrap()
    });
    assert!(starter.wait().unwrap().success());
    assert!(arrived == data, "{} bytes", arrived.len());
}

/// The segment that fails is named, not its neighbours, whose connections it ends.
#[test]
fn segment_that_is_killed_or_stopped_is_named() {
    let fails = |failing: usize, signal: Signal, status: i32, is_idle: bool| {
        let place = Place::new();
        // Only a segment that is stopped is noticed by its silence. Busy segments are silent too, but not as long.
        let timeout = if signal == Signal::STOP { "10" } else { "60" };
        let words = ["--timeout", timeout, "h1:cat", "h2:cat", "h3:cat"];
        let mut pipe = place.command("rdpipe", words).stdin(Stdio::piped()).spawn().unwrap();
        let mut input = pipe.stdin.take().unwrap();
        // The segments are connected if the data has passed through all of them.
        let begun = input.write_all(b"begun").and_then(|()| pipe.stdout.as_mut().unwrap().read_exact(&mut [0; 5]));
        if let Err(error) = begun {
            panic!("{failing}, {signal:?}: {error}: {}", Ran::from(&mut pipe, b"").err);
        }
        let far_side = place.far_side(&format!("h{failing}")).unwrap();
        rustix::process::kill_process(far_side, signal).unwrap();
        // The first command may wait for input until the end.
        let idle = Some(input).filter(|_| is_idle);
        // A segment that is stopped has the standard error open.
        pipe.wait().unwrap();
        // A segment that was killed has ended already.
        _ = rustix::process::kill_process(far_side, Signal::KILL);
        drop(idle);
        let ran = Ran::from(&mut pipe, b"").expect(status);
        let errors: Vec<&str> = ran.err.lines().filter(|line| line.starts_with("rdpipe: ")).collect();
        let named = format!("rdpipe: segment {failing} at h{failing}: the far side ");
        assert!(errors.len() == 1 && errors[0].starts_with(&named), "{failing}, {signal:?}: {}", ran.err);
    };
    std::thread::scope(|scope| {
        for failing in 1..=3 {
            scope.spawn(move || fails(failing, Signal::KILL, 12, false));
            scope.spawn(move || fails(failing, Signal::KILL, 12, true));
            scope.spawn(move || fails(failing, Signal::STOP, 30, false));
        }
    });
}

/// The remote shell, or a login script that it runs, may print before the far side starts, and may do nothing at all.
#[test]
fn other_output_of_the_remote_shell_is_skipped_and_silence_is_an_error() {
    let place = Place::new();
    place.write("in", "data");
    let ssh = String::from_utf8(place.read("bin/ssh")).unwrap();
    let shells = [
        ("printf 'no line break '", None),
        ("seq 1000", None),
        ("yes", Some("the remote shell printed \"y\\ny\\n")),
        ("exec cat /dev/zero", Some("instead of a reply")),
        ("exec sleep 1000", Some("the far side was silent for 1 s")),
        ("exec >&-; exec sleep 1000", Some("the far side has closed its output")),
        ("exit 0", Some("without a reply; check that `ssh h rdcp --version` prints the version")),
    ];
    for (line, error) in shells {
        place.write("bin/ssh", ssh.replace("shift\nSSH", &format!("shift\n{line}\nSSH")));
        let to = place.on_host("out");
        // Both programs start the far side by the same function, which takes its time to find that it is silent.
        let copy = vec!["rdcp", "--timeout", "1", "in", &to];
        let pipe = error.is_none().then(|| vec!["rdpipe", "--timeout", "1", "h:cat"]);
        for words in std::iter::once(copy).chain(pipe) {
            let ran = place.run_with(b"data", words[0], &words[1..]);
            match error {
                None => assert_eq!(ran.status, 0, "{line}: {ran:?}"),
                Some(error) => assert!(ran.status != 0 && ran.err.contains(error), "{line}: {ran:?}"),
            }
        }
    }
    // The request does not fit into the pipe to a program that does not read it.
    place.write("bin/ssh", "#!/bin/sh\nexec sleep 1000\n");
    let excluded = "x".repeat(100_000);
    let ran = place.run("rdcp", ["--timeout", "1", "--exclude", &excluded, "in", &place.on_host("out")]).expect(30);
    assert!(ran.err.contains("the far side was silent for 1 s"), "{}", ran.err);
}
