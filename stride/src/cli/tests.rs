use std::collections::BTreeSet;

use super::*;
use crate::plan::{GpuRegistration, Measure, Memory, Operation, Queues, RunLength, Semantics, Transport, size};

fn run(line: &str) -> Result<Job, String> {
    parse(line.split_whitespace()).map_err(|error| error.to_string())
}

fn client(line: &str) -> Measurement {
    match run(line) {
        Ok(Job::Measure(measurement)) => *measurement,
        other => panic!("{line}: {other:?}"),
    }
}

fn server(line: &str) -> Service {
    match run(line) {
        Ok(Job::Serve(service)) => *service,
        other => panic!("{line}: {other:?}"),
    }
}

fn refusal(line: &str) -> String {
    match run(line) {
        Err(sentence) => sentence,
        Ok(job) => panic!("{line}: {job:?}"),
    }
}

#[test]
fn clap_command_is_consistent() {
    Program::command().debug_assert();
}

#[test]
fn published_command_lines_parse() {
    let service = server("stride-perf write bw -d mlx5_0 -n 100000 -a --max-msg-size 8388608");
    assert_eq!(service.config.device.as_deref(), Some("mlx5_0"));
    assert_eq!(service.contact.port, 18515);
    let (offered, given) = service.test.unwrap();
    assert!(given.has(&["--iters"]) && given.has(&["--max-msg-size"]) && !given.has(&["--tx-depth"]));

    let job = client("stride-perf write bw -d mlx5_0 -n 100000 -a --max-msg-size 8388608 127.0.0.1");
    assert_eq!(job.server.as_deref(), Some("127.0.0.1"));
    assert_eq!(job.plan.workload.sizes, size::sweep(2, 8 << 20, 2.0));
    assert_eq!(job.plan.workload.amount, RunLength::Messages { count: 100_000, warm_up: 128 });
    assert_eq!(job.plan.placement.client.device.as_deref(), Some("mlx5_0"));
    assert_eq!(job.plan.differences(&job.given, &offered, &given), Vec::<String>::new());

    let interval = |options| client(&format!("stride-perf write bw {options} host")).plan.sampling.interval;
    let time = Duration::from_millis(20);
    assert_eq!([interval("-D 5"), interval("-D 5 --interval 20ms")], [None, Some(time)]);
    let job = client("stride-perf write bw -d mlx5_0 -a --use-cuda 4 host");
    assert_eq!(job.plan.placement.client.memory, Some(Memory::Cuda("4".to_owned())));
    let job = client("stride-perf write bw -l 64 -t 4096 host");
    assert_eq!((job.plan.queues.post_list, job.plan.queues.tx_depth, job.plan.queues.cq_moderation), (64, 4096, 64));
    let job = client("stride-perf write bw --remote-use-cuda 1 --remote-gpu-registration dmabuf --remote-no-numa host");
    assert_eq!(
        (job.plan.placement.server.gpu_registration, job.plan.placement.server.is_bound),
        (Some(GpuRegistration::DmaBuf), Some(false))
    );
    let job = client("stride-perf send bw --recv-post-list 16 --remote-ib-port 2 --remote-huge-pages h");
    assert_eq!((job.plan.queues.receive_list, job.plan.placement.server.port), (Some(16), Some(2)));
    assert_eq!(job.plan.placement.server.memory, Some(Memory::HugePages));
    let job = client("stride-perf write lat -d mlx5_0 -n 100000 -a --use-cuda 4 host");
    assert_eq!(job.plan.workload.measure, Measure::Latency(Semantics::Ack));
}

