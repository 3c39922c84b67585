//! Tests that run meshes of processes on softrnic.

use std::io::Read as _;
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::Value;
use sideway_test_names::Folder;
use sideway_tests::requirements::may_not_run;

use super::{ends, port, program};

/// The variables of launchers, which a launcher around the tests may have set.
const LAUNCHERS: [&str; 7] = [
    "OMPI_COMM_WORLD_RANK",
    "PMI_RANK",
    "RANK",
    "SLURM_PROCID",
    "JOB_COMPLETION_INDEX",
    "STRIDE_PERF_MESH",
    "WORLD_SIZE",
];

/// Returns a command that runs `mesh` with these words, without a launcher.
fn mesh(words: &str) -> Command {
    let mut command = program(&format!("mesh {words}"));
    for name in LAUNCHERS {
        command.env_remove(name);
    }
    command
}

/// Starts a rank of a mesh whose ranks find each other by the variables of torchrun.
fn rank(words: &str, rank: usize, size: usize, port: u16) -> Child {
    let mut command = mesh(words);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", size.to_string());
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs all ranks of a mesh to their ends.
fn ranks(words: &str, size: usize) -> Vec<Output> {
    let port = port();
    let children: Vec<_> = (0..size).map(|number| rank(words, number, size, port)).collect();
    children.into_iter().map(|child| child.wait_with_output().unwrap()).collect()
}

fn read(file: &std::path::Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Checks a file of a mesh against the schema.
#[track_caller]
fn assert_valid(document: &Value) {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    let schema = SCHEMA.get_or_init(|| {
        let [run, mesh] = [
            include_str!("../../schema/stride-perf.schema.json"),
            include_str!("../../schema/stride-perf-mesh.schema.json"),
        ]
        .map(|text| serde_json::from_str::<Value>(text).unwrap());
        let place = "https://stride-perf.invalid/stride-perf.schema.json";
        let registry = jsonschema::Registry::new().add(place, &run).unwrap().prepare().unwrap();
        jsonschema::options().with_registry(&registry).build(&mesh).unwrap()
    });
    let faults: Vec<_> =
        schema.iter_errors(document).map(|error| format!("{error} at {}", error.instance_path())).collect();
    assert_eq!(faults, [""; 0]);
}

/// Returns the quiet cells of a document.
fn quiet(document: &Value) -> Vec<&Value> {
    document["cells"].as_array().unwrap().iter().filter(|cell| cell["mode"] == "quiet").collect()
}

#[test]
fn sixteen_processes_measure_each_pair() {
    let folder = Folder::new();
    let (json, csv) = (folder.join("mesh.json"), folder.join("mesh.csv"));
    let words = format!("write bw -s 4K -n 50 -d soft0 --json {} --csv {}", json.display(), csv.display());
    let outputs = ranks(&words, 16);
    let (out, _) = ends(&outputs[0], 0);
    assert!(out.starts_with("write bandwidth in Gb/s, 4 KiB, 16 ranks, 30 rounds"), "{out}");
    assert!(out.contains("worst pairs"), "{out}");
    for output in &outputs[1..] {
        assert_eq!(ends(output, 0), (String::new(), String::new()));
    }
    let document = read(&json);
    assert_valid(&document);
    assert_eq!(quiet(&document).len(), 16 * 15);
    assert!(quiet(&document).iter().all(|cell| cell["error"].is_null() && cell["rows"][0]["messages"] == 50));
    assert_eq!(document["ranks"][3]["ports"][0], "soft0 port 1");
    let lines = std::fs::read_to_string(&csv).unwrap();
    assert_eq!(lines.lines().count(), 1 + 16 * 15);
}

#[test]
fn all_modes_and_rails_have_cells() {
    let folder = Folder::new();
    let json = folder.join("mesh.json");
    let words = format!("send lat -s 8,64 -D 20ms --busy --incast --outcast -d soft0,soft0 --json {}", json.display());
    let output = ranks(&words, 3).swap_remove(0);
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(out.contains("rail soft0") && out.contains("incast sends") && out.contains("too few to tell"), "{out}");
    let document = read(&json);
    assert_valid(&document);
    assert_eq!(document["cells"].as_array().unwrap().len(), 4 * 2 * 6);
    for cell in document["cells"].as_array().unwrap() {
        // On a busy machine, no message may complete within a window.
        assert!(!cell["rows"].as_array().unwrap().is_empty() || cell["error"].is_string(), "{cell}");
    }
    assert_eq!(document["semantics"], "oneway");
}

#[test]
fn killed_rank_becomes_errors_and_the_others_go_on() {
    let folder = Folder::new();
    let json = folder.join("mesh.json");
    let words = format!("write bw -s 64 -D 300ms -d soft0 --min-gbps 0.000001 --json {}", json.display());
    let port = port();
    let mut children: Vec<_> = (0..4).map(|number| rank(&words, number, 4, port)).collect();
    // The first round has begun when rank 0 has printed its first line.
    let mut line = Vec::new();
    let mut first = children.remove(0);
    let error = first.stderr.as_mut().unwrap();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        error.read_exact(&mut byte).unwrap();
        line.extend(byte);
    }
    assert!(String::from_utf8(line).unwrap().contains("4 ranks have joined"));
    children[2].kill().unwrap();
    let (out, err) = ends(&first.wait_with_output().unwrap(), 3);
    assert!(err.contains("rank 3 (") && err.contains("left the mesh"), "{err}");
    assert!(out.contains("tests failed"), "{out}");
    let document = read(&json);
    assert_valid(&document);
    for cell in quiet(&document) {
        let is_lost = cell["from"] == 3 || cell["to"] == 3;
        assert!(is_lost || cell["error"].is_null(), "{cell}");
    }
    let failed = quiet(&document).iter().filter(|cell| !cell["error"].is_null()).count();
    assert!(failed >= 4, "{failed}");
    assert!(
        document["ranks"][3]["error"].is_string() && document["verdict"]["findings"].to_string().contains("failed")
    );
    for mut child in children {
        child.wait().unwrap();
    }
}

/// Runs eight ranks by a launcher. If the launcher is not installed, reports that the test did not run.
fn launched(launcher: &str, options: &str, expected: &str) {
    let folder = Folder::new();
    let json = folder.join("mesh.json");
    let mut command = Command::new(launcher);
    command.args(options.split_whitespace()).arg(env!("CARGO_BIN_EXE_stride-perf"));
    command.args("mesh write bw -s 4K -n 50 -d soft0 --json".split_whitespace()).arg(&json);
    LAUNCHERS.iter().for_each(|variable| {
        command.env_remove(variable);
    });
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return may_not_run(&format!("{launcher} is not installed"));
        }
        Err(error) => panic!("{launcher}: {error}"),
    };
    let (out, _) = ends(&output, 0);
    assert!(out.contains("8 ranks, 14 rounds"), "{out}");
    let document = read(&json);
    assert_valid(&document);
    assert_eq!(document["launcher"], expected);
    assert!(quiet(&document).len() == 56 && quiet(&document).iter().all(|cell| cell["error"].is_null()), "{document}");
}

