//! All members of this program in the group, and what they share: the channel of events, the completion queue, the memory.

use std::io::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::completion::{
    CompletionChannel, CompletionQueue, GenericCompletionQueue, GenericWorkCompletion, PollCompletionQueueError,
    WorkCompletionStatus as Status,
};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::memory_region::OwnedMemoryRegion;
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::QueuePair;
use sideway::rdmacm::communication_manager::{Event, EventChannel, EventKind, Identifier};
use sideway_examples::{Timeout, check_datagram_size, wait_readable};

use crate::arguments::Arguments;
use crate::member::Member;

/// Bytes that the device puts in front of each message: the global routing header.
pub(crate) const HEADROOM: u32 = 40;

/// The most requests that a member has outstanding. What comes to a receiver with none left is lost.
const DEPTH: u32 = 1024;

/// The members, and what they share.
#[derive(Debug)]
pub(crate) struct Crew {
    // Dropped before the memory that their requests name.
    pub(crate) members: Vec<Member>,
    events: Arc<EventChannel>,
    cq: GenericCompletionQueue,
    channel: Arc<CompletionChannel>,
    /// Requests that each member may have outstanding.
    pub(crate) depth: u32,
    /// What is sent; or where every message is received, whose bytes nobody looks at.
    pub(crate) memory: OwnedMemoryRegion,
    group: SocketAddr,
}

impl Crew {
    /// Makes the members, and has them join.
    pub(crate) fn join(arguments: &Arguments, out: &mut dyn Write) -> Result<Self> {
        let group = address_of(&arguments.multicast).context("the group")?;
        ensure!(group.is_multicast(), "{group} is not the address of a multicast group");
        let group = SocketAddr::new(group, 0);
        let source = arguments.bind.as_deref().map(address_of).transpose().context("-b")?;
        let source = source.map(|source| SocketAddr::new(source, 0));

        let events = EventChannel::new()?;
        let ids = (0..arguments.connections).map(|_| {
            let id = events.create_id(arguments.port_space.into())?;
            find_device(&events, &id, source, group, arguments.timeout)?;
            Ok(id)
        });
        let ids: Vec<_> = ids.collect::<Result<_>>()?;
        let mut crew = Self::new(&events, &ids, group, arguments)?;
        for at in 0..crew.members.len() {
            crew.join_one(at, arguments, out)?;
        }
        Ok(crew)
    }

    /// Makes the queue pairs.
    fn new(
        events: &Arc<EventChannel>,
        ids: &[Arc<Identifier>],
        group: SocketAddr,
        arguments: &Arguments,
    ) -> Result<Self> {
        let (device, port_num) = ids
            .first()
            .and_then(|id| Some((id.get_device_context()?, id.port_num()?)))
            .context("no device leads to the group")?;
        check_datagram_size(&device.query_port(port_num)?, arguments.size)?;
        let depth = arguments.count.min(DEPTH);
        let pd = device.alloc_pd()?;
        let channel = device.create_comp_channel()?;
        let entries = depth.checked_mul(arguments.connections).context("--connections is too large")?;
        let cq = device.create_cq_builder().setup_cqe(entries).setup_comp_channel(&channel, 0).build_generic()?;
        let memory = memory(&pd, arguments)?;
        let members = ids.iter().map(|id| Member::new(id, &pd, &cq, depth, arguments)).collect::<Result<_>>()?;
        Ok(Self { members, events: Arc::clone(events), cq, channel, depth, memory, group })
    }

    /// The queue pair has its receives before: messages come from the moment on that it is in the group.
    fn join_one(&mut self, at: usize, arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
        let (depth, group) = (self.depth, self.group);
        let Self { members, events, memory, .. } = self;
        let member = members.get_mut(at).context("there is no such member")?;
        if !arguments.sender {
            member.post_receives(memory, depth)?;
        }
        member.join(group, arguments.send_only)?;
        let event = next_event(events, arguments.timeout.0)
            .with_context(|| format!("joining {}: nothing is heard of it", group.ip()))?;
        let EventKind::MulticastJoin(membership) = event.kind() else { return Err(unwelcome(&event)) };
        let gid = Ipv6Addr::from(membership.address_handle_attribute().grh_dest_gid());
        let device = member.device().name();
        writeln!(out, "  joined {gid} over {device}, QPN {:#08x}", member.qp.qp_number())?;
        out.flush()?;
        member.learn(membership)
    }