#[test]
fn defaults_are_those_of_perftest() {
    let plan = client("stride-perf write bw host").plan;
    assert_eq!(
        plan,
        Plan {
            queues: Queues { cq_moderation: 100, is_each_large_signaled: true, ..Queues::default() },
            ..Plan::default()
        }
    );
    let plan = client("stride-perf write lat host").plan;
    assert_eq!((plan.workload.sizes, plan.queues.tx_depth, plan.queues.cq_moderation), (vec![2], 1, 1));
    assert_eq!(plan.workload.amount, RunLength::Messages { count: 1000, warm_up: 100 });
    assert_eq!(plan.workload.measure, Measure::Latency(Semantics::Oneway));
    assert!(!plan.placement.is_relaxed, "the receiver polls the last byte in memory");
    let plan = client("stride-perf read lat host").plan;
    assert_eq!(plan.workload.measure, Measure::Latency(Semantics::Ack));
    let plan = client("stride-perf atomic bw --atomic cswap host").plan;
    assert_eq!((plan.workload.operation, plan.workload.sizes), (Operation::CompareSwap, vec![8]));
    let plan = client("stride-perf send bw -c UD host").plan;
    assert_eq!((plan.attributes.transport, plan.workload.sizes), (Transport::Ud, vec![1024]));
    assert_eq!(client("stride-perf read lat -c DC host").plan.attributes.transport, Transport::Dc);
    let sizes = |line: &str| client(&format!("stride-perf {line} -c srd host")).plan.workload.sizes;
    assert_eq!([sizes("send bw"), sizes("read bw"), sizes("write lat")], [vec![4096], vec![65536], vec![2]]);
    let last = |line: &str| sizes(line).last().copied();
    assert_eq!(
        [last("send bw -a"), last("write lat -a"), last("write lat -a --imm")],
        [8 << 20, 4096, 8 << 20].map(Some)
    );
    assert_eq!(client("stride-perf send bw --transport ud -m 2048 host").plan.workload.sizes, [2048]);
    assert_eq!(client("stride-perf send bw --transport ud -a host").plan.workload.sizes.last(), Some(&4096));
}

#[test]
fn moderation_follows_its_rule() {
    let every = |options: &str| {
        let plan = client(&format!("stride-perf write bw {options} host")).plan;
        plan.workload.sizes.iter().map(|size| plan.moderation(*size)).collect::<BTreeSet<_>>()
    };
    let one = |options: &str| {
        let every = every(options);
        assert_eq!(every.len(), 1, "{options}");
        every.first().copied().unwrap()
    };
    assert_eq!(one("-s 8192"), 100);
    assert_eq!(one("-s 8193"), 1);
    assert_eq!(one("-s 64 -t 16"), 16);
    assert_eq!(one("-s 64 -l 8"), 8);
    assert_eq!(one("-s 64 -l 8 -Q 4"), 4);
    assert_eq!(one("-s 64K -Q 100"), 100);
    assert_eq!(one("-s 64K -l 8"), 8);
    // A size requests completions equally often, whether it is tested alone or in a sweep.
    assert_eq!(one("--min-msg-size 64K --max-msg-size 64K"), one("-s 64K"));
    assert_eq!(one("-s 64K,1M"), 1);
    assert_eq!(every("-a"), [1, 100].into());
    // With `--like-perftest`, completions are requested as perftest requests them.
    assert_eq!([one("-a --like-perftest"), one("-s 64K --like-perftest")], [100, 1]);
    assert_eq!(one("-s 64K -e --like-perftest"), 100);
    let every = one;
    assert_eq!([every("-s 64 -c srd"), every("-s 64 -l 8 -c srd")], [1; 2], "messages complete in any order");
    assert!(run("stride-perf write bw -Q 4 -c srd host").unwrap_err().contains("--cq-mod must be 1"));
}

#[test]
fn sizes_times_and_devices_are_parsed() {
    let job =
        client("stride-perf send bw -s 64,4K,1M -D 2m --warm-up 3 --cpu 0,2-3 --remote-device mlx5_1 --remote-cpu 7 h");
    assert_eq!(job.plan.workload.sizes, [64, 4096, 1 << 20]);
    let (time, warm_up) = (Duration::from_secs(120), Duration::from_secs(3));
    assert_eq!(job.plan.workload.amount, RunLength::Time { time, warm_up });
    assert_eq!(job.plan.placement.client.cpus, Some(vec![0, 2, 3]));
    assert_eq!(job.plan.placement.server.device.as_deref(), Some("mlx5_1"));
    assert_eq!(job.plan.placement.server.cpus, Some(vec![7]));
    let job = client("stride-perf write bw --min-msg-size 64 --max-msg-size 4K --step-factor 4 -6 -p 7 --timeout 1m h");
    assert_eq!(job.plan.workload.sizes, [64, 256, 1024, 4096]);
    assert_eq!(job.contact, ControlOptions { port: 7, family: Some(Family::V6), timeout: Duration::from_secs(60) });
    let job = client("stride-perf write bw --threads 4 h");
    assert_eq!((job.plan.queues.threads, job.plan.queues.queue_pairs), (4, 4));
}

