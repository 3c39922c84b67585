//! Sends messages to and fro over a reliable connection and tells how long it took: `ibv_rc_pingpong`, in Rust, and a peer of
//! that program.

mod arguments;
mod endpoint;
mod game;
mod pattern;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;
use sideway_examples::exchange::Peer;

use self::arguments::Arguments;
use self::endpoint::Endpoint;
use self::game::Game;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let mut endpoint = Endpoint::new(&arguments)?;
    if let Some(note) = endpoint.note() {
        writeln!(out, "{note}")?;
    }
    writeln!(out, "  local address:  {}", endpoint.address())?;
    out.flush()?;

    // A peer may send as soon as it knows this side: the receives must be there by then.
    let game = Game::new(&arguments, &mut endpoint)?;
    let timeout = arguments.timeout;
    let remote = match &arguments.server {
        Some(server) => {
            let mut peer = Peer::connect(server, arguments.port, timeout)?;
            peer.send_address(&game.endpoint().address())?;
            let remote = peer.receive_address()?;
            game.endpoint().connect(&remote)?;
            peer.send_done()?;
            remote
        }
        None => {
            let mut peer = Peer::accept(arguments.port, timeout)?;
            let remote = peer.receive_address()?;
            game.endpoint().connect(&remote)?;
            peer.send_address(&game.endpoint().address())?;
            peer.receive_done()?;
            remote
        }
    };
    writeln!(out, "  remote address: {remote}")?;
    out.flush()?;

    let statistics = game.play()?;
    write!(out, "{statistics}")?;
    Ok(())
}
