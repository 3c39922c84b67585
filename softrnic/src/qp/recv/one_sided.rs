//! Messages that access memory by a remote key.

use std::slice;

use rdma_mummy_sys::{IBV_FLUSH_GLOBAL, IBV_FLUSH_MR, IBV_FLUSH_PERSISTENT, IBV_FLUSH_RANGE, ibv_access_flags};

use crate::mem::Access;
use crate::qp::Service;
use crate::qp::exchange::Exchange;
use crate::qp::recv::target::{Target, refusal};
use crate::qp::recv::{Responder, Stop};
use crate::wire::bytes::{self, Atomic, Fault};
use crate::wire::message::{Refusal, Request};

impl Responder {
    pub(in crate::qp) fn write(
        &mut self,
        target: &Target<'_>,
        request: &Request,
        exchange: &mut dyn Exchange,
        address: u64,
        rkey: u32,
    ) -> Result<(), Stop> {
        self.allow(target, ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0)?;
        // A message without data accesses no memory.
        if request.length > 0 {
            let access = ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0;
            let segment = target.remote(rkey, address, request.length, access)?;
            exchange.take(slice::from_ref(&segment))?;
        }
        Ok(())
    }

    pub(in crate::qp) fn read(
        &mut self,
        target: &Target<'_>,
        request: &Request,
        exchange: &mut dyn Exchange,
        address: u64,
        rkey: u32,
    ) -> Result<(), Stop> {
        self.allow_outstanding(target)?;
        self.allow(target, ibv_access_flags::IBV_ACCESS_REMOTE_READ.0)?;
        if request.length > 0 {
            let access = ibv_access_flags::IBV_ACCESS_REMOTE_READ.0;
            let segment = target.remote(rkey, address, request.length, access)?;
            exchange.give(slice::from_ref(&segment))?;
        }
        Ok(())
    }

    pub(in crate::qp) fn atomic(
        &mut self,
        target: &Target<'_>,
        address: u64,
        rkey: u32,
        operation: Atomic,
    ) -> Result<u64, Stop> {
        self.allow_outstanding(target)?;
        self.allow(target, ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0)?;
        let segment = target.eight_bytes(rkey, address, ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC.0)?;
        bytes::atomic(&segment, operation).map_err(refusal)
    }

    pub(in crate::qp) fn atomic_write(
        &mut self,
        target: &Target<'_>,
        exchange: &mut dyn Exchange,
        address: u64,
        rkey: u32,
    ) -> Result<(), Stop> {
        reliable(target)?;
        self.allow(target, ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0)?;
        let segment = target.eight_bytes(rkey, address, ibv_access_flags::IBV_ACCESS_REMOTE_WRITE.0)?;
        let value = exchange.take_eight()?;
        bytes::atomic(&segment, Atomic::Store(u64::from_ne_bytes(value))).map_err(refusal)?;
        Ok(())
    }

    /// Handles a flush. Earlier writes are already visible, because the responder completes each message before it
    /// begins the next one. A flush that requests persistence is unsupported.
    pub(in crate::qp) fn make_visible(
        &mut self,
        target: &Target<'_>,
        rkey: u32,
        (address, length): (u64, u64),
        placement: u8,
        level: u8,
    ) -> Result<(), Stop> {
        reliable(target)?;
        let mut access = 0;
        for (kind, flag) in [
            (IBV_FLUSH_GLOBAL, ibv_access_flags::IBV_ACCESS_FLUSH_GLOBAL.0),
            (IBV_FLUSH_PERSISTENT, ibv_access_flags::IBV_ACCESS_FLUSH_PERSISTENT.0),
        ] {
            if placement & kind != 0 {
                access |= flag;
            }
        }
        if access == 0 || placement & !(IBV_FLUSH_GLOBAL | IBV_FLUSH_PERSISTENT) != 0 {
            return Err(Stop::Refused(Refusal::InvalidRequest));
        }
        self.allow(target, access)?;
        match level {
            IBV_FLUSH_RANGE if length == 0 => {}
            IBV_FLUSH_RANGE => drop(target.remote(rkey, address, length, access)?),
            // This flag selects the whole region, so the address and the length are ignored.
            IBV_FLUSH_MR => drop(target.whole(rkey, access)?),
            _ => return Err(Stop::Refused(Refusal::InvalidRequest)),
        }
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Ok(())
    }

    /// Checks that the QP's access flags allow an operation. If they do not, the request is invalid, because the
    /// receive queue does not support the operation (InfiniBand specification, volume 1, section 9.7.4.1.5). iWARP
    /// reports missing access rights (RFC 5040, section 8.1).
    pub(in crate::qp) fn allow(&self, target: &Target<'_>, access: Access) -> Result<(), Stop> {
        if self.attributes.access & access == access {
            return Ok(());
        }
        let is_stream = target.service == Service::Iwarp;
        Err(Stop::Refused(if is_stream { Refusal::AccessError(Fault::Rights) } else { Refusal::InvalidRequest }))
    }

    /// Checks that the responder has resources for another read or atomic.
    fn allow_outstanding(&self, target: &Target<'_>) -> Result<(), Stop> {
        reliable(target)?;
        if self.attributes.max_dest_rd_atomic > 0 { Ok(()) } else { Err(Stop::Refused(Refusal::InvalidRequest)) }
    }
}

/// Checks that the service of the message is reliable.
fn reliable(target: &Target<'_>) -> Result<(), Stop> {
    if target.service.is_reliable() { Ok(()) } else { Err(Stop::Refused(Refusal::InvalidRequest)) }
}