#[test]
fn conflicting_options_are_errors_with_a_remedy() {
    for (options, part) in [
        ("write bw -D 5 -n 7 h", "--duration and --iters"),
        ("write bw -s 64 -a h", "--msg-size conflicts with --all-sizes; leave out --msg-size, or it"),
        ("write bw -s 64 --max-msg-size 128 h", "conflicts with --max-msg-size; leave out --msg-size, or it"),
        (
            "write bw -s 64 -a --max-msg-size 128 --step-factor 4 h",
            "conflicts with --all-sizes, --max-msg-size and --step-factor; leave out --msg-size, or them",
        ),
        ("write bw --min-msg-size 1K --max-msg-size 64 h", "give --max-msg-size 1024 or more"),
        ("write bw -l 64 -t 8 h", "give --tx-depth 64 or more"),
        ("write bw -Q 64 -t 8 h", "give --cq-mod 8 or less"),
        ("write bw -q 2 --threads 4 h", "give --qp-count 4 or more"),
        ("write bw -c ud h", "measure `send`"),
        ("send bw -c ud -s 8K h", "give --msg-size 4096 or less, or --transport rc"),
        ("send bw -c ud -s 64,8K h", "give --msg-size 4096 or less, or --transport rc"),
        ("send bw -c ud -a --max-msg-size 8K h", "give --max-msg-size 4096 or less, or --transport rc"),
        ("send bw -c ud --min-msg-size 8K --max-msg-size 8K h", "give --max-msg-size 4096 or less"),
        ("write lat -c srd -s 8K h", "give --msg-size 4096 or less, or --imm"),
        ("write bw --use-cuda 0 -I 64 h", "--inline 0"),
        ("write bw --use-cuda 0 --huge-pages h", "give one of them"),
        ("write bw --gpu-registration dmabuf h", "--use-cuda"),
        ("write bw --use-cuda 0 --gpu-registration peermem h", "dmabuf, address"),
        ("write bw --remote-huge-pages --remote-gpu-registration address h", "cannot be used with"),
        ("write bw --no-numa --cpu 0 h", "cannot be used with"),
        ("write bw --remote-no-numa --remote-cpu 0 h", "cannot be used with"),
        ("write bw --atomic fadd h", "stride-perf atomic"),
        ("read bw --imm h", "carry no immediate"),
        ("write bw --latency ack h", "--latency applies to `lat` only"),
        ("write lat --min-gbps 3 h", "--max-p99"),
        ("write lat --min-mpps 3 h", "--max-p99"),
        ("write bw --max-p99 3 h", "--min-gbps or --min-mpps"),
        ("write bw --min-mpps 0 h", "above 0"),
        ("write bw --threshold 3 h", "--compare"),
        ("write bw --plot x.pdf h", ".svg or .png"),
        ("write bw --json x --csv ./x h", "--json and --csv name the same file"),
        ("write bw --csv a/x.svg --plot ./a/./x.svg h", "--csv and --plot name the same file"),
        ("write bw --loopback h", "leave out the server"),
        ("write bw -4 -6 h", "give one of them, or none"),
        ("write bw --timeout 0 h", "--timeout is 0s"),
        ("write bw --timeout 999ms h", "--timeout is 999ms; it can be 1s to a day"),
        ("server --timeout 10ms", "--timeout is 10ms; it can be 1s to a day"),
        ("write bw --warm-up 2s h", "number of messages"),
        ("write lat -t 2 h", "--tx-depth must be 1"),
        ("atomic bw -a h", "eight bytes"),
        ("write bw -s 1X h", "k or K, M and G"),
        ("write bw -q 9999999999 h", "too large"),
        ("write lat --use-cuda 0 --latency rtt h", "give --imm"),
    ] {
        let error = refusal(&format!("stride-perf {options}"));
        assert!(error.contains(part), "{options}: {error}");
    }
}

