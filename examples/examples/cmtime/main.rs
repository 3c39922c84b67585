//! How long each step of making and ending connections takes by the connection manager, over many connections at once. The
//! options, the table and the way of rdma-core's program of this name, up to its version 51.

mod arguments;
mod client;
mod connection;
mod failures;
mod lane;
mod queues;
mod server;
mod signals;
mod step;
mod table;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use self::arguments::Arguments;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    match &arguments.server {
        Some(server) => client::run(&arguments, server, out),
        None => server::run(&arguments, out),
    }
}