#[test]
fn open_mpi_starts_the_ranks() {
    let options = "--allow-run-as-root --oversubscribe -n 8";
    launched("mpirun.openmpi", options, "open_mpi");
}

#[test]
fn mpich_starts_the_ranks() {
    launched("mpiexec.mpich", "-n 8", "hydra");
}

#[test]
fn limit_and_baseline_determine_the_exit_status() {
    let folder = Folder::new();
    let json = folder.join("mesh.json");
    let test = "write bw -s 4K -n 50 -d soft0";
    ends(&ranks(&format!("{test} --json {}", json.display()), 2)[0], 0);
    let (_, err) = ends(&ranks(&format!("{test} --min-gbps 1000000"), 2)[0], 3);
    assert!(err.contains("missed: "), "{err}");
    ends(&ranks(&format!("{test} --compare {} --threshold 99.999999", json.display()), 2)[0], 0);
    let (_, err) =
        ends(&ranks(&format!("write lat -s 8 -n 50 -d soft0 --wait-server 1 --compare {}", json.display()), 2)[0], 1);
    assert!(err.contains("give results of one kind"), "{err}");
    // What is known at the end only costs no result.
    let text = std::fs::read_to_string(&json).unwrap().replace("\"label\":\"", "\"label\":\"other-");
    std::fs::write(&json, text).unwrap();
    let [new, csv] = [folder.join("new.json"), folder.join("new.csv")];
    let words = format!("{test} --compare {} --json {} --csv {}", json.display(), new.display(), csv.display());
    let (out, err) = ends(&ranks(&words, 2)[0], 3);
    assert!(err.contains("no pair of hosts in common") && out.contains("worst pairs"), "{err}");
    assert_valid(&read(&new));
    assert!(csv.exists() && read(&new)["error"].is_string());
    let (out, err) = ends(&ranks(&format!("{test} --json /dev/full --csv {}", csv.display()), 2)[0], 1);
    assert!(err.contains("/dev/full") && out.contains("worst pairs"), "{err}");
}