#[test]
fn command_without_server_is_a_server() {
    let service = server("stride-perf");
    assert_eq!((service.test, service.is_one_off), (None, false));
    let service = server("stride-perf -d mlx5_1 --one-off");
    assert_eq!((service.config.device.as_deref(), service.is_one_off), (Some("mlx5_1"), true));
    assert_eq!(server("stride-perf server --use-cuda 1 -p 99").contact.port, 99);
    let service = server("stride-perf write bw --json x.json");
    assert_eq!(service.warnings, ["--json has no effect for a server; name a server to run a client"]);
    let service = server("stride-perf write bw --like-perftest");
    assert_eq!(service.warnings, ["--like-perftest has no effect for a server; name a server to run a client"]);
    let service = server("stride-perf write lat --use-cuda 4");
    assert_eq!(service.config.memory, Some(Memory::Cuda("4".to_owned())));
}

#[test]
fn loopback_configures_both_sides() {
    let job = client("stride-perf write bw -a --loopback -d soft0 --use-cuda 0 --one-off");
    assert_eq!(job.server, None);
    assert_eq!(job.plan.placement.server, SideConfig { device: Some("soft0".to_owned()), ..SideConfig::default() });
    assert_eq!(job.warnings, ["--one-off has no effect for --loopback"]);
    let job = client("stride-perf write bw --loopback --use-cuda 0 --gpu-registration address --no-numa");
    assert_eq!(job.plan.placement.client.gpu_registration, Some(GpuRegistration::Address));
    assert_eq!(job.plan.placement.server, SideConfig { is_bound: Some(false), ..SideConfig::default() });
    let error = refusal("stride-perf write bw --loopback --remote-gpu-registration dmabuf");
    assert!(error.contains("give --remote-use-cuda as well"), "{error}");
}

#[test]
fn self_test_help_lists_its_options_only() {
    let help = refusal("stride-perf self-test --help");
    for absent in ["--dualport", "mlx5_1", "1,2", "--rdma-cm", "bandwidth go over", "one for each"] {
        assert!(!help.contains(absent), "{absent}: {help}");
    }
    for there in ["--device <NAME>", "--ib-port <PORT>", "--gid-index <N>", "--pkey-index <N>"] {
        assert!(help.contains(there), "{there}: {help}");
    }
    let help = refusal("stride-perf write bw --help");
    assert!(help.contains("--dualport"), "{help}");
}

#[test]
fn other_commands_parse() {
    assert_eq!(run("stride-perf devices"), Ok(Job::Devices));
    let config = SideConfig { device: Some("mlx5_0".to_owned()), port: Some(2), ..SideConfig::default() };
    assert_eq!(run("stride-perf self-test -d mlx5_0 -i 2"), Ok(Job::SelfTest(config)));
    assert!(refusal("stride-perf self-test write").contains("unexpected argument"));
    assert!(refusal("stride-perf self-test --no-numa --cpu 1").contains("cannot be used with"));
    assert!(refusal("stride-perf write").contains("lat"));
    assert!(refusal("stride-perf --device").contains("--device"));
}

#[test]
#[cfg(all(feature = "manual", feature = "plot"))]
fn commands_of_features_parse() {
    assert_eq!(run("stride-perf completions bash"), Ok(Job::Completions(Shell::Bash)));
    assert_eq!(run("stride-perf man write bw"), Ok(Job::Man(vec!["write".to_owned(), "bw".to_owned()])));
    let plot = Job::Plot { runs: vec!["a.json".into(), "b.json".into()], output: "o.svg".into() };
    assert_eq!(run("stride-perf plot a.json b.json -o o.svg"), Ok(plot));
    assert!(refusal("stride-perf plot a.json -o o.gif").contains(".svg or .png"));
}

#[test]
#[cfg(not(any(feature = "manual", feature = "msg", feature = "plot")))]
fn missing_feature_error_names_the_remedy() {
    for (words, feature) in [
        ("completions bash", "manual"),
        ("man write bw", "manual"),
        ("msg lat h", "msg"),
        ("plot a.json -o o.svg", "plot"),
        ("write bw --plot o.svg h", "plot"),
    ] {
        let error = refusal(&format!("stride-perf {words}"));
        assert!(error.contains(&format!("no feature \"{feature}\"")), "{error}");
        assert!(error.contains("cargo install --path stride"), "{error}");
    }
}

