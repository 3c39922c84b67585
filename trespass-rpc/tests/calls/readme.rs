//! The commands of the README.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use sideway_test_names::Port;

/// Ends the server, even if the test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Returns the command of the example program. `cargo test` builds the program with this test, unless its arguments
/// select other targets.
fn kv() -> Command {
    let folder = std::env::current_exe().unwrap().parent().unwrap().with_file_name("examples");
    let program = folder.join("kv");
    let changed = |path: &Path| path.metadata().and_then(|of| of.modified()).ok();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/kv.rs");
    if changed(&program) < changed(&source) {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--package", "trespass-rpc", "--example", "kv"]);
        cargo.args((!cfg!(debug_assertions)).then_some("--release"));
        assert!(cargo.status().unwrap().success());
    }
    Command::new(program)
}

fn output(mut command: Command) -> (bool, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[test]
fn commands_of_the_readme_print_what_it_shows() {
    let readme = include_str!("../../README.md");
    let console = readme.split("```console\n").nth(1).unwrap().split("```").next().unwrap();
    // The commands of the README, each with the lines that it prints.
    let mut commands: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in console.lines() {
        match line.strip_prefix("$ cargo run --release -p trespass-rpc --example kv") {
            Some(arguments) => commands.push((arguments.split('#').next().unwrap().trim(), Vec::new())),
            None => commands.last_mut().unwrap().1.push(line),
        }
    }
    let [(server, _), (client, lines), (load, _)] = &commands[..] else { panic!("{commands:?}") };
    assert_eq!(*server, "");
    // The README's port may be in use.
    let port = Port::reserve();
    let own = format!("127.0.0.1:{}", port.number());
    let mut process = Server(kv().args(["--listen", &own]).stdout(Stdio::piped()).spawn().unwrap());
    let mut said = String::new();
    BufReader::new(process.0.stdout.take().unwrap()).read_line(&mut said).unwrap();
    let address = said.trim().strip_prefix("serving at ").unwrap();
    let with = |arguments: &str| {
        let mut command = kv();
        command.args(arguments.replace("127.0.0.1:7175", address).split(' '));
        command
    };
    let (is_well, out, errors) = output(with(client));
    assert!(is_well && out.lines().eq(lines.iter().copied()), "{out}{errors}");
    let (is_well, out, errors) = output(with(load));
    assert!(is_well && out.contains("64 callers: "), "{out}{errors}");
    // Runs the client over TCP. As the README states, its second line then differs.
    let mut command = with(client);
    command.env("SOFTRNIC_DEVICES", "0");
    let (is_well, out, errors) = output(command);
    assert!(is_well && out.starts_with("connected over TCP ") && out.contains("(no RDMA: "), "{out}{errors}");
    assert!(out.lines().skip(2).eq(lines.iter().copied().skip(2)), "{out}");
    // Tests three errors: the server's address is in use, no server listens at the client's address, and the client's
    // address has no port.
    let (is_well, _, errors) = output({
        let mut command = kv();
        command.args(["--listen", address]);
        command
    });
    assert!(!is_well && errors.starts_with(&format!("kv: cannot listen at {address}: ")), "{errors}");
    drop(process);
    let (is_well, _, errors) = output(with(client));
    assert!(!is_well && errors.starts_with(&format!("kv: cannot connect to {address}: ")), "{errors}");
    // A label of a host name has at most 63 characters, so no name server is asked.
    let no_host = format!("{}:7175", "a".repeat(64));
    let wrong = [("127.0.0.1", "give HOST:PORT"), ("127.0.0.1:x", "give HOST:PORT"), (&no_host, "check the host name")];
    for (address, remedy) in wrong {
        let (is_well, _, errors) = output(with(address));
        assert!(!is_well && errors.contains(remedy), "{errors}");
    }
}
