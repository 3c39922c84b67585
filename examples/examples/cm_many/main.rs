//! Hundreds of connections by address on one thread and one event channel: the program sleeps in poll(2) until something comes.
//!
//! | file | what |
//! |---|---|
//! | `crowd.rs` | all connections, and the loop |
//! | `connection.rs` | one of them: the next step, whatever comes |
//! | `lane.rs` | what the connections on a device share |
//! | `tally.rs` | how many are where |

mod arguments;
mod connection;
mod crowd;
mod lane;
mod poll;
mod tally;

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};

use self::arguments::Arguments;
use self::crowd::Crowd;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let role = arguments.crowd.role()?;
    let mut crowd = Crowd::new(&arguments, role)?;
    if let Some(address) = crowd.listens_on() {
        writeln!(out, "listening on {address}")?;
        out.flush()?;
    }
    let start = Instant::now();
    let ended = crowd.run();
    let tally = crowd.tally();
    write!(out, "{tally}")?;
    ended?;
    writeln!(out, "{} in {:.2} seconds", tally.total(), start.elapsed().as_secs_f64())?;
    match crowd.failures() {
        [] => Ok(()),
        [first, ..] => bail!("{} of them failed, the first: {first}", crowd.failures().len()),
    }
}