#[test]
fn help_fits_the_screen() {
    for words in ["write bw", "send lat"] {
        let [brief, all] = ["-h", "--help"].map(|flag| refusal(&format!("stride-perf {words} {flag}")));
        let lines = |text: &str| text.trim_end().lines().count();
        assert!(lines(&brief) <= 40 && lines(&all) <= 140, "{}, {}: {brief}", lines(&brief), lines(&all));
        assert!(brief.contains("--validate") && !brief.contains("--mr-per-qp") && all.contains("--mr-per-qp"));
    }
    let test = with_all_options(Program::command());
    let test = ["write", "bw"].into_iter().fold(&test, |command, word| command.find_subcommand(word).unwrap());
    for option in test.get_arguments() {
        let help = option.get_help().unwrap().to_string();
        let text = help.split(" [default").next().unwrap_or_default();
        assert!(text.len() <= 80 && !text.is_empty(), "{option}: {text}");
    }
}

#[test]
fn help_has_topics_and_examples() {
    let help = refusal("stride-perf write bw --help");
    for part in ["This side:", "Messages:", "Queues:", "Network:", "Results:", "Examples:", "--remote-use-cuda"] {
        assert!(help.contains(part), "{part}: {help}");
    }
    assert!(refusal("stride-perf --help").contains("Examples:"));
}

#[test]
fn options_in_hints_exist() {
    let mut command = Program::command();
    command.build();
    for words in [["write", "bw"], ["send", "lat"]] {
        let test = words.into_iter().fold(&command, |command, word| command.find_subcommand(word).unwrap());
        for option in crate::report::hints::OPTIONS {
            let is_it = |argument: &clap::Arg| match option.strip_prefix("--") {
                Some(long) => argument.get_long() == Some(long),
                None => argument.get_short().map(|short| format!("-{short}")).as_deref() == Some(option),
            };
            assert!(test.get_arguments().any(is_it), "{option} of {words:?}");
        }
    }
}

/// Returns the names in backquotes that a line contains.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

#[test]
fn table_of_options_has_each_flag_and_existing_files() {
    fn flags(command: &clap::Command, found: &mut BTreeSet<String>) {
        let long =
            command.get_arguments().filter_map(clap::Arg::get_long).filter(|long| !["help", "version"].contains(long));
        found.extend(long.map(|long| format!("--{long}")));
        command
            .get_subcommands()
            .filter(|command| command.get_name() != "help")
            .for_each(|command| flags(command, found));
    }
    let mut command = Program::command();
    command.build();
    let mut due = BTreeSet::new();
    flags(&command, &mut due);
    let rows = include_str!("../lib.rs").lines().filter(|line| line.starts_with("//! | `--"));
    let mut found = BTreeSet::new();
    for name in rows.flat_map(quoted) {
        if name.starts_with("--") {
            assert!(found.insert(name.to_owned()), "{name} has two rows");
        } else {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src").join(name);
            assert!(file.is_file(), "{name}");
        }
    }
    assert_eq!(found, due);
}

#[test]
fn each_option_of_a_plan_is_a_member_of_its_json() {
    let plan = serde_json::to_value(Plan::default()).unwrap();
    for option in crate::plan::declared().get_arguments() {
        assert!(plan.get(option.get_id().as_str()).is_some(), "{option:?}");
    }
}

#[test]
fn test_can_be_endless() {
    let plan = client("stride-perf write bw -D forever --interval 2s h").plan;
    let warm_up = Duration::from_secs(2);
    assert!(
        plan.workload.is_endless && plan.workload.amount == RunLength::Time { time: crate::plan::LONGEST, warm_up }
    );
    assert_eq!(plan.sampling.interval, Some(warm_up));
    assert!(client("stride-perf read lat --run-infinitely --like-perftest h").plan.workload.is_endless);
    assert!(!client("stride-perf write bw -D 5 h").plan.workload.is_endless);
    for (words, expected) in [
        ("-D forever -n 5", "--duration and --iters"),
        ("--run-infinitely -D 5", "cannot be used with"),
        ("-D forever -a", "give one --msg-size"),
        ("-D ever", "us, ms, s, m or h (or `forever`)"),
    ] {
        let sentence = refusal(&format!("stride-perf write bw {words} h"));
        assert!(sentence.contains(expected), "{words}: {sentence}");
    }
}

