//! trespass: echoes of messages and of streams.

use std::ops::Range;
use std::process::Command;
use std::time::Instant;

use trespass::Transport;

use crate::echo::{ATTEMPTS, echo_bytes, echo_messages};
use crate::harness::{Left, Turn};
use crate::schedules::{is_survived, never, random, sweep};

#[test]
fn messages_with_reconnects() {
    sweep("messages", || echo_messages(Transport::Any, 30, ATTEMPTS), Left::Nothing, is_survived);
}

#[test]
fn messages_over_rdma() {
    sweep("messages, RDMA", || echo_messages(Transport::Rdma, 30, 1), Left::Nothing, never);
}

#[test]
fn streams_with_reconnects() {
    sweep("streams", || echo_bytes(Transport::Any, ATTEMPTS), Left::Nothing, is_survived);
}

/// How many processes run the random schedules.
const PROCESSES: u64 = 4;
const SCHEDULES: u64 = 10_000;

/// The variable with the first seed and the end of the seeds of a process: `7..8` repeats seed 7.
const SEEDS: &str = "FAULTS_SEEDS";

/// Random schedules from seeds. A client gives up under those that last.
#[test]
#[ignore = "takes minutes"]
fn random_schedules_of_an_echo_lose_nothing() {
    if let Ok(seeds) = std::env::var(SEEDS) {
        let (first, end) = seeds.split_once("..").unwrap();
        return run(first.parse().unwrap()..end.parse().unwrap());
    }
    let part = SCHEDULES / PROCESSES;
    let start = |number: u64| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["random_schedules", "--ignored", "--nocapture"]);
        command.env(SEEDS, format!("{}..{}", number * part, (number + 1) * part)).spawn().unwrap()
    };
    let processes: Vec<_> = (0..PROCESSES).map(start).collect();
    let failed =
        processes.into_iter().filter_map(|mut process| Some(process.wait().unwrap()).filter(|it| !it.success()));
    assert_eq!(failed.count(), 0);
}

fn run(seeds: Range<u64>) {
    let job = || echo_messages(Transport::Any, 12, ATTEMPTS);
    let turn = Turn::take();
    let without = turn.run("", 0, job, Left::Anything).unwrap().1;
    let (started, mut passed, mut gave_up, mut problems) = (Instant::now(), 0, 0, 0);
    for seed in seeds.clone() {
        let schedule = random(seed, &without);
        match turn.run(&schedule, seed, job, Left::Nothing) {
            Ok((Ok(()), _)) => passed += 1,
            Ok((Err(error), _)) => {
                gave_up += 1;
                println!("seed {seed}: {error}:\n{schedule}");
            }
            Err(problem) => {
                problems += 1;
                println!("{problem}");
            }
        }
    }
    println!("seeds {seeds:?}: {passed} echoes were complete, {gave_up} clients gave up, in {:?}", started.elapsed());
    assert_eq!(problems, 0);
}
