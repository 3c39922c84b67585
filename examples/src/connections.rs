//! Connections by IP address: options, and the queue pair of a connection with its completion queue and memory.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionChannel, CompletionQueue, CompletionRecord, PollCompletions, WorkCompletionStatus,
};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{BasicQueuePair, PostSendGuard, QueuePair};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::communication_manager::{Identifier, devices};

use crate::options::{parse_message_size, parse_timeout};
use crate::{Buffer, Slots, Timeout, gid, no_device_with_connections};

/// The port that rdma-core's programs use.
const DEFAULT_PORT: u16 = 7471;

// The options of programs with many connections.
#[derive(Clone, Debug, Args)]
#[expect(missing_docs, reason = "clap would print the text as the description of the program")]
pub struct ConnectionOptions {
    /// Host to connect to, as a name or an address; without it and --listen, both sides are in this program
    pub host: Option<String>,

    /// Only listen
    #[arg(short, long, conflicts_with = "host")]
    pub listen: bool,

    /// Connections
    #[arg(short = 'n', long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub connections: u32,

    /// Port of the listener [default: 7471; a free one if both sides are in this program]
    #[arg(short, long, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: Option<u16>,

    /// Own address [default: any; that of the first device if both sides are in this program]
    #[arg(short, long, value_name = "ADDRESS")]
    pub bind: Option<IpAddr>,

    /// Bytes in a message, the same on both sides; k, M and G are powers of 1024
    #[arg(short, long, value_name = "SIZE", default_value = "64", value_parser = parse_message_size)]
    pub size: u32,

    /// Limit of the whole run; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    pub timeout: Timeout,
}

/// The addresses that this program listens on and connects to.
#[derive(Clone, Copy, Debug)]
pub struct Role {
    /// The address to listen on, if it listens.
    pub listen: Option<SocketAddr>,
    /// The address to connect to, if it connects. Port 0 means the port of this program's listener.
    connect: Option<SocketAddr>,
    /// The address to connect from.
    pub source: Option<SocketAddr>,
}

impl ConnectionOptions {
    /// The role that the options select.
    ///
    /// # Errors
    ///
    /// The host cannot be resolved, or no device has an IP address.
    pub fn role(&self) -> Result<Role> {
        let source = self.bind.map(|address| SocketAddr::new(address, 0));
        let port = self.port.unwrap_or(DEFAULT_PORT);
        Ok(match &self.host {
            Some(host) => Role { listen: None, connect: Some(resolve(host, port)?), source },
            None if self.listen => {
                let any = self.bind.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
                Role { listen: Some(SocketAddr::new(any, port)), connect: None, source: None }
            }
            None => {
                let here = SocketAddr::new(self.bind.map_or_else(own_address, Ok)?, self.port.unwrap_or(0));
                Role { listen: Some(here), connect: Some(here), source: None }
            }
        })
    }
}

impl Role {
    /// The address to connect to, with the port of this program's listener.
    pub fn destination(&self, listener: Option<&Identifier>) -> Option<SocketAddr> {
        self.connect.map(|connect| match (connect.port(), listener) {
            (0, Some(listener)) => SocketAddr::new(connect.ip(), listener.port()),
            _ => connect,
        })
    }
}

/// The first address of a host.
///
/// # Errors
///
/// The host cannot be resolved.
pub fn resolve(host: &str, port: u16) -> Result<SocketAddr> {
    let mut found = (host, port).to_socket_addrs().with_context(|| format!("cannot resolve {host}"))?;
    found.next().with_context(|| format!("{host} has no address; check the name"))
}

/// Returns the IP address of the first device that has one. The address is part of the GID of a RoCE port.
fn own_address() -> Result<IpAddr> {
    let devices = match devices() {
        Err(error) if error.errno().raw() == libc::ENODEV => return Err(no_device_with_connections()),
        devices => devices?,
    };
    for context in &devices {
        // A device that cannot be used is skipped.
        let Ok(Some(entry)) = gid::choose(context, 1, None) else { continue };
        let address = Ipv6Addr::from(entry.gid());
        // A link-local address requires the name of its interface.
        if !address.is_unicast_link_local() {
            return Ok(address.to_canonical());
        }
    }
    bail!(
        "no device has a routable IP address among its GIDs (InfiniBand has none); give an address of this machine with --bind"
    )
}

/// Returns a key for maps from identifiers to values. The value must hold the identifier, so that no other identifier
/// gets the same address.
pub fn key(id: &Arc<Identifier>) -> usize {
    Arc::as_ptr(id).addr()
}

/// The parameters of a [`Link`].
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// Bytes of a message.
    pub size: u32,
    /// Maximum number of sends in flight, and number of receives; may be 0.
    pub messages: u32,
    /// The channel of completion events, and the key that they carry.
    pub events: Option<(&'a Arc<CompletionChannel>, usize)>,
    /// The shared receive queue that replaces the link's own receives.
    pub shared: Option<&'a Arc<SharedReceives>>,
}

/// The queue pair of a connection, with its completion queue and the memory of its messages.
#[derive(Debug)]
pub struct Link {
    // Dropped before the memory that its requests use.
    qp: BasicQueuePair,
    cq: BasicCompletionQueue,
    outgoing: Slots,
    incoming: Incoming,
    /// Posted sends, and how many of them have completed.
    posted: u32,
    completed: u32,
    records: Vec<CompletionRecord>,
}

#[derive(Debug)]
enum Incoming {
    Own(Slots),
    Shared(Arc<SharedReceives>),
}

/// Marks the identifiers of sends; a receive has the number of its slot.
const SEND: u64 = 1 << 32;

