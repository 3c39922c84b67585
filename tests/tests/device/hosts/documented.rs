//! The commands of softrnic's README.

use std::fs;
use std::path::Path;
use std::process::Command;

use sideway_test_names::Folder;
use sideway_tests::child::{self, Ended, example};
use sideway_tests::programs::LIMIT;
use sideway_tests::requirements::may_not_run;

use super::is_soft;

/// The shell commands of the README's recipe for two hosts.
fn recipe() -> String {
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../softrnic/README.md");
    let readme = fs::read_to_string(readme).expect("the README is there");
    let after = readme.split_once("two network namespaces").expect("the recipe is there").1;
    let commands = after.split_once("```sh\n").expect("the recipe has commands").1;
    commands.split_once("```").expect("the commands end").0.to_owned()
}

#[test]
fn recipe_for_two_hosts_works_as_written() {
    if !is_soft() {
        return;
    }
    // Runs in its own namespaces, so that the recipe's names are free and no objects remain.
    let isolated = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child"]);
        command.args(["sh", "-euc"]);
        command
    };
    let own_names = "mount -t tmpfs tmpfs /run";
    let trial = isolated().arg(format!("{own_names}; ip netns add x; ip netns del x")).output();
    if !trial.is_ok_and(|trial| trial.status.success()) {
        return may_not_run("this user cannot create network namespaces");
    }
    let rping = example("rping");
    let examples = Path::new(rping.get_program()).parent().expect("it is in a folder");
    let folder = Folder::new();
    fs::create_dir_all(folder.join("target/debug")).expect("the folder is new");
    std::os::unix::fs::symlink(examples, folder.join("target/debug/examples")).expect("the folder is new");
    let commands = recipe();
    // The example is built already.
    let (build, commands) = commands.split_once('\n').expect("there are several commands");
    assert_eq!(build, "cargo build --example rping");
    let mut command = isolated();
    command.arg(format!("{own_names}\n{commands}")).current_dir(folder.path());
    let ended = child::run(command, LIMIT);
    // The client fails until the server listens.
    let Ended { status, output } = ended;
    assert!(status.success() && output.contains("\nping data: rdma-ping-2"), "{status}\n{output}");
}
