//! Many connections by address on one thread and one event channel, with messages to and fro on all of them: `ucmatose` of
//! rdma-core, in Rust, and a peer of that program.
//!
//! `game.rs` has the steps, `connection.rs` what one connection is, and `greeting.rs` what tells whether the peer is this program.

mod arguments;
mod connection;
mod game;
mod greeting;

use std::io::Write;
use std::process::ExitCode;

use anyhow::Result;

use self::arguments::Arguments;
use self::game::Game;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let mut say = |text: &str| -> Result<()> {
        writeln!(out, "{text}")?;
        Ok(out.flush()?)
    };
    let is_client = arguments.server.is_some();
    let mut game = Game::new(&arguments)?;
    match game.listens_on() {
        Some(address) => say(&format!("listening on {address}"))?,
        None => say("connecting")?,
    }
    game.connect()?;
    let (all, ours) = (arguments.connections as usize, game.peers_of_ours());
    say(&format!(
        "{all} connected; the messages are {}",
        if ours == all { "checked" } else { "not checked: the peer is another program" }
    ))?;
    // The server sends first.
    if is_client {
        game.wait_until_received()?;
        game.send()?;
    } else {
        game.send()?;
        game.wait_until_sent()?;
        game.wait_until_received()?;
    }
    let total = u64::from(arguments.connections) * u64::from(arguments.messages);
    say(&format!("{total} messages of {} bytes sent, and as many received", arguments.size))?;
    if arguments.migrate {
        game.migrate()?;
        say("moved to another event channel")?;
    }
    game.disconnect()?;
    say("disconnected")
}
