//! Pings by RDMA read and write, over a connection by IP address: a peer of rdma-core's program of this name.

mod arguments;
mod client;
mod connect;
mod endpoint;
mod link;
mod listen;
mod message;
mod server;
mod text;
mod voice;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use self::arguments::Arguments;
use self::voice::Voice;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let mut say = |line: String| {
        writeln!(out, "{line}")?;
        // Somebody may look on.
        Ok(out.flush()?)
    };
    match (arguments.server, arguments.persistent) {
        (false, _) => {
            client::run(&arguments, &mut Voice::new("ping data", arguments.verbose, arguments.debug, &mut say))
        }
        (true, false) => listen::one(&arguments, &mut say),
        (true, true) => listen::all(arguments, &mut say),
    }
}
