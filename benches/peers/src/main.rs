//! Prints the table of zero_cost with columns for sideway 0.4 and rust-ibverbs from crates.io. Run `cargo run
//! --release` in this folder.
//!
//! Each loop runs in its own process, which loads the empty device as its `libibverbs.so.1`.

mod rust_ibverbs;
mod sideway_04;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use sideway_zero_cost::allocations::Counting;
use sideway_zero_cost::run::{self, Further};
use sideway_zero_cost::work::{Interface, Task};
use sideway_zero_cost::{count, table};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const SIDEWAY: &str = "sideway 0.4.3";
const GENERIC: &str = "its generic";
const IBVERBS: &str = "ibverbs 0.9.2";

fn main() -> Result<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [column, interface, task] = words.as_slice() {
        let sum = count::counted(|rounds| match column.as_str() {
            IBVERBS => rust_ibverbs::run(task, rounds),
            SIDEWAY => sideway_04::run(interface == "extended", task, rounds),
            GENERIC => sideway_04::run_generic(interface == "extended", task, rounds),
            _ => bail!("no column {column}"),
        })?;
        println!("{sum:016x}");
        return Ok(ExitCode::SUCCESS);
    }
    let program = std::env::current_exe().context("the path of this program is not available")?;
    let built = program.parent().context("the path of this program has no folder")?;
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release/zero_cost");
    let folder = std::env::temp_dir().join(format!("peers-{}", std::process::id()));
    fs::create_dir_all(&folder)?;
    fs::copy(built.join("libempty_libibverbs.so"), folder.join("libibverbs.so.1"))?;
    let further = [SIDEWAY, GENERIC, IBVERBS].map(|name| Further {
        name: name.to_owned(),
        command,
        program: &program,
        libraries: &folder,
    });
    let rows = run::all(&ours, &folder, &further)
        .with_context(|| format!("{} (cargo build --release -p sideway-zero-cost)", ours.display()));
    fs::remove_dir_all(&folder)?;
    println!("{}", table::print(&rows?));
    Ok(ExitCode::SUCCESS)
}

/// The arguments with which this program runs a loop, if the crate has it.
fn command(name: &str, interface: Interface, task: Task) -> Option<Vec<String>> {
    let task = match task {
        Task::Post1 => "post1",
        Task::Post32 => "post32",
        Task::InlineCopy if name != IBVERBS => "inline",
        Task::Empty => "empty",
        _ => return None,
    };
    let interface = match interface {
        Interface::Extended if name == IBVERBS => return None,
        Interface::Extended => "extended",
        Interface::Basic => "basic",
    };
    Some([name, interface, task].map(str::to_owned).to_vec())
}
