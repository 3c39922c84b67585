//! Compares this project's programs with others: `cargo bench -p rdma-pipe --bench side_by_side -- [ROUNDS] [ROW...]`.
//!
//! Each row compares several bash scripts that do the same task. Each round runs the scripts of a row one after
//! another, in the same order, and compares each copy with its source. Scripts whose program is not in `PATH` are left
//! out. The variable `ORIGINAL` names a folder with the original rdma-pipe, in which three faults were fixed.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program that prints its table")]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Instant;

use rdma_pipe::tree::temporary_name;
use sideway_test_names::{Folder, Port};

/// A row: its name, and its scripts. Each script has a name, the program that it requires, and its text. What precedes
/// `::` is not measured.
type Row = (&'static str, &'static [(&'static str, &'static str, &'static str)]);

const ROWS: &[Row] = &[
    (
        "stream of 1 GiB to /dev/null",
        &[
            ("rdsend, softrnic", "", "rdrecv $P k >/dev/null & rdsend 127.0.0.1 $P k <$S/big; wait $!"),
            ("rdsend, TCP", "", "rdrecv --tcp $P k >/dev/null & rdsend --tcp 127.0.0.1 $P k <$S/big; wait $!"),
            (
                "rdsend, TCP in clear",
                "",
                "rdrecv --tcp $P k >/dev/null & rdsend --tcp --no-encrypt 127.0.0.1 $P k <$S/big; wait $!",
            ),
            (
                "original, softrnic",
                "$ORIGINAL/rdsend",
                "$O/rdrecv $P k >/dev/null & $O/rdsend 127.0.0.1 $P k <$S/big; wait $!",
            ),
            (
                "nc",
                "nc",
                "nc -l 127.0.0.1 $P >/dev/null & until nc -N 127.0.0.1 $P <$S/big; do sleep .01; done; wait $!",
            ),
        ],
    ),
    (
        "file of 1 GiB to a file",
        &[
            ("rdcp, softrnic", "", "rdcp -e $S/ssh $S/big h:$D/big"),
            ("rdcp, TCP", "", "rdcp -e $S/ssh --tcp $S/big h:$D/big"),
            ("rdcp, TCP in clear", "", "rdcp -e $S/ssh --tcp --no-encrypt $S/big h:$D/big"),
            (
                "original, softrnic",
                "$ORIGINAL/rdsend",
                "$O/rdrecv $P k >$D/big & $O/rdsend 127.0.0.1 $P k <$S/big; wait $!",
            ),
            ("rsync, local", "rsync", "rsync -aW $S/big $D/"),
            (
                "mbuffer",
                "mbuffer",
                "mbuffer -q -s 1M -m 64M -I $P -o $D/big & sleep .1; mbuffer -q -s 1M -m 64M -i $S/big -O 127.0.0.1:$P; wait $!",
            ),
            ("nc", "nc", "nc -l 127.0.0.1 $P >$D/big & until nc -N 127.0.0.1 $P <$S/big; do sleep .01; done; wait $!"),
            ("cp", "cp", "cp $S/big $D/big"),
        ],
    ),
    (
        "pipe to pipe, 1 GiB",
        &[
            ("rdsend, softrnic", "", "rdrecv $P k | cat >$D/big & cat $S/big | rdsend 127.0.0.1 $P k; wait $!"),
            (
                "rdsend, TCP in clear",
                "",
                "rdrecv --tcp $P k | cat >$D/big & cat $S/big | rdsend --tcp --no-encrypt 127.0.0.1 $P k; wait $!",
            ),
            (
                "original, softrnic",
                "$ORIGINAL/rdsend",
                "$O/rdrecv $P k | cat >$D/big & cat $S/big | $O/rdsend 127.0.0.1 $P k; wait $!",
            ),
            ("nc", "nc", "nc -l 127.0.0.1 $P | cat >$D/big & sleep .1; cat $S/big | nc -N 127.0.0.1 $P; wait $!"),
        ],
    ),
    (
        "10,000 files of 4 KiB",
        &[
            ("rdcp -r, softrnic", "", "rdcp -r -e $S/ssh $S/files h:$D/files"),
            ("rdcp -r, TCP", "", "rdcp -r -e $S/ssh --tcp $S/files h:$D/files"),
            ("rsync -a, local", "rsync", "rsync -aW $S/files $D/"),
            ("cp -r", "cp", "cp -r $S/files $D/"),
        ],
    ),
    (
        "the same files, unchanged",
        &[
            ("rdcp --sync, softrnic", "", "D=$S/../synced; rdcp -r --sync -e $S/ssh $S/files h:$D/"),
            ("rdcp --sync, TCP", "", "D=$S/../synced; rdcp -r --sync --tcp -e $S/ssh $S/files h:$D/"),
            ("rsync -a, local", "rsync", "D=$S/../synced; rsync -a $S/files $D/"),
        ],
    ),
    (
        "the same files with attributes, unchanged",
        &[
            ("rdcp -a --sync, softrnic", "", "D=$S/../synced; rdcp -a --sync -e $S/ssh $S/files h:$D/"),
            ("rdcp -a --sync, TCP", "", "D=$S/../synced; rdcp -a --sync --tcp -e $S/ssh $S/files h:$D/"),
            ("rsync -aHAX, local", "rsync", "D=$S/../synced; rsync -aHAX $S/files $D/"),
        ],
    ),
    (
        "100 GiB with 1 GiB of data",
        &[
            ("rdcp, softrnic", "", "rdcp -e $S/ssh $S/sparse h:$D/sparse"),
            ("rdcp of 1 GiB without holes", "", "rdcp -e $S/ssh $S/big h:$D/big"),
        ],
    ),
    (
        "1 GiB, of which 1000 MiB are here",
        &[
            ("rdcp, resumed", "", "cp $S/most $D/$PARTIAL :: rdcp -e $S/ssh $S/big h:$D/big"),
            (
                "rdcp, TCP in clear, resumed",
                "",
                "cp $S/most $D/$PARTIAL :: rdcp --tcp --no-encrypt -e $S/ssh $S/big h:$D/big",
            ),
            ("rdcp, TCP in clear, the whole", "", "rdcp --tcp --no-encrypt -e $S/ssh $S/big h:$D/big"),
            ("rsync --append-verify, local", "rsync", "cp $S/most $D/big :: rsync -a --append-verify $S/big $D/"),
        ],
    ),
    (
        "256 MiB to three hosts",
        &[
            ("rdcp, a chain", "", "rdcp -e $S/ssh $S/part h1:$D/part h2:$D/part2 h3:$D/part3"),
            ("rdcp, three in turn", "", "for n in '' 2 3; do rdcp -e $S/ssh $S/part h:$D/part$n; done"),
        ],
    ),
    (
        "12 bytes",
        &[
            ("rdsend, softrnic", "", "rdrecv $P k >/dev/null & echo hello world | rdsend 127.0.0.1 $P k; wait $!"),
            (
                "rdsend, TCP",
                "",
                "rdrecv --tcp $P k >/dev/null & echo hello world | rdsend --tcp 127.0.0.1 $P k; wait $!",
            ),
        ],
    ),
];

const STAND_IN: &str = "#!/bin/sh\nshift\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec sh -c \"$*\"\n";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).filter(|text| !text.starts_with("--")).collect();
    let rounds = arguments.first().and_then(|text| text.parse().ok());
    if rounds.is_some() {
        arguments.remove(0);
    }
    // In memory.
    let in_memory = Folder::new_in(Path::new("/dev/shm"));
    let folder = in_memory.path();
    let done = prepare(folder).and_then(|()| {
        ROWS.iter()
            .filter(|(name, _)| arguments.is_empty() || arguments.iter().any(|text| name.contains(text.as_str())))
            .try_for_each(|row| measure(folder, row, rounds.unwrap_or(5)))
    });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

type Done = Result<(), Box<dyn std::error::Error>>;

fn prepare(folder: &Path) -> Done {
    std::fs::create_dir_all(folder.join("source"))?;
    std::fs::create_dir_all(folder.join("synced"))?;
    std::fs::write(folder.join("source/ssh"), STAND_IN)?;
    let script = "cd $S && chmod +x ssh && head -c 1G /dev/urandom >big && head -c 256M big >part && head -c 1000M big >most \
        && truncate -s 100G sparse && for n in $(seq 0 15); do dd if=big of=sparse bs=64M count=1 skip=$n seek=$((n*97)) \
        conv=notrunc status=none; done \
        && for d in $(seq 100); do mkdir -p files/$d; split -b 4K -a 3 <(head -c 400K /dev/urandom) files/$d/; done \
        && if which setfattr; then find files -name '*a' -exec setfattr -n user.note -v value {} +; fi >/dev/null \
        && cp -a files $S/../synced/";
    run(folder, "", script)?;
    Ok(())
}

/// Runs a script, and returns the elapsed time and the CPU time in seconds.
fn run(folder: &Path, to: &str, script: &str) -> Result<(f64, f64), Box<dyn std::error::Error>> {
    let programs = Path::new(env!("CARGO_BIN_EXE_rdcp")).parent().unwrap_or(Path::new("."));
    let path = format!("{}:{}", programs.display(), std::env::var("PATH")?);
    let original = std::env::var("ORIGINAL").unwrap_or_default();
    let port = Port::reserve();
    let before = processor_seconds()?;
    let started = Instant::now();
    let status = Command::new("bash")
        .args(["-o", "pipefail", "-c", script])
        .env("PATH", path)
        .env("S", folder.join("source"))
        .env("D", folder.join(to))
        .env("O", format!("softrnic-run {original}"))
        .env("RDMA_MUMMY_RDMACM", "softrnic")
        // The name under which an interrupted copy leaves the file.
        .env("PARTIAL", OsStr::from_bytes(&temporary_name(b"big", b"file")))
        .env("P", port.number().to_string())
        .status()?;
    let seconds = started.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("failed with {status}: {script}").into());
    }
    Ok((seconds, processor_seconds()? - before))
}

