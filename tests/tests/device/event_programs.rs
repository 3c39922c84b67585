//! The examples `asyncwatch` and `events_tokio` as programs: port changes reach them, compared with rdma-core's
//! `ibv_asyncwatch`.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use sideway::ibverbs::async_event::AsyncEventType;
use sideway_tests::child::{self, Program, example};
use sideway_tests::device;
use sideway_tests::interface::Interface;

const LIMIT: Duration = Duration::from_secs(120);

/// An example, with these options.
fn ours(name: &str, options: &str) -> Command {
    let mut command = example(name);
    command.args(options.split_whitespace());
    command
}

/// Waits until a program has printed this text N times.
#[track_caller]
fn wait_until_printed(program: &Program, text: &str, times: usize) {
    let started = Instant::now();
    while program.said().matches(text).count() < times {
        assert!(started.elapsed() < LIMIT, "`{text}` was not printed {times} times:\n{}", program.said());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The numbers of the events that our program printed.
#[track_caller]
fn events_told(output: &str) -> Vec<u32> {
    let prefix = format!("{}: ", device::name());
    let lines =
        output.lines().map(|line| line.strip_prefix(&prefix).unwrap_or_else(|| panic!("`{line}` in:\n{output}")));
    let number = |line: &str| {
        let (words, element) = line.split_once(": ").unwrap_or_else(|| panic!("`{line}` in:\n{output}"));
        assert_eq!(element, format!("port {}", device::PORT));
        let known = AsyncEventType::KNOWN.iter().find(|known| known.to_string() == words);
        known.unwrap_or_else(|| panic!("`{words}` in:\n{output}")).raw()
    };
    lines.filter(|line| *line != "watching").map(number).collect()
}

#[test]
#[ignore = "changes an interface of the machine: cargo xtask softroce"]
fn asyncwatch_prints_the_events_of_the_c_program() {
    let context = device::open();
    if !device::is_soft_roce(&context) {
        println!("DID NOT RUN: the network interface of a real device is not taken down");
        return;
    }
    let interface = Interface::of(&context);
    let name = device::name();
    // The C program writes a file in blocks.
    let mut theirs = Command::new("stdbuf");
    theirs.args(["-oL", "ibv_asyncwatch", "-d", &name]);
    let mut theirs = Program::start(theirs, LIMIT);
    let mut ours = Program::start(ours("asyncwatch", &format!("-d {name} --timeout 60")), LIMIT);
    wait_until_printed(&ours, "watching", 1);
    wait_until_printed(&theirs, "async event FD", 1);
    interface.ip("link set {} down");
    wait_until_printed(&ours, "port error: port 1", 1);
    interface.ip("link set {} up");
    assert!(interface.comes_up());
    interface.ip("address add 10.71.8.8/32 dev {}");
    wait_until_printed(&ours, "GID table change: port 1", 1);
    interface.ip("address del 10.71.8.8/32 dev {}");
    wait_until_printed(&ours, "GID table change: port 1", 2);
    wait_until_printed(&theirs, "event_type", events_told(&ours.said()).len());
    ours.kill();
    theirs.kill();

    let told = events_told(&ours.said());
    let theirs = theirs.said();
    // `  event_type port active (9), port 1`, or with the type's name: the number is in parentheses or alone.
    let digits = |line: &str| -> Vec<u32> {
        line.split(|character: char| !character.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    let lines: Vec<_> = theirs.lines().filter(|line| line.contains("event_type")).collect();
    assert_eq!(lines.len(), told.len(), "{told:?} and\n{theirs}");
    for (line, number) in lines.iter().zip(&told) {
        assert!(digits(line).contains(number), "`{line}` and {number}");
    }
    for event_type in [AsyncEventType::PortError, AsyncEventType::PortActive, AsyncEventType::GidChange] {
        assert!(told.contains(&event_type.raw()), "{event_type:?} in {told:?}");
    }
}

#[test]
#[ignore = "gives an interface of the machine an address: cargo xtask softroce"]
fn asyncwatch_ends_on_a_signal() {
    let name = device::name();
    let watching = format!("{name}: watching\n");
    // Watches all devices for a while.
    let ended = child::run(ours("asyncwatch", "--timeout 0.2"), LIMIT);
    assert!(ended.status.success(), "{}: {}", ended.status, ended.output);
    let devices = fs::read_dir("/sys/class/infiniband").expect("the kernel's devices").count();
    assert_eq!(ended.output.matches(": watching\n").count(), devices, "{}", ended.output);
    assert!(ended.output.contains(&watching), "{}", ended.output);

    // Fewer events arrive than requested.
    let ended = child::run(ours("asyncwatch", &format!("-d {name} -n 3 --timeout 0.25")), LIMIT);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.output);
    assert_eq!(ended.output, format!("{watching}error: 0 of 3 events arrived within 0.25 s; raise --timeout\n"));

    let context = device::open();
    if !device::is_soft_roce(&context) {
        println!("DID NOT RUN in part: no address is given to a real device");
        return;
    }
    // The program prints the requested number, although more events arrive.
    let interface = Interface::of(&context);
    let mut program = Program::start(ours("asyncwatch", &format!("-d {name} -n 2")), LIMIT);
    wait_until_printed(&program, "watching", 1);
    for at in 1..=4 {
        interface.ip(&format!("address add 10.71.7.{at}/32 dev {{}}"));
    }
    let ended = program.wait().unwrap_or_else(|| panic!("the program does not exit: {}", program.said()));
    for at in 1..=4 {
        interface.ip(&format!("address del 10.71.7.{at}/32 dev {{}}"));
    }
    assert!(ended.status.success(), "{}: {}", ended.status, ended.output);
    assert_eq!(events_told(&ended.output), [AsyncEventType::GidChange.raw(); 2], "{}", ended.output);
}

#[test]
fn runtime_is_woken_for_completions() {
    let name = device::name();
    let mut runs = 0;
    for (size, iterations) in [("1", 1000), ("4096", 300), ("1M", 10)] {
        let ended = child::run(ours("events_tokio", &format!("-d {name} -s {size} -n {iterations}")), LIMIT);
        let output = &ended.output;
        assert!(ended.status.success(), "{size}: {}\n{output}", ended.status);
        assert!(output.contains(&format!("{iterations} iters in ")), "{size}:\n{output}");
        let slept = output.lines().find_map(|line| line.strip_prefix("the client slept "));
        let slept: u32 =
            slept.and_then(|rest| rest.split(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("{output}"));
        assert!(slept > 0, "{size}: it did not sleep\n{output}");
        runs += 1;
    }
    assert_eq!(runs, 3);
}

#[test]
#[ignore = "changes an interface of the machine: cargo xtask softroce"]
fn runtime_is_woken_for_asynchronous_events() {
    let context = device::open();
    if !device::is_soft_roce(&context) {
        println!("DID NOT RUN: no address is given to a real device");
        return;
    }
    let interface = Interface::of(&context);
    let options = format!("-d {} -n 10 --watch 50", device::name());
    let mut program = Program::start(ours("events_tokio", &options), LIMIT);
    wait_until_printed(&program, "10 iters in ", 1);
    for (command, times) in [("add", 1), ("del", 2)] {
        interface.ip(&format!("address {command} 10.71.6.6/32 dev {{}}"));
        wait_until_printed(&program, "GID table change: port 1\n", times);
    }
    interface.ip("link set {} down");
    wait_until_printed(&program, "port error: port 1\n", 1);
    program.kill();
}

#[test]
fn invalid_arguments_give_one_sentence() {
    for (name, options, said) in [
        ("asyncwatch", "-d nosuch", "`nosuch`"),
        ("events_tokio", "-d nosuch", "`nosuch`"),
        ("events_tokio", "-g 200", "GID index 200"),
        ("events_tokio", "-i 9", "port 9"),
    ] {
        let ended = child::run(ours(name, options), LIMIT);
        let output = &ended.output;
        assert_eq!(ended.status.code(), Some(1), "{name} {options}: {output}");
        assert_eq!(output.lines().count(), 1, "{name} {options}: {output}");
        assert!(output.starts_with("error: ") && output.contains(said), "{name} {options}: {output}");
    }
    for (name, options) in [("asyncwatch", "-n 0"), ("asyncwatch", "--timeout -1"), ("events_tokio", "-s 0")] {
        assert_eq!(child::run(ours(name, options), LIMIT).status.code(), Some(2), "{name} {options}");
    }
    for name in ["asyncwatch", "events_tokio"] {
        let help = child::run(ours(name, "--help"), LIMIT).output;
        assert!(help.contains("Usage: ") && help.contains("Examples:") && help.contains("Exit status: 0"), "{help}");
    }
}
