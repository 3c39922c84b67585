//! The side that uses memory of the other.

use std::sync::Arc;

use anyhow::{Context, Result};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::WorkCompletionStatus as Status;
use sideway::ibverbs::memory_region::RemoteKey;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{PostSendGuard, QueuePair};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway_examples::{LocalPort, Timeout};

use super::part::Part;
use super::side::Side;

const SIGNALED: WorkRequestFlags = WorkRequestFlags::Signaled;

/// The side that uses memory of the other.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) side: Side,
}

impl Peer {
    /// One that gives nothing of its own.
    pub(crate) fn new(port: &LocalPort, pd: &Arc<ProtectionDomain>, timeout: Timeout) -> Result<Self> {
        Ok(Self { side: Side::new(port, pd, timeout, AccessFlags::empty())? })
    }

    /// What the owner has told.
    pub(crate) fn learn(&mut self) -> Result<Part> {
        let done = self.side.expect("receiving the key")?;
        Part::decode(&self.side.found(done.length)?).context("the owner's message does not tell of a part")
    }

    /// Reads the part; how it went, and what is there.
    pub(crate) fn read(&mut self, part: &Part) -> Result<(Status, Vec<u8>)> {
        self.side.post_read(part.rkey, part.addr)?;
        let done = self.side.wait()?;
        Ok((done.status, self.side.found(part.length)?))
    }

    /// Writes `text` where the part begins.
    pub(crate) fn write(&mut self, part: &Part, text: &[u8]) -> Result<()> {
        let mut batch = self.side.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_write(part.rkey, part.addr).setup_inline_data(text);
        batch.post()?;
        self.side.expect("writing through the window").map(drop)
    }

    /// Sends a message whose arrival invalidates the key.
    pub(crate) fn give_back(&mut self, rkey: RemoteKey, text: &[u8]) -> Result<()> {
        let mut batch = self.side.qp.start_post_send();
        batch.construct_wr(1, SIGNALED).setup_send_inv(rkey).setup_inline_data(text);
        batch.post()?;
        self.side.expect("giving the key back").map(drop)
    }
}