/// Returns the CPU time of the child processes that have exited, in seconds.
fn processor_seconds() -> Result<f64, Box<dyn std::error::Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |at: usize| fields.get(at).and_then(|text| text.parse::<f64>().ok()).unwrap_or_default();
    // The fields cutime and cstime, in hundredths of a second.
    Ok((ticks(13) + ticks(14)) / 100.0)
}

fn measure(folder: &Path, (name, ways): &Row, rounds: usize) -> Done {
    let exists = |program: &str| {
        let program = program.replace("$ORIGINAL", &std::env::var("ORIGINAL").unwrap_or_default());
        program.is_empty() || Command::new("which").arg(program).output().is_ok_and(|found| found.status.success())
    };
    let ways: Vec<_> = ways.iter().filter(|(_, program, _)| exists(program)).collect();
    let mut times = vec![Vec::new(); ways.len()];
    for _ in 0..rounds {
        for ((_, _, script), times) in ways.iter().zip(&mut times) {
            let copy = folder.join("copy");
            std::fs::create_dir_all(&copy)?;
            let (before, script) = script.split_once(" :: ").unwrap_or((":", script));
            run(folder, "copy", before)?;
            times.push(run(folder, "copy", script)?);
            let compare =
                "cd $D; for f in *; do [ -e \"$f\" ] || continue; diff -rq \"$f\" $S/${f%[23]} || exit 1; done";
            run(folder, "copy", if script.contains("sparse h:") { SPARSE } else { compare })?;
            std::fs::remove_dir_all(&copy)?;
        }
    }
    println!("\n| {name} | median ms | best ms | processors, s |\n|---|---:|---:|---:|");
    for ((way, ..), mut times) in ways.iter().zip(times) {
        times.sort_by(|left, right| left.0.total_cmp(&right.0));
        let (median, best) = (times[times.len() / 2], times[0]);
        println!("| {way} | {:.0} | {:.0} | {:.2} |", median.0 * 1e3, best.0 * 1e3, median.1);
    }
    Ok(())
}

/// Compares only the parts that contain data, because comparing all 100 GiB takes longer than the copy.
const SPARSE: &str = "cd $D; for n in $(seq 0 15); do \
    cmp <(dd if=sparse bs=64M count=1 skip=$((n*97)) status=none) <(dd if=$S/big bs=64M count=1 skip=$n status=none) || exit 1; \
    done; [ $(stat -c %s sparse) = $((100<<30)) ] && [ $(du -k sparse | cut -f1) -lt $((1100<<10)) ]";
