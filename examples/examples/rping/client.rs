//! The side whose texts they are.

use std::fmt;

use anyhow::{Context, Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;

use super::arguments::Arguments;
use super::connect;
use super::link::Link;
use super::message::Place;
use super::text::{check, text};
use super::voice::Voice;

/// Pings a server.
pub(crate) fn run(arguments: &Arguments, voice: &mut Voice<'_>) -> Result<()> {
    let mut client = Client::new(arguments, voice)?;
    let count = match arguments.count {
        0 => u64::MAX,
        count => count.into(),
    };
    for number in 0..count {
        client.ping(number, arguments.validate, voice)?;
    }
    client.link.close()?;
    voice.step(format_args!("the connection is ended"))
}

/// A connection, and memory that its other side reaches.
#[derive(Debug)]
struct Client {
    // Dropped before the memory.
    link: Link,
    /// Where the server reads a text.
    source: OwnedMemoryRegion,
    /// Where it writes it back to.
    sink: OwnedMemoryRegion,
}

impl Client {
    fn new(arguments: &Arguments, voice: &mut Voice<'_>) -> Result<Self> {
        let (link, pd) = connect::to_server(arguments, voice)?;
        let size = arguments.size as usize;
        let source = pd.reg_owned_mr(size, AccessFlags::RemoteRead)?;
        let sink = pd.reg_owned_mr(size, AccessFlags::LocalWrite | AccessFlags::RemoteWrite)?;
        Ok(Self { link, source, sink })
    }

    /// Has the server read a text and write it back.
    fn ping(&mut self, number: u64, validate: bool, voice: &mut Voice<'_>) -> Result<()> {
        let sent = text(number, self.source.len());
        self.source.write_at(0, &sent)?;
        // What came back of the last ping is not to be taken for this one.
        self.sink.write_at(0, &vec![0; sent.len()])?;

        let source = place(&self.source)?;
        voice.step(format_args!("ping {number}: offering {source}"))?;
        self.offer(&source, format_args!("read ping {number}"))?;
        let sink = place(&self.sink)?;
        voice.step(format_args!("ping {number}: is read; it is to come back to {sink}"))?;
        self.offer(&sink, format_args!("write ping {number} back"))?;
        voice.step(format_args!("ping {number}: is back"))?;

        let mut found = vec![0; sent.len()];
        self.sink.read_at(0, &mut found)?;
        if validate {
            check(&found, number).context("what the server wrote back is wrong")?;
        }
        voice.ping(&found)
    }

    /// Tells the server of a place, and waits until it says that it has done `what` it is to do there.
    fn offer(&mut self, place: &Place, what: fmt::Arguments<'_>) -> Result<()> {
        self.link.send(&place.encode())?;
        match self.link.hear(what)? {
            // Nothing in it matters.
            Some(_) => Ok(()),
            None => bail!(
                "the server has ended the connection and did not {what}: see what it says; its -S is to be as large as the one here"
            ),
        }
    }
}

fn place(memory: &OwnedMemoryRegion) -> Result<Place> {
    Ok(Place { addr: memory.addr(), rkey: memory.rkey(), size: u32::try_from(memory.len())? })
}
