//! Sends messages to and fro over many reliable connections that take their receives from one shared receive queue, and tells how
//! long it took: `ibv_srq_pingpong`, in Rust, and a peer of that program.

mod arguments;
mod endpoint;
mod game;
mod partners;

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
    for address in endpoint.addresses() {
        writeln!(out, "  local address:  {address}")?;
    }
    out.flush()?;

    // A peer may send as soon as it knows this side: the receives must be there by then.
    let game = Game::new(&arguments, &mut endpoint)?;
    let (local, timeout) = (game.endpoint().addresses(), arguments.timeout);
    let remote = match &arguments.server {
        Some(server) => {
            let mut peer = Peer::connect(server, arguments.port, timeout)?;
            partners::send(&mut peer, local)?;
            let remote = partners::receive(&mut peer, local.len())?;
            game.endpoint().connect(&remote)?;
            peer.send_done()?;
            remote
        }
        None => {
            let mut peer = Peer::accept(arguments.port, timeout)?;
            let remote = partners::receive(&mut peer, local.len())?;
            game.endpoint().connect(&remote)?;
            partners::send(&mut peer, local)?;
            peer.receive_done()?;
            remote
        }
    };
    for address in remote {
        writeln!(out, "  remote address: {address}")?;
    }
    out.flush()?;

    let statistics = game.play()?;
    write!(out, "{statistics}")?;
    Ok(())
}