#[test]
fn stale_rendezvous_file_misleads_no_rank() {
    let folder = Folder::new();
    let place = folder.join("meet");
    // The file of a job that was killed, whose port nothing listens at.
    std::fs::write(&place, format!("stride-perf mesh\n old\n127.0.0.1\n{}\n", port())).unwrap();
    let words = format!("write bw -s 4K -n 50 -d soft0 --ranks 3 --rendezvous {}", place.display());
    let start = |number: usize| {
        let mut command = mesh(&words);
        command.env("JOB_COMPLETION_INDEX", number.to_string()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    // Rank 0 comes last.
    let children: Vec<_> = [2, 1, 0].map(start).into();
    for child in children {
        ends(&child.wait_with_output().unwrap(), 0);
    }
    assert!(!place.exists(), "rank 0 removes the file");
}

#[test]
fn remote_shell_starts_the_other_hosts() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new();
    let (shell, json) = (folder.join("remote-shell"), folder.join("mesh.json"));
    // Runs the command on this host, as a remote shell does on another one.
    std::fs::write(&shell, "#!/bin/sh\nshift\nexec sh -c \"$*\"\n").unwrap();
    std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).unwrap();
    let options = format!("--rsh {} --stride-path {}", shell.display(), env!("CARGO_BIN_EXE_stride-perf"));
    let words =
        format!("--hosts 127.0.0.1,other,third {options} write bw -s 4K -n 50 -d soft0 --json {}", json.display());
    ends(&mesh(&words).output().unwrap(), 0);
    let document = read(&json);
    assert_valid(&document);
    assert_eq!((document["launcher"].as_str(), quiet(&document).len()), (Some("ssh"), 6));
    std::fs::write(&shell, "#!/bin/sh\n[ \"$1\" = other ] && exit 255\nshift\nexec sh -c \"$*\"\n").unwrap();
    let (_, err) = ends(&mesh(&words).output().unwrap(), 4);
    assert!(err.contains("the remote shell did not reach other"), "{err}");
    assert!(quiet(&read(&json)).iter().any(|cell| cell["error"].is_null()), "the others go on");
}

#[test]
fn errors_name_the_remedy() {
    for (words, part) in [
        ("write bw", "name the hosts with --hosts"),
        ("--hosts 192.0.2.77,b write bw", "is not this host"),
        ("--hosts 127.0.0.1,b --rsh /nonexistent/shell write bw", "name another remote shell with --rsh"),
        ("write bw --compare /nonexistent/file --hosts 127.0.0.1,b", "cannot read /nonexistent/file"),
    ] {
        let (_, err) = ends(&mesh(words).output().unwrap(), 1);
        assert!(err.contains(part), "{words}: {err}");
    }
    let mut alone = mesh("write bw --wait-server 1");
    alone
        .env("RANK", "0")
        .env("WORLD_SIZE", "2")
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port().to_string());
    let (_, err) = ends(&alone.output().unwrap(), 4);
    assert!(err.contains("1 of 2 ranks joined") && err.contains("--rendezvous"), "{err}");
    let mut lost = mesh("write bw --wait-server 1");
    lost.env("RANK", "1").env("WORLD_SIZE", "2").env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port().to_string());
    let (_, err) = ends(&lost.output().unwrap(), 4);
    assert!(err.contains("rank 1: did not reach rank 0 within 1s") && err.contains("refused"), "{err}");
}
