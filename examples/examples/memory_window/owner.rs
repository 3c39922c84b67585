//! The side whose memory it is.

use std::sync::Arc;

use anyhow::Result;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::memory_region::{OwnedMemoryRegion, RemoteKey};
use sideway::ibverbs::memory_window::{BindInformation, MemoryWindow, MemoryWindowType};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::{LocalPort, Timeout};

use super::part::Part;
use super::side::{Done, MOST, Side};

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;
/// What the peer may do with its part.
const ACCESS: AccessFlags = AccessFlags::RemoteRead.union(AccessFlags::RemoteWrite);

const REGION: usize = 4096;
/// Where in the region the peer's part begins.
const OFFSET: usize = 1024;

/// The side whose memory it is.
#[derive(Debug)]
pub(crate) struct Owner {
    // Dropped first: a bound window belongs to the queue pair, and holds the region.
    window: MemoryWindow,
    pub(crate) side: Side,
    region: OwnedMemoryRegion,
}

impl Owner {
    /// A region that no peer can reach, and a window that is bound to nothing.
    pub(crate) fn new(port: &LocalPort, pd: &Arc<ProtectionDomain>, timeout: Timeout) -> Result<Self> {
        // LocalWrite, because a window that peers write through needs it of its region.
        let region = pd.reg_owned_mr(REGION, AccessFlags::LocalWrite | AccessFlags::MemoryWindowBind)?;
        let window = pd.alloc_mw(MemoryWindowType::Type2)?;
        let side = Side::new(port, pd, timeout, ACCESS)?;
        Ok(Self { window, side, region })
    }

    /// The region.
    pub(crate) fn region(&self) -> &OwnedMemoryRegion {
        &self.region
    }

    /// Writes `text` into the part that is for the peer.
    pub(crate) fn write(&mut self, text: &[u8]) -> Result<()> {
        Ok(self.region.write_at(OFFSET, text)?)
    }

    /// What the part begins with.
    pub(crate) fn text(&self, length: usize) -> Result<Vec<u8>> {
        let mut text = vec![0; length];
        self.region.read_at(OFFSET, &mut text)?;
        Ok(text)
    }

    /// Binds the window to the part: from then on, who has the key can reach it.
    pub(crate) fn bind(&mut self) -> Result<Part> {
        // A binding has a key that differs from the one before in its lowest byte; the rest is the window's for ever.
        let rkey = self.window.rkey().inc_rkey();
        let part = Part { addr: self.region.addr() + OFFSET as u64, length: MOST, rkey };
        let bind = BindInformation::new(self.region.region(), part.addr, part.length.into(), ACCESS);
        let mut batch = self.side.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_bind_mw(&self.window, rkey, bind);
        batch.post()?;
        self.side.expect("binding the window")?;
        self.window.set_rkey(rkey)?;
        Ok(part)
    }

    /// Tells the peer, which has posted a receive.
    pub(crate) fn tell(&mut self, part: &Part) -> Result<()> {
        let mut batch = self.side.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_send().setup_inline_data(&part.encode());
        batch.post()?;
        self.side.expect("telling the key").map(drop)
    }

    /// Takes the key back by itself.
    pub(crate) fn invalidate(&mut self, rkey: RemoteKey) -> Result<()> {
        let mut batch = self.side.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_local_inv(rkey);
        batch.post()?;
        self.side.expect("invalidating the key").map(drop)
    }

    /// Learns from a message of the peer that it has given the key back.
    pub(crate) fn hear(&mut self) -> Result<(Done, Vec<u8>)> {
        let done = self.side.expect("receiving the peer's message")?;
        Ok((done, self.side.found(done.length)?))
    }
}
