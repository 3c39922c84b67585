//! Gives a peer leave to use a part of a region through a memory window of type 2, and takes it back: by an invalidation of this
//! side, and by a message of the peer that invalidates the key.

mod arguments;
mod owner;
mod part;
mod peer;
mod side;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::DeviceCapabilityFlags as Capabilities;
use sideway_examples::LocalPort;

use self::arguments::{Arguments, By};
use self::owner::Owner;
use self::peer::Peer;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    let port = arguments.port_choice.open()?;
    let context = port.context();
    // 2A and 2B differ in which queue pairs may use the window; here the one that bound it does.
    let type_2 = Capabilities::MemoryWindowType2A | Capabilities::MemoryWindowType2B;
    ensure!(
        context.query_device()?.device_cap_flags().intersects(type_2),
        "{} has no memory windows of type 2",
        context.name()
    );
    if let Some(note) = port.note() {
        writeln!(out, "{note}")?;
    }
    for &by in arguments.by.sides() {
        round(&arguments, by, &port, out)?;
        out.flush()?;
    }
    Ok(())
}

/// One connection, over which a key is given, used and taken back.
fn round(arguments: &Arguments, by: By, port: &LocalPort, out: &mut dyn Write) -> Result<()> {
    const FROM_OWNER: &[u8] = b"this is from the owner";
    const FROM_PEER: &[u8] = b"and this from the peer";
    const THANKS: &[u8] = b"done with it";

    let pd = port.context().alloc_pd()?;
    let mut owner = Owner::new(port, &pd, arguments.timeout)?;
    let mut peer = Peer::new(port, &pd, arguments.timeout)?;
    owner.side.connect(port, &peer.side)?;
    let region = owner.region();
    let whose = if by == By::Peer { "the peer gives the key back" } else { "the owner takes the key back" };
    writeln!(out, "\n{whose}")?;
    writeln!(out, "  owner: has {} bytes at {:#x} that no peer can reach", region.len(), region.addr())?;

    owner.write(FROM_OWNER)?;
    let part = owner.bind()?;
    writeln!(
        out,
        "  owner: binds a window to {} bytes from {:#x} on, to be read and written; its key is {:#010x}",
        part.length,
        part.addr,
        part.rkey.raw()
    )?;

    peer.side.post_receive()?;
    owner.tell(&part)?;
    let part = peer.learn()?;
    writeln!(out, "  peer:  is told of {} bytes at {:#x}, key {:#010x}", part.length, part.addr, part.rkey.raw())?;

    let (status, found) = peer.read(&part)?;
    ensure!(status == Status::Success, "reading through the window failed: {status}");
    ensure!(found.starts_with(FROM_OWNER), "the peer read `{}` through the window", found.escape_ascii());
    writeln!(out, "  peer:  reads there `{}`", FROM_OWNER.escape_ascii())?;
    peer.write(&part, FROM_PEER)?;
    writeln!(out, "  peer:  writes there `{}`", FROM_PEER.escape_ascii())?;
    let found = owner.text(FROM_PEER.len())?;
    ensure!(found == FROM_PEER, "the owner finds `{}` in its memory", found.escape_ascii());
    writeln!(out, "  owner: finds that in its memory")?;

    if by == By::Peer {
        owner.side.post_receive()?;
        peer.give_back(part.rkey, THANKS)?;
        writeln!(out, "  peer:  says `{}`, and with that invalidates the key", THANKS.escape_ascii())?;
        let (done, heard) = owner.hear()?;
        ensure!(heard == THANKS, "the owner hears `{}`", heard.escape_ascii());
        match done.invalidated {
            Some(rkey) => {
                ensure!(rkey == part.rkey, "another key was invalidated: {:#010x}", rkey.raw());
                writeln!(out, "  owner: hears that, and that {:#010x} is invalid", rkey.raw())?;
            }
            // Soft-RoCE of Linux 6.1 sets another flag.
            None => writeln!(out, "  owner: hears that; this device does not tell the key along with it")?,
        }
    } else {
        owner.invalidate(part.rkey)?;
        writeln!(out, "  owner: invalidates the key")?;
    }

    match peer.read(&part)?.0 {
        status @ Status::RemoteAccessError => {
            writeln!(out, "  peer:  tries to read again: {status}, as it should be")?;
            Ok(())
        }
        Status::Success => bail!("the peer has read by a key that is invalid"),
        status => bail!("reading by the invalid key failed, but not for that: {status}"),
    }
}
