//! The side that reads texts and writes them back.

use std::sync::Arc;

use anyhow::{Result, bail};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::device::{DeviceInfo, TransportType};
use sideway::ibverbs::device_context::DeviceContext;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::rdmacm::Request;

use super::arguments::Arguments;
use super::connect;
use super::message::{LENGTH, Place};
use super::text::{SMALLEST, check, length};
use super::voice::Voice;

/// "Go ahead": nothing in it matters.
const GO_AHEAD: [u8; LENGTH] = [0; LENGTH];

/// Serves one client, to the end of its connection.
pub(crate) fn serve(request: Request, arguments: &Arguments, voice: &mut Voice<'_>) -> Result<()> {
    let (mut link, pd) = connect::to_client(request, arguments, voice)?;
    let mut memory = memory(&pd, arguments.size)?;
    let mut number = 0;
    while let Some(message) = link.hear(format_args!("offer ping {number}"))? {
        let source = Place::decode(&message);
        voice.step(format_args!("ping {number}: is offered at {source}"))?;
        let size = source.text_size(SMALLEST, arguments.size)?;
        memory = link.read(&source, size, memory)?;
        let mut text = vec![0; size as usize];
        memory.read_at(0, &mut text)?;
        if arguments.validate {
            check(&text, number)?;
        }
        voice.ping(&text)?;
        link.send(&GO_AHEAD)?;

        let Some(message) = link.hear(format_args!("say where ping {number} is to come back to"))? else {
            bail!("the client has ended the connection in the midst of ping {number}");
        };
        let sink = Place::decode(&message);
        voice.step(format_args!("ping {number}: is read; it is to come back to {sink}"))?;
        let length = u32::try_from(length(&text))?;
        if sink.size < length {
            bail!("ping {number} has {length} bytes, and is to come back to {} bytes of the client", sink.size);
        }
        memory = link.write(&sink, length, memory)?;
        link.send(&GO_AHEAD)?;
        voice.step(format_args!("ping {number}: is back"))?;
        number += 1;
    }
    if number == 0 {
        bail!("the client has ended the connection before its first ping");
    }
    link.close()?;
    voice.step(format_args!("the client has ended the connection; pings served: {number}"))
}

/// Where texts of up to `size` bytes are read to, and written back from.
fn memory(pd: &Arc<ProtectionDomain>, size: u32) -> Result<OwnedMemoryRegion> {
    Ok(pd.reg_owned_mr(size as usize, access(pd.device_context()))?)
}

/// What a region needs that reads are read to.
fn access(context: &DeviceContext) -> AccessFlags {
    match context.transport_type() {
        // The answer to a read comes as a write there.
        TransportType::IWarp => AccessFlags::LocalWrite | AccessFlags::RemoteWrite,
        _ => AccessFlags::LocalWrite,
    }
}