#[test]
fn bandwidth_test_uses_all_named_ports() {
    let of = |words: &str| {
        let plan = client(&format!("stride-perf write bw {words}")).plan;
        let options = |config: &SideConfig| config.options().join(" ");
        (
            options(&plan.placement.client),
            options(&plan.placement.server),
            plan.placement.server.count(),
            plan.queues.threads,
            plan.queues.queue_pairs,
        )
    };
    let two = "--device mlx5_0,mlx5_1";
    assert_eq!(of("-d mlx5_0,mlx5_1 h"), (two.to_owned(), String::new(), 2, 2, 2));
    assert_eq!(of("-d mlx5_0,mlx5_1 -q 8 --loopback"), (two.to_owned(), two.to_owned(), 2, 2, 8));
    let one = "--device mlx5_2";
    assert_eq!(of("-d mlx5_0,mlx5_1 --remote-device mlx5_2 h"), (two.to_owned(), one.to_owned(), 2, 2, 2));
    assert_eq!(of("-d mlx5_2 --remote-device mlx5_0,mlx5_1 --threads 4 h").3, 4);
    let both = "--ib-port 1,2";
    assert_eq!(of("-O h"), (both.to_owned(), both.to_owned(), 2, 2, 2));
    assert_eq!(of("-O --remote-ib-port 2 h").1, "--ib-port 2");
    // The server may have other devices than the client.
    assert_eq!(of("-d a,b --remote-ib-port 1,1 h").1, "--ib-port 1");
    assert_eq!(of("-d mlx4_0 -i 1,1 h").0, "--device mlx4_0 --ib-port 1");
    assert_eq!(of("-d mlx4_0 -i 1,2 -x 3,5 h").0, "--device mlx4_0 --ib-port 1,2 --gid-index 3,5");
    let service = server("stride-perf write bw -d mlx5_0,mlx5_1");
    assert_eq!((service.config.count(), service.test.map(|(plan, _)| plan.queues.threads)), (2, Some(2)));
    for (words, expected) in [
        ("write lat -d mlx5_0,mlx5_1 h", "a latency test uses one port"),
        ("write bw -d mlx5_0,mlx5_1 -R h", "--rdma-cm supports one port"),
        ("write bw -d mlx5_0,mlx5_1 -q 3 h", "--qp-count 3, the total of all ports"),
        ("write bw -d a,b,c -x 0,1 h", "--device has 3 values and --gid-index 2"),
        ("write bw -d a,b,c --remote-device a,b h", "the client has 3 ports and the server 2"),
        ("write bw -O -i 1 h", "cannot be used with"),
        ("write bw -d mlx5_0, h", "is not the name of a device"),
        (
            "write bw -i 1,1 h",
            "--ib-port 1,1 names a port twice without a device; give one device per port with --device",
        ),
        ("server -i 1,2,1", "--ib-port 1,2,1 names a port twice without a device"),
        ("self-test -O", "self-test supports one port; leave out -O\n"),
        ("self-test -d a,b -x 1,2", "self-test supports one port; give one --device and give one --gid-index\n"),
        ("self-test -d a,b -O", "self-test supports one port; give one --device and leave out -O\n"),
    ] {
        let sentence = refusal(&format!("stride-perf {words}"));
        assert!(sentence.contains(expected), "{words}: {sentence}");
    }
}

#[test]
fn partition_and_lid_options_apply_per_side() {
    let plan = client(
        "stride-perf write bw --pkey-index 1 --dlid 0x13 --remote-pkey-index 2 --remote-dlid 20 --flow-label 0xfffff -W x,y h",
    )
    .plan;
    assert_eq!((plan.placement.client.pkey_index, plan.placement.client.dlid), (Some(1), Some(0x13)));
    assert_eq!((plan.placement.server.pkey_index, plan.placement.server.dlid), (Some(2), Some(20)));
    assert_eq!((plan.attributes.flow_label, plan.sampling.counters.len()), (0xfffff, 2));
    let service = server("stride-perf --pkey-index 3 --dlid 4");
    assert_eq!((service.config.pkey_index, service.config.dlid), (Some(3), Some(4)));
    // In a test within one process, both sides use the same device.
    assert_eq!(client("stride-perf write bw --pkey-index 3 --loopback").plan.placement.server.pkey_index, Some(3));
    let idle = server("stride-perf write bw -W all");
    assert!(idle.warnings.iter().any(|warning| warning.starts_with("--counters has no effect")), "{:?}", idle.warnings);
}