    /// Waits until something completes, and gives all that has to `take`; `false` when the time has come before.
    pub(crate) fn wait(
        &mut self,
        deadline: Option<Instant>,
        mut take: impl FnMut(&mut [Member], &GenericWorkCompletion<'_>) -> Result<()>,
    ) -> Result<bool> {
        loop {
            let is_last = deadline.is_some_and(|deadline| deadline <= Instant::now());
            // What completes behind this raises an event.
            while self.channel.try_get_cq_event()?.is_some() {}
            self.cq.req_notify(false)?;
            while let Some(event) = self.events.try_get_cm_event()? {
                if is_bad(&event) {
                    return Err(unwelcome(&event));
                }
            }
            if self.poll(&mut take)? {
                return Ok(true);
            }
            if is_last {
                return Ok(false);
            }
            wait_readable([self.channel.as_fd(), self.events.as_fd()], deadline).context("waiting for the device")?;
        }
    }

    fn poll(&mut self, take: &mut impl FnMut(&mut [Member], &GenericWorkCompletion<'_>) -> Result<()>) -> Result<bool> {
        let mut poller = match self.cq.start_poll() {
            Ok(poller) => poller,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut has_any = false;
        while let Some(completion) = poller.next()? {
            if completion.status() != Status::Success {
                bail!("a message failed: {}{}", completion.status(), advice(completion.status()));
            }
            take(&mut self.members, &completion)?;
            has_any = true;
        }
        Ok(has_any)
    }

    /// Leaves the group, and says if that fails.
    pub(crate) fn leave(self) -> Result<()> {
        let group = self.group;
        self.members.iter().try_for_each(|member| member.leave(group))
    }
}

/// Finds the device that leads to the group: the one with the source address, or the one on the route.
fn find_device(
    events: &Arc<EventChannel>,
    id: &Identifier,
    source: Option<SocketAddr>,
    group: SocketAddr,
    timeout: Timeout,
) -> Result<()> {
    match source {
        Some(source) => Ok(id.bind_addr(source)?),
        None => {
            id.resolve_addr(None, group, timeout.0.unwrap_or(Duration::MAX))
                .context("-b says from which address to join")?;
            let event = next_event(events, timeout.0)?;
            match event.kind() {
                EventKind::AddressResolved => Ok(()),
                _ => Err(unwelcome(&event).context("-b says from which address to join")),
            }
        }
    }
}

fn memory(pd: &Arc<ProtectionDomain>, arguments: &Arguments) -> Result<OwnedMemoryRegion> {
    if arguments.sender {
        return Ok(pd.reg_owned_mr(arguments.size as usize, AccessFlags::empty())?);
    }
    let length = arguments.size.checked_add(HEADROOM).context("the messages are too long")?;
    Ok(pd.reg_owned_mr(length as usize, AccessFlags::LocalWrite)?)
}

/// The next event that tells of something; that the hardware address has changed (bonding) is for those who join anew.
fn next_event(events: &Arc<EventChannel>, timeout: Option<Duration>) -> Result<Event> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let event = events.get_cm_event(left)?;
        if !matches!(event.kind(), EventKind::AddressChange) {
            return Ok(event);
        }
    }
}

/// Whether a member is in the group no longer, or will not be.
fn is_bad(event: &Event) -> bool {
    matches!(event.kind(), EventKind::MulticastError(_) | EventKind::DeviceRemoval)
}

#[cold]
fn unwelcome(event: &Event) -> anyhow::Error {
    let what = match event.kind() {
        EventKind::MulticastError(_) => "the group could not be joined, or is lost",
        EventKind::DeviceRemoval => "the device is going away",
        EventKind::AddressError(_) => "no RDMA device leads to the group",
        _ => "an event came that cannot come here",
    };
    anyhow::anyhow!("{what}: {event}")
}

/// What a user can do about a failed message.
fn advice(status: Status) -> &'static str {
    match status {
        Status::LocalLengthError => ": a message is longer than --size; give both sides the same",
        _ => "",
    }
}

fn address_of(host: &str) -> Result<IpAddr> {
    let mut addresses = (host, 0).to_socket_addrs().with_context(|| host.to_owned())?;
    Ok(addresses.next().with_context(|| format!("{host} has no address"))?.ip())
}
