//! Tests of measurements with a server in another process, or with both sides in one process.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use sideway_tests::errors;

use super::{ends, port, program, run};

/// A server process, which is killed on drop.
struct Server(Child);

impl Server {
    fn start(words: &str) -> Self {
        Self(program(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ignores the error, because the server may have exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the rows of a table, which are the lines that start with a number.
fn rows(out: &str) -> Vec<Vec<&str>> {
    let words = out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    words.filter(|words| words.len() > 6 && words[0].parse::<u64>().is_ok()).collect()
}

#[test]
fn published_command_lines_work() {
    for words in [
        "write bw -d soft0 -n 1000 -a --max-msg-size 65536",
        "write bw -d soft0 -n 1000 -l 64 -t 4096",
        "write lat -d soft0 -n 100",
    ] {
        let port = port();
        let _server = Server::start(&format!("{words} -p {port}"));
        let output = run(&format!("{words} -p {port} --wait-server 20 127.0.0.1"));
        let (out, _) = ends(&output, 0);
        let expected = if words.contains("-a") { 16 } else { 1 };
        assert_eq!(rows(&out).len(), expected, "{out}");
    }
}

#[test]
fn server_serves_any_test() {
    let port = port();
    let _server = Server::start(&format!("-p {port}"));
    // Each case contains its arguments, a part of the header, the sizes, and the number of messages, which is `None`
    // for a timed test.
    let cases: [(&str, &str, &[u64], Option<u64>); 25] = [
        (
            "send bw -n 500 -q 3 --threads 2 -R -c xrc -b",
            "send bandwidth, bidirectional, XRC, 3 queue pairs,",
            &[65536],
            Some(3000),
        ),
        (
            "write bw -n 500 -q 3 --threads 2 --mr-per-qp --validate",
            "write bandwidth, RC, 3 queue pairs,",
            &[65536],
            Some(1500),
        ),
        ("write bw -n 500 --rate-limit 20 --burst-size 50", "write bandwidth, RC,", &[65536], Some(500)),
        ("send lat -n 50 --gap 20", "send latency (oneway), RC,", &[2], Some(50)),
        (
            "write bw -n 500 --flow-label 0x1234 --pkey-index 0",
            "write bandwidth, RC, 1 queue pair,",
            &[65536],
            Some(500),
        ),
        ("write bw -n 500 --flow-label 99 -R", "write bandwidth, RC, 1 queue pair,", &[65536], Some(500)),
        ("write bw -n 500", "write bandwidth, RC, 1 queue pair,", &[65536], Some(500)),
        ("read bw -n 500 -q 3 --threads 2", "read bandwidth, RC, 3 queue pairs,", &[65536], Some(1500)),
        ("send bw -n 500 -s 64,1K", "send bandwidth, RC,", &[64, 1024], Some(500)),
        ("send bw -n 500 -c ud -s 64,1K", "send bandwidth, UD,", &[64, 1024], None),
        ("send lat -n 50", "send latency (oneway), RC,", &[2], Some(50)),
        ("atomic lat -n 50", "fetch-and-add latency (ack), RC,", &[8], Some(50)),
        ("atomic bw -n 500 --atomic cswap", "compare-and-swap bandwidth, RC,", &[8], Some(500)),
        ("write bw -n 500 -b", "write bandwidth, bidirectional, RC,", &[65536], Some(1000)),
        ("write bw -n 500 --imm", "write with immediate bandwidth, RC,", &[65536], Some(500)),
        ("write lat -n 50 --latency ack", "write latency (ack), RC,", &[2], Some(50)),
        ("write bw -D 200ms --warm-up 50ms --interval 50ms", "write bandwidth, RC,", &[65536], None),
        ("read bw -n 500 --validate -s 8,4K", "read bandwidth, RC,", &[8, 4096], Some(500)),
        ("write bw -n 500 -q 3 --threads 2 -R", "write bandwidth, RC, 3 queue pairs,", &[65536], Some(1500)),
        ("send lat -n 50 -R -c ud", "send latency (oneway), UD,", &[2], Some(50)),
        ("read bw -n 500 -R -e --validate -s 64,4K", "read bandwidth, RC,", &[64, 4096], Some(500)),
        ("write bw -n 500 -e", "write bandwidth, RC,", &[65536], Some(500)),
        ("send bw -n 500 -b --events", "send bandwidth, bidirectional, RC,", &[65536], Some(1000)),
        ("send lat -n 50 -e", "send latency (oneway), RC,", &[2], Some(50)),
        ("write lat -n 50 -e --imm", "write with immediate latency (oneway), RC,", &[2], Some(50)),
    ];
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("any_test.json").display().to_string();
    for (words, head, sizes, count) in cases {
        let output = run(&format!("{words} -d soft0 -p {port} --wait-server 20 --json {file} 127.0.0.1"));
        let (out, err) = ends(&output, 0);
        assert!(out.starts_with(head), "{words}: {out}\n{err}");
        assert_eq!(rows(&out).len(), sizes.len(), "{words}: {out}\n{err}");
        let compared = "--validate: all data is correct";
        let compared = if sizes.len() == 1 { compared.to_owned() } else { format!("{compared}, for each of 2 sizes") };
        assert_eq!(err.lines().any(|line| line == compared), words.contains("--validate"), "{words}: {err}");
        let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        let (address, uses_rdma_cm) = (&document["environment"]["plan"]["address"], words.contains("-R"));
        assert_eq!(address.as_str(), uses_rdma_cm.then_some("127.0.0.1"), "{words}");
        assert_eq!(out.contains(", by address 127.0.0.1"), uses_rdma_cm, "{words}: {out}");
        for (row, size) in document["rows"].as_array().unwrap().iter().zip(sizes) {
            assert_eq!(row["size_bytes"], *size, "{words}: {row}");
            let measured = row.get("messages").or(row.get("samples")).and_then(serde_json::Value::as_u64).unwrap();
            assert!(measured > 0 && count.is_none_or(|count| count == measured), "{words}: {row}");
            let figure = row.pointer("/average/gigabits_per_second").or(row.get("p50_nanoseconds"));
            assert!(figure.unwrap().as_f64().unwrap() > 0.0, "{words}: {row}");
            let arrived = row.get("arrived_messages").and_then(serde_json::Value::as_u64);
            assert_eq!(arrived.is_some(), words.contains("bw") && words.contains("-c ud"), "{words}: {row}");
        }
    }
}

#[test]
fn server_rejects_missing_devices_at_start() {
    for (words, missing) in [
        ("--device nothing", "nothing"),
        ("--device soft0 --ib-port 7", "7"),
        ("--device soft0 --gid-index 9999", "--gid-index 9999"),
        ("--device soft0 --pkey-index 9999", "--pkey-index 9999"),
        ("--device soft0 --dlid 7", "--dlid 7"),
        ("--cpu 65535", "65535"),
    ] {
        let (_, err) = ends(&run(&format!("{words} --port {}", port())), 1);
        assert!(err.contains(missing) && !err.contains("waiting for clients"), "{words}: {err}");
    }
}

#[test]
fn server_may_name_an_iwarp_device() {
    let port = port();
    let on_softiw0 = |words: &str| {
        let mut command = program(&format!("{words} -d softiw0 -p {port}"));
        command.env("SOFTRNIC_DEVICES", "softiw0");
        command
    };
    let _server = Server(on_softiw0("").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let client = |words| on_softiw0(&format!("write bw {words} -n 100 --wait-server 20 127.0.0.1")).output().unwrap();
    let (out, _) = ends(&client("-R"), 0);
    assert!(out.contains("server: softiw0 port 1"), "{out}");
    let (_, err) = ends(&client(""), 1);
    assert!(err.contains("only librdmacm connects; add -R"), "{err}");
}

#[test]
fn reversed_test_sends_from_the_server() {
    let port = port();
    let _server = Server::start(&format!("-d soft0 --port {port}"));
    for words in ["write", "write --imm", "read", "send", "atomic", "send -c ud -s 512", "write -c uc", "send -D 100ms"]
    {
        let amount = if words.contains("-D") { "" } else { "-n 300 --validate" };
        let amount = if words.contains("atomic") { "-n 300" } else { amount };
        let out = run(&format!("{words} --reversed {amount} -d soft0 --port {port} --wait-server 20 127.0.0.1")
            .replacen(' ', " bw ", 1));
        let (out, _) = ends(&out, 0);
        assert!(out.contains("bandwidth, sent by the server"), "{words}: {out}");
        let rows = rows(&out);
        assert_eq!(rows.len(), 1, "{words}: {out}");
        // For datagrams, only messages that arrive after the warm-up count, and the receiver may find several at a
        // time.
        let messages: u64 = rows[0].iter().filter_map(|word| word.parse().ok()).nth(1).unwrap();
        assert!(words.contains("-D") || messages == 300 || words.contains("ud") && messages < 300, "{words}: {out}");
    }
    let (_, err) = ends(&run("write lat --reversed --loopback"), 2);
    assert!(err.contains("--reversed applies to `bw` only"), "{err}");
}

#[test]
fn loopback_requires_no_server() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let files =
        ["json", "csv", "svg", "png"].map(|ending| folder.join(format!("loopback.{ending}")).display().to_string());
    let [json, csv, svg, png] = &files;
    let words = format!("write bw -d soft0 -n 500 -s 64,4K --loopback --json {json} --csv {csv} --plot {svg}");
    let (out, _) = ends(&run(&words), 0);
    assert_eq!(rows(&out).len(), 2, "{out}");
    ends(&run("send bw -d soft0 -n 500 -R -e --loopback"), 0);
    let text = |file: &str| std::fs::read_to_string(file).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text(json)).unwrap();
    assert_eq!(document["rows"].as_array().map(Vec::len), Some(2));
    assert_eq!(document["environment"]["client"]["device"], "soft0");
    assert_eq!(text(csv).lines().count(), 3);
    assert!(text(svg).contains("</svg>"));
    // The results of both runs are drawn into one plot, and are compared with each other.
    ends(&run(&format!("plot {json} {json} -o {png}")), 0);
    assert!(std::fs::read(png).unwrap().starts_with(b"\x89PNG"));
    let against = format!("write bw -d soft0 -n 500 -s 64,4K --loopback --compare {json} --threshold 1000000");
    ends(&run(&against), 0);
}

#[test]
fn stream_has_a_line_per_event() {
    let (out, _) = ends(&run("write bw -d soft0 -n 200 -s 64,128 --loopback --json-stream"), 0);
    let events: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["start", "row", "row", "end"]);
}

#[test]
fn stream_has_intervals() {
    for (words, kind) in [
        ("write bw -D 600ms", "bandwidth"),
        ("send bw -D 600ms -b --threads 2", "bandwidth"),
        ("send bw -D 600ms --reversed", "bandwidth"),
        ("write bw -D 600ms --reversed", "bandwidth"),
        ("send bw -c ud -s 1K -D 600ms --reversed", "bandwidth"),
        ("write lat -D 600ms", "latency"),
        ("read lat -D 600ms", "latency"),
    ] {
        let (out, _) =
            ends(&run(&format!("{words} --warm-up 50ms -d soft0 --loopback --interval 100ms --json-stream")), 0);
        let events: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let (row, events) = events[1..events.len() - 1].split_last().unwrap();
        assert!(!events.is_empty() && row["event"] == "row", "{words}: {out}");
        let (mut end, mut count) = (0.0, 0);
        for event in events {
            assert_eq!((event["event"].as_str(), event["kind"].as_str()), (Some("interval"), Some(kind)), "{event}");
            let number = |name: &str| event[name].as_f64().unwrap();
            assert!(number("start_seconds") >= end && number("end_seconds") > number("start_seconds"), "{out}");
            end = number("end_seconds");
            if kind == "latency" {
                assert!(number("min_nanoseconds") <= number("mean_nanoseconds"), "{event}");
                assert!(number("mean_nanoseconds") <= number("max_nanoseconds"), "{event}");
                count += event["samples"].as_u64().unwrap();
            } else {
                assert_eq!(
                    event["bytes"].as_u64().unwrap(),
                    event["messages"].as_u64().unwrap() * row["size_bytes"].as_u64().unwrap()
                );
                count += event["messages"].as_u64().unwrap();
            }
        }
        assert!(count > 0, "{words}: {out}");
        if kind == "latency" {
            assert!(count <= row["samples"].as_u64().unwrap(), "{words}: {out}");
        }
    }
}

#[test]
fn errors_name_cause_and_remedy() {
    for (words, status, sentence) in [
        ("write bw -l 64 -t 32 --loopback", 2, "--post-list 64 is above --tx-depth 32"),
        ("write bw -s 5x --loopback", 2, "5x"),
        ("10.0.0.1", 2, "the test comes before the server: stride-perf write bw 10.0.0.1"),
        ("bw", 2, "the operation comes first: stride-perf write bw"),
        ("write bw ::1:20207", 2, "give the server as ::1, and -p 20207"),
        ("wirte bw", 2, "a similar subcommand exists: 'write'"),
        ("write bw --iter 5 --loopback", 2, "a similar argument exists: '--iters'"),
        ("server --port 1 --json x", 2, "unexpected argument '--json'"),
        ("write bw --report_gbits --loopback", 2, "the table has Gb/s; leave it out"),
        ("write bw -F --loopback", 2, "no figure depends on the processor's frequency; leave it out"),
        ("write bw --size 64 --loopback", 2, "use --msg-size"),
        ("write bw --run_infinitely --loopback", 2, "use --run-infinitely"),
        ("write bw 127.0.0.1:18515", 2, "give the server as 127.0.0.1, and -p 18515"),
        ("write bw [::1]:7", 2, "give the server as ::1, and -p 7"),
        ("write bw fe80::1", 2, "such as fe80::1%eth0"),
        ("write bw -p 0 127.0.0.1", 2, "--port 0 is valid for servers only"),
        ("write bw --json x --csv x --loopback", 2, "--json and --csv name the same file, \"x\"; give each its own"),
        ("write bw --json - --loopback", 2, "--json does not support -"),
        ("write bw -s 0 --loopback", 2, "--msg-size is 0; it can be 1 to "),
        ("plot /nowhere/run.json -o x.svg", 1, "cannot read /nowhere/run.json"),
        ("plot run.json -o x.gif", 2, "unsupported plot format"),
        ("man fly", 2, "no command \"fly\": stride-perf --help lists the commands"),
        ("atomic bw -c srd --loopback", 2, "--transport srd does not support fetch-and-add"),
        ("read bw -c uc --loopback", 2, "--transport uc does not support read; give --transport rc"),
        ("write lat -e --loopback", 2, "leave out --events, or give --imm or --latency ack"),
        ("write bw -d nothing --loopback", 1, "nothing"),
        ("write bw -d soft0 --loopback --use-cuda gpu0", 2, "its PCI address, such as 0000:3b:00.0"),
        ("write bw -d soft0 -R -x 0 --loopback", 2, "conflict with --rdma-cm, which selects GIDs"),
        ("write bw -d soft0 -R --pkey-index 0 --loopback", 2, "conflict with --rdma-cm, which selects the partition"),
        (
            "write bw -d soft0 --pkey-index 1 --loopback",
            1,
            "no P_Key at this index of port 1 of soft0; it has 0 (0xffff)",
        ),
        (
            "write bw -d soft0 --remote-pkey-index 1 --loopback",
            1,
            "the server: --pkey-index 1: no P_Key at this index of port 1 of soft0",
        ),
        ("write bw --burst-size 8 --loopback", 2, "give --rate-limit as well, or leave it out"),
        ("write bw --gap 5 --loopback", 2, "--gap applies to `lat` only"),
        ("write lat --gap 11s --loopback", 2, "--gap is 11s; it can be 1us to 10s"),
        ("write bw --mr-per-qp --loopback", 2, "give --qp-count, or leave it out"),
        ("write bw -d soft0 -W all,x --loopback", 2, "leave out the other names"),
        ("write bw -d soft0 -W all --loopback", 1, "--counters: port 1 of soft0 has no readable counters"),
        ("write bw -d soft0 -W symbol_error --loopback", 1, "no such counter on port 1 of soft0; it has none at all"),
        ("write bw -d soft0 --dlid 0x13 --loopback", 1, "--dlid 19: port 1 of soft0 is on Ethernet"),
        ("write bw -d soft0 --flow-label 0x100000 --loopback", 2, "--flow-label is 1048576; it can be 0 to 1048575"),
        ("write bw --odp --remote-use-cuda 0 --loopback", 2, "--odp and --use-cuda conflict"),
        ("write bw -p 1 127.0.0.1", 4, "127.0.0.1"),
        ("write bw -d soft0 -n 10 --loopback --json /nowhere/run.json", 1, "/nowhere/run.json"),
        ("write bw -d soft0 --loopback --compare /nowhere/run.json", 1, "/nowhere/run.json"),
        ("write bw -d soft0 --loopback --cpu 60000", 1, "cannot bind a thread to processor 60000 of --cpu"),
        ("write bw -d soft0 --loopback --remote-cpu 60000", 1, "cannot bind a thread to processor 60000"),
        ("write bw -d soft0 names.invalid", 4, "cannot resolve names.invalid: "),
    ] {
        let (_, err) = ends(&run(words), status);
        let error = errors::text(&err, "error: ");
        // Further lines may contain suggestions of clap.
        assert!(error.contains(sentence) || status == 2 && err.contains(sentence), "{words}: {err}");
    }
}

#[test]
fn rdma_cm_with_another_device_is_an_error() {
    // All addresses belong to the first device, so the second one cannot be reached.
    let output = program("write bw -d soft1 -R --loopback").env("SOFTRNIC_DEVICES", "2").output().unwrap();
    let (_, err) = ends(&output, 1);
    assert!(err.contains("--device is soft1, but --rdma-cm resolves ") && err.contains(" to soft0; "), "{err}");
}

#[test]
fn vendor_transport_without_its_device_is_an_error() {
    for (transport, vendor, variable) in
        [("dc", "mlx5 (ConnectX, BlueField)", "RDMA_MUMMY_LIBMLX5"), ("srd", "EFA", "RDMA_MUMMY_LIBEFA")]
    {
        for path in [None, Some("/nowhere/lib.so")] {
            let mut command = program(&format!("send bw -d soft0 -n 10 -s 64 --loopback -c {transport}"));
            let (_, err) = ends(&command.envs(path.map(|path| (variable, path))).output().unwrap(), 1);
            let sentence = format!(
                "--transport {transport} requires a device of {vendor}, and the provider of soft0 of the client is softrnic; name another with -d, or \
                 give --transport rc"
            );
            assert!(err.contains(&sentence), "{err}");
            // A test with another transport does not load these libraries, so it succeeds.
            let mut command = program("send bw -d soft0 -n 10 -s 64 --loopback");
            ends(&command.envs(path.map(|path| (variable, path))).output().unwrap(), 0);
        }
    }
}

#[test]
fn machine_without_device_error_names_the_remedy() {
    let output = program("write bw -d soft0 --loopback").env("SOFTRNIC_DEVICES", "0").output().unwrap();
    let (_, err) = ends(&output, 1);
    // If the system has devices, the error lists them.
    let sentences = ["unset SOFTRNIC_DEVICES to use softrnic's", "no RDMA device is named `soft0`"];
    assert!(sentences.iter().any(|sentence| err.contains(sentence)), "{err}");
}

#[test]
fn invalid_profile_error_names_the_variable_and_the_values() {
    for words in ["devices", "self-test", "write bw --loopback"] {
        let (_, err) = ends(&program(words).env("SOFTRNIC_PROFILE", "mlx4").output().unwrap(), 1);
        let error = "invalid SOFTRNIC_PROFILE mlx4: no such profile; choose connectx, or unset it";
        assert!(err.lines().any(|line| line == format!("error: softrnic has no devices: {error}")), "{words}: {err}");
    }
}

#[test]
fn missing_huge_pages_are_one_warning() {
    // Both sides need huge pages for several regions. If the machine has enough huge pages, there is no warning.
    let (_, err) = ends(&run("write bw -d soft0 -s 32M -n 2 --loopback --huge-pages --remote-huge-pages"), 0);
    let warnings: Vec<&str> = err.lines().filter(|line| line.contains("huge pages")).collect();
    assert!(warnings.len() <= 1, "{err}");
    for warning in warnings {
        assert!(
            warning.starts_with("warning: --huge-pages: cannot reserve ") && !warning.contains("HugePages"),
            "{err}"
        );
    }
}

#[test]
fn devices_manual_and_help_are_printed() {
    let (out, err) = ends(&run("devices"), 0);
    assert!(!err.contains("overrun"), "{err}");
    assert!(out.contains("soft0") && out.contains("127.0.0.1"), "{out}");
    let row = out.lines().find(|line| line.contains("soft0")).unwrap();
    assert!(out.contains(" usable ") && row.contains(" yes "), "{out}");
    // The output contains the capabilities of the device.
    assert!(out.contains(" inline bytes\n") && out.contains(" RC, UC, UD, XRC "), "{out}");
    assert!(ends(&run("completions bash"), 0).0.contains("stride-perf"));
    assert!(ends(&run("man"), 0).0.contains(".TH stride-perf"));
    for page in ["man", "man write bw", "write bw --help", "--help"] {
        let (text, _) = ends(&run(page), 0);
        assert!(text.contains("Exit status:") && text.contains("RDMA failed"), "{page}: {text}");
    }
    let (help, _) = ends(&run("write bw --help"), 0);
    for option in
        ["--post-list", "--validate", "--remote-device", "--min-gbps", "--min-mpps", "--like-perftest", "--no-numa"]
    {
        assert!(help.contains(option), "{help}");
    }
}

#[test]
fn short_runs_have_intervals() {
    for words in ["-D 500ms", "-n 200000 -s 64"] {
        let (out, _) = ends(&run(&format!("write bw -d soft0 {words} --loopback")), 0);
        let rows = rows(&out);
        assert_eq!(rows.len(), 1, "{words}: {out}");
        // In a row, the rates of the slowest, the median and the fastest interval follow the average.
        let rates: Vec<f64> = rows[0].iter().filter_map(|word| word.parse().ok()).collect();
        assert!(!out.contains(" - "), "{words}: {out}");
        assert!(rates.len() > 6, "{words}: {out}");
    }
}

#[test]
fn perftest_output_is_a_baseline() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("perftest.txt");
    let text = "RDMA_Write BW Test\n#bytes #iterations BW peak[MB/sec] BW average[MB/sec] MsgRate[Mpps]\n64 1000 0.01 0.01 0.000164\n";
    std::fs::write(&file, text).unwrap();
    let file = file.display();
    let (out, err) = ends(&run(&format!("write bw -d soft0 -n 500 -s 64 --loopback --compare {file}")), 0);
    assert!(out.contains("better") && err.contains("the baseline is perftest's output"), "{out}\n{err}");
    // If a test cannot be compared with the baseline, it is rejected before the measurement.
    let (out, err) = ends(&run(&format!("read bw -d soft0 -n 500 -s 64 --loopback --compare {file}")), 1);
    assert!(out.is_empty() && err.contains("the baseline is write, and this run is read"), "{out}\n{err}");
    std::fs::write(format!("{file}"), "hello").unwrap();
    let (_, err) = ends(&run(&format!("read bw -d soft0 -n 500 -s 64 --loopback --compare {file}")), 1);
    assert!(err.contains("neither JSON of stride-perf nor output of a perftest program"), "{err}");
}

#[test]
fn output_files_are_checked_before_the_test() {
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("tried.json");
    std::fs::write(&file, "kept").unwrap();
    for words in ["--json /nowhere/run.json", "--csv /nowhere/run.csv", "--plot /nowhere/run.svg"] {
        let (out, err) = ends(&run(&format!("write bw -d soft0 -n 500 -s 64 --loopback {words}")), 1);
        assert!(out.is_empty() && err.contains("error: cannot write /nowhere/run."), "{out}\n{err}");
    }
    ends(&run(&format!("write bw -d nothing --loopback --json {}", file.display())), 1);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn port_in_use_error_names_port_and_option() {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (_, err) = ends(&run(&format!("-4 -p {port}")), 1);
    assert!(err.contains(&format!("cannot bind TCP port {port}: address in use")) && err.contains("--port"), "{err}");
}

#[test]
fn every_command_has_help() {
    for words in [
        "",
        "write",
        "write bw",
        "write lat",
        "read bw",
        "read lat",
        "send bw",
        "send lat",
        "atomic bw",
        "atomic lat",
        "server",
        "self-test",
        "devices",
        "plot",
        "completions",
        "man",
    ] {
        let (out, err) = ends(&run(&format!("{words} --help")), 0);
        assert!(out.contains("Usage: stride-perf") && err.is_empty(), "{words}: {out}{err}");
        assert!(out.lines().all(|line| line.chars().count() <= 120), "{words}: {out}");
    }
}
