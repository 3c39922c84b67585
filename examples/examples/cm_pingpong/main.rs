//! Sends messages to and fro between two programs that find each other by IP address, as librdmacm offers it, and tells how long
//! it took: the ping-pong of `rc_pingpong` (or of `ud_pingpong`), without a TCP connection beside it.
//!
//! ```text
//! client                                    server
//!
//! Connector::resolve                        Listener::accept      a Request
//!   queue pair, through the identifier        queue pair, through the identifier
//!   receives are posted                       receives are posted
//! Resolved::connect     ──────────────────► Request::accept
//! message               ──────────────────►
//!                       ◄────────────────── answer                … as often as --iters
//! Connection::wait      ◄────────────────── Connection::disconnect
//! ```
//!
//! The client sends the first message, and the server none before it. On iWARP that is a rule: the side that has accepted may
//! not send before it has heard from the one that connected.
//!
//! With `--ud`, the client looks the server's queue pair up, and the server learns from the first message where the client is.
//!
//! The game itself, which others play as well, is in `sideway_examples::pingpong`.

mod arguments;
mod connection;
mod datagrams;
mod meeting;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use self::arguments::Arguments;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    arguments.play.check()?;
    match (&arguments.server, arguments.ud) {
        (Some(host), false) => connection::client(host, &arguments, out),
        (None, false) => connection::server(&arguments, out),
        (Some(host), true) => datagrams::client(host, &arguments, out),
        (None, true) => datagrams::server(&arguments, out),
    }
}