impl Link {
    /// Creates all objects and posts the receives: the peer may send as soon as it is connected.
    ///
    /// # Errors
    ///
    /// The identifier has no device, or the device has too few resources.
    pub fn new(id: &Arc<Identifier>, pd: &Arc<ProtectionDomain>, shape: &Shape<'_>) -> Result<Self> {
        let Shape { size, messages, events, shared } = *shape;
        let mut builder = pd.device_context().create_cq_builder();
        // `ibv_create_cq` rejects a depth of 0.
        let depth = messages.max(1);
        builder.setup_cqe(depth.checked_mul(2).context("too many messages for a completion queue")?);
        if let Some((channel, number)) = events {
            builder.setup_comp_channel(channel, 0).setup_cq_context(number);
        }
        let cq = builder.build()?;
        if events.is_some() {
            cq.req_notify(false)?;
        }
        let mut builder = pd.create_qp_builder();
        builder.setup_max_send_wr(depth).setup_send_cq(&cq).setup_recv_cq(&cq);
        let incoming = match shared {
            Some(shared) => {
                builder.setup_srq(&shared.queue);
                Incoming::Shared(Arc::clone(shared))
            }
            None => {
                builder.setup_max_recv_wr(depth);
                Incoming::Own(Slots::new(pd, size, messages, AccessFlags::LocalWrite)?)
            }
        };
        let mut qp = id.create_qp(&builder)?;
        let outgoing = Slots::new(pd, size, messages, AccessFlags::empty())?;
        if let Incoming::Own(slots) = &incoming {
            let mut batch = qp.start_post_recv();
            for slot in 0..slots.count() {
                let Buffer { lkey, addr, length } = slots.buffer(slot);
                // SAFETY: the memory is registered, has `length` bytes and is dropped after the queue pair. The program
                // copies from it when the receive has completed, and keeps no reference into it. If this function
                // fails, `qp` is dropped before `incoming`.
                unsafe { batch.construct_wr(slot.into()).setup_sge(lkey, addr, length) };
            }
            batch.post()?;
        }
        Ok(Self { qp, cq, outgoing, incoming, posted: 0, completed: 0, records: Vec::new() })
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// All sends of the [`Shape`] are in flight, or the connection has ended.
    pub fn send(&mut self, message: &[u8]) -> Result<()> {
        let count = self.outgoing.count();
        if self.posted - self.completed >= count {
            bail!("all {count} messages are in flight, and the send queue is full");
        }
        self.outgoing.write(self.posted, message)?;
        let Buffer { lkey, addr, .. } = self.outgoing.buffer(self.posted);
        let length = u32::try_from(message.len())?;
        let mut batch = self.qp.start_post_send();
        let request = batch.construct_wr(SEND, WorkRequestFlags::Signaled).setup_send();
        // SAFETY: the memory is registered, is dropped after the queue pair, and has `length` bytes: the message was
        // copied there. A slot is reused only after all other slots were used. By then its send has completed, because
        // sends complete in order.
        unsafe { request.setup_sge(lkey, addr, length) };
        batch.post()?;
        self.posted += 1;
        Ok(())
    }

    /// Polls the completion queue, and returns the messages that have arrived.
    ///
    /// # Errors
    ///
    /// A request failed, or the queue is broken.
    pub fn poll(&mut self) -> Result<Vec<Vec<u8>>> {
        let mut messages = Vec::new();
        self.records.clear();
        self.cq.poll_records(&mut self.records)?;
        for record in &self.records {
            let is_send = record.wr_id & SEND != 0;
            if record.status != WorkCompletionStatus::Success {
                bail!("{} failed: {}", if is_send { "sending" } else { "receiving" }, record.status);
            }
            if is_send {
                self.completed += 1;
                continue;
            }
            let slots = match &self.incoming {
                Incoming::Own(slots) => slots,
                Incoming::Shared(shared) => &shared.slots,
            };
            let mut message = vec![0; record.byte_len as usize];
            slots.read(record.wr_id as u32, 0, &mut message)?;
            messages.push(message);
        }
        Ok(messages)
    }

    /// Requests an event for the next completion. After this call, poll once more for completions that arrived before
    /// the request.
    ///
    /// # Errors
    ///
    /// The device rejects the request.
    pub fn req_notify(&self) -> Result<()> {
        Ok(self.cq.req_notify(false)?)
    }

    /// Whether all sends have completed.
    pub fn has_sent(&self) -> bool {
        self.posted == self.completed
    }
}

/// A shared receive queue with the memory of its receives. Each [`Link`] that uses the queue keeps a reference to it.
#[derive(Debug)]
pub struct SharedReceives {
    // Dropped before the memory that its receives use.
    queue: SharedReceiveQueue,
    slots: Slots,
}

impl SharedReceives {
    /// A queue with `count` receives of `size` bytes.
    ///
    /// # Errors
    ///
    /// The device has too few resources.
    pub fn new(pd: &Arc<ProtectionDomain>, size: u32, count: u32) -> Result<Self> {
        let slots = Slots::new(pd, size, count, AccessFlags::LocalWrite)?;
        let mut queue = pd.create_srq_builder().setup_max_wr(count.max(1)).build()?;
        let mut batch = queue.start_post_recv();
        for slot in 0..count {
            let Buffer { lkey, addr, length } = slots.buffer(slot);
            // SAFETY: the memory is registered and has `length` bytes. The program copies from it when the receive has
            // completed, and keeps no reference into it. The memory is dropped after the queue. The queue exists as
            // long as a queue pair uses it: only links do, and each holds `self` after its queue pair.
            unsafe { batch.construct_wr(slot.into()).setup_sge(lkey, addr, length) };
        }
        batch.post()?;
        Ok(Self { queue, slots })
    }
}
