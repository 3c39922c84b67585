//! Sends datagrams to a multicast group, or receives them. Interoperates with rdma-core's `mckey`.
//!
//! ```text
//! Members::join     Identifier::bind_addr or resolve_addr     the device
//!                   Identifier::create_qp_generic             a queue pair that the library attaches to the group
//!                   Identifier::join_multicast_with           MulticastJoin: the path to the group, and its keys
//! send              one SEND per message, with the number of its queue pair as immediate data
//! receive           counts messages by sender, until all have arrived or none arrived for --silence
//! ```

mod tally;

use std::io::Write;
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, ValueEnum};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandle;
use sideway::ibverbs::completion::{
    CompletionChannel, CompletionQueue, GenericCompletionQueue, GenericWorkCompletion, WorkCompletionStatus as Status,
};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::queue_pair::{
    Datagram, GenericQueuePair, PostSendGuard, QueuePair, QueuePairCreateFlags, SendOperationFlags as Operations,
};
use sideway::ibverbs::work_request::WorkRequestFlags;
use sideway::rdmacm::PortSpace;
use sideway::rdmacm::communication_manager::{
    Event, EventChannel, EventKind, Identifier, MulticastJoinFlag, MulticastMembership,
};
use sideway_examples::connections::resolve;
use sideway_examples::options::{parse_message_size, parse_timeout};
use sideway_examples::{Buffer, Deadline, Slots, Timeout, check_datagram_size, wait_readable};

use self::tally::Tally;

const ABOUT: &str = "\
Sends datagrams to a multicast group, or receives those of a group. Members join by IP address (RDMA CM).

The peer may be rdma-core's mckey, which has the same options and messages. A sender cannot detect lost datagrams; a receiver reports \
them.

Without a route to the group, -b selects the device by its address. RoCE v2 supports IPv4 groups.";

const EXAMPLES: &str = "\
Examples:
  mckey -m 239.1.2.3 -b 192.0.2.1          receives 10 messages on the device with this address
  mckey -m 239.1.2.3 -b 192.0.2.2 -s       sends 10 from another machine, after three seconds
  mckey -m 239.1.2.3 -b 192.0.2.1 -C 1000 -S 1k -c 4     1000 of 1024 bytes to each of four queue pairs

Exit status: 0 if all messages arrived (with -s: were sent), 1 on failure or loss, 2 for invalid arguments.";

/// Send datagrams to a multicast group, or receive them
#[derive(Clone, Debug, Parser)]
#[command(name = "mckey", version, long_about = ABOUT, after_help = EXAMPLES, max_term_width = 110)]
struct Arguments {
    /// Address of the group
    #[arg(short, long, value_name = "GROUP")]
    multicast: String,

    /// Send instead of receiving
    #[arg(short, long)]
    sender: bool,

    /// Own address, as a name or an address [default: by the route to the group]
    #[arg(short, long, value_name = "HOST")]
    bind: Option<String>,

    /// Number of queue pairs that join; each receives all messages, or sends --count
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    connections: u32,

    /// Number of messages that each queue pair sends, or receives in total
    #[arg(short = 'C', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    /// Bytes in a message, at most the port's active MTU; k is 1024
    #[arg(short = 'S', long, value_name = "BYTES", default_value = "100", value_parser = parse_message_size)]
    size: u32,

    /// Port space: udp (or 0x111), or on InfiniBand ipoib (or 0x2)
    #[arg(short, long, value_enum, value_name = "SPACE", default_value_t = Space::Udp)]
    port_space: Space,

    /// Join to send only, so that switches do not forward messages here
    #[arg(short = 'o', long, requires = "sender")]
    send_only: bool,

    /// Do not receive own messages; not every device supports that
    #[arg(short = 'l', long)]
    no_loopback: bool,

    /// Limit of joining, of each send, and of the wait for the first message; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "60", value_parser = parse_timeout)]
    timeout: Timeout,

    /// Receiver: limit of the wait for another message; 0 = no limit
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = parse_timeout, conflicts_with = "sender")]
    silence: Timeout,

    /// Sender: wait before the first message, so that the network registers all members
    #[arg(long, value_name = "SECONDS", default_value = "3", value_parser = parse_timeout, requires = "sender")]
    delay: Timeout,
}

/// A port space for datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Space {
    /// The port space of the RDMA CM
    #[value(alias = "0x111", alias = "0x0111", alias = "273")]
    Udp,
    /// The port space of IP over InfiniBand
    #[value(alias = "0x2", alias = "0x0002", alias = "2")]
    Ipoib,
}

/// Bytes that the device writes before each received message: the global routing header.
const HEADROOM: u32 = 40;

/// Maximum number of outstanding requests of a member. A message without a posted receive is lost.
const DEPTH: u32 = 1024;

fn main() -> ExitCode {
    sideway_examples::program(run)
}

fn run(arguments: Arguments, out: &mut dyn Write) -> Result<()> {
    softrnic::register()?;
    let mut members = Members::join(&arguments, out)?;
    let done =
        if arguments.sender { send(&mut members, &arguments, out) } else { receive(&mut members, &arguments, out) };
    // A failure is reported after the members have left the group.
    let group = members.group;
    done.and(members.all.iter().try_for_each(|member| Ok(member.id.leave_multicast(group)?)))
}

/// Sends all messages, and waits until the device has sent them.
fn send(members: &mut Members, arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    if let Some(delay) = arguments.delay.0 {
        writeln!(out, "  sending in {} s", delay.as_secs_f64())?;
        out.flush()?;
        thread::sleep(delay);
    }
    members.post(Member::post_sends)?;
    while !members.are_complete() {
        let is_in_time = members.wait(arguments.timeout, |member, _| {
            let own = member.qp.qp_number();
            member.tally.count(own);
            Ok(())
        })?;
        ensure!(is_in_time, "no send completed within --timeout; check the port");
        members.post(Member::post_sends)?;
    }
    for member in &members.all {
        let sent = member.tally.counted;
        writeln!(out, "  QPN {:#08x}: {sent} messages of {} bytes sent", member.qp.qp_number(), arguments.size)?;
    }
    Ok(out.flush()?)
}

/// Receives all messages, prints their number by sender, and fails if some are missing.
fn receive(members: &mut Members, arguments: &Arguments, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "  receiving")?;
    out.flush()?;
    let (mut limit, size) = (arguments.timeout, arguments.size);
    while !members.are_complete() {
        let is_in_time = members.wait(limit, |member, completion| {
            let length = completion.byte_len().saturating_sub(HEADROOM);
            if length != size {
                bail!("a message of {length} bytes arrived, expected {size}; give both sides the same --size (-S)");
            }
            member.tally.count(completion.src_qp());
            Ok(())
        })?;
        if !is_in_time {
            break;
        }
        limit = arguments.silence;
        members.post(Member::post_receives)?;
    }
    let (mut lost, mut came) = (0, 0);
    for Member { qp, tally, .. } in &members.all {
        writeln!(out, "  QPN {:#08x}: {tally}", qp.qp_number())?;
        lost += u64::from(tally.missing());
        came += u64::from(tally.counted);
    }
    out.flush()?;
    let seconds = |limit: Timeout| limit.0.unwrap_or_default().as_secs_f64();
    match (lost, came) {
        (0, _) => Ok(()),
        (_, 0) => bail!(
            "no message arrived within {} s (--timeout); check that a sender has joined the group, and that switches forward it",
            seconds(arguments.timeout)
        ),
        _ => bail!(
            "{lost} of {} messages are missing {} s after the last (--silence): lost, or sent before this side joined; give all \
             sides the same --count (-C)",
            lost + came,
            seconds(arguments.silence)
        ),
    }
}

/// All members of this program in the group, and what they share.
#[derive(Debug)]
struct Members {
    // Dropped before the memory that their requests use.
    all: Vec<Member>,
    events: Arc<EventChannel>,
    cq: GenericCompletionQueue,
    channel: Arc<CompletionChannel>,
    /// Maximum number of outstanding requests of each member.
    depth: u32,
    /// The buffer of all sent or received messages; the program never reads their bytes.
    memory: Slots,
    group: SocketAddr,
}

impl Members {
    /// Creates the members and joins the group with each.
    fn join(arguments: &Arguments, out: &mut dyn Write) -> Result<Self> {
        let group = resolve(&arguments.multicast, 0).context("--multicast")?;
        ensure!(
            group.ip().is_multicast(),
            "{} is not a multicast address; give one of 224.0.0.0/4 or ff00::/8",
            group.ip()
        );
        let source = arguments.bind.as_deref().map(|host| resolve(host, 0)).transpose().context("--bind")?;

        let events = EventChannel::new()?;
        let ids = (0..arguments.connections).map(|_| {
            let id = events.create_id(match arguments.port_space {
                Space::Udp => PortSpace::Udp,
                Space::Ipoib => PortSpace::IpOverInfiniBand,
            })?;
            find_device(&events, &id, source, group, arguments.timeout)?;
            Ok(id)
        });
        let ids: Vec<_> = ids.collect::<Result<_>>()?;
        let (device, port_num) = ids
            .first()
            .and_then(|id| Some((id.get_device_context()?, id.port_num()?)))
            .context("no device has a route to the group")?;
        check_datagram_size(&device.query_port(port_num)?, arguments.size)?;

        let depth = arguments.count.min(DEPTH);
        let pd = device.alloc_pd()?;
        let channel = device.create_comp_channel()?;
        let entries = depth.checked_mul(arguments.connections).context("--connections is too large")?;
        let cq = device.create_cq_builder().setup_cqe(entries).setup_comp_channel(&channel, 0).build_generic()?;
        let memory = if arguments.sender {
            Slots::new(&pd, arguments.size, 1, AccessFlags::empty())?
        } else {
            let length = arguments.size.checked_add(HEADROOM).context("--size is too large")?;
            Slots::new(&pd, length, 1, AccessFlags::LocalWrite)?
        };
        let all = ids.into_iter().map(|id| {
            let mut builder = pd.create_ud_qp_builder();
            builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_send_ops_flags(Operations::SendWithImmediate);
            if arguments.sender {
                builder.setup_max_send_wr(depth);
            } else {
                builder.setup_max_recv_wr(depth);
            }
            if arguments.no_loopback {
                builder.setup_create_flags(QueuePairCreateFlags::BlockSelfMulticastLoopback);
            }
            // The library attaches the queue pair when the identifier joins.
            let qp = id.create_qp_generic(&builder);
            let qp = if arguments.no_loopback {
                qp.context("the device does not support --no-loopback; leave out -l")?
            } else {
                qp?
            };
            Ok(Member { qp, id, path: None, tally: Tally::new(arguments.count) })
        });
        let all = all.collect::<Result<_>>()?;
        let mut members = Self { all, events, cq, channel, depth, memory, group };
        if !arguments.sender {
            // Messages arrive from the time of the join.
            members.post(Member::post_receives)?;
        }
        for member in &mut members.all {
            if arguments.send_only {
                member.id.join_multicast_with(group, MulticastJoinFlag::SendOnlyFullMember)?;
            } else {
                member.id.join_multicast(group)?;
            }
            let event = next_event(&members.events, arguments.timeout)
                .with_context(|| format!("cannot join {}: no answer; raise --timeout", group.ip()))?;
            let EventKind::MulticastJoin(membership) = event.kind() else { return Err(unexpected(&event)) };
            let gid = Ipv6Addr::from(membership.address_handle_attribute().grh_dest_gid());
            writeln!(out, "  joined {gid} over {}, QPN {:#08x}", device.name(), member.qp.qp_number())?;
            out.flush()?;
            let ah =
                pd.create_ah(membership.address_handle_attribute()).context("cannot create the path to the group")?;
            member.path = Some(Path::new(ah, membership));
        }
        Ok(members)
    }

    /// Posts as many requests as may be outstanding.
    fn post(&mut self, post: impl Fn(&mut Member, Buffer, u32) -> Result<()>) -> Result<()> {
        let buffer = self.memory.buffer(0);
        for member in &mut self.all {
            let count = member.tally.begin(self.depth);
            if count > 0 {
                post(member, buffer, count)?;
            }
        }
        Ok(())
    }

    fn are_complete(&self) -> bool {
        self.all.iter().all(|member| member.tally.missing() == 0)
    }

    /// Waits for completions, and passes each to `take`; `false` if the limit passes first.
    fn wait(
        &mut self,
        limit: Timeout,
        mut take: impl FnMut(&mut Member, &GenericWorkCompletion<'_>) -> Result<()>,
    ) -> Result<bool> {
        let deadline = Deadline::after(limit);
        loop {
            let is_last = deadline.is_over();
            // A completion after this request raises an event.
            while self.channel.try_get_cq_event()?.is_some() {}
            self.cq.req_notify(false)?;
            while let Some(event) = self.events.try_get_cm_event()? {
                if matches!(event.kind(), EventKind::MulticastError(_) | EventKind::DeviceRemoval) {
                    return Err(unexpected(&event));
                }
            }
            if self.poll(&mut take)? {
                return Ok(true);
            }
            if is_last {
                return Ok(false);
            }
            wait_readable(&[self.channel.as_raw_fd(), self.events.as_raw_fd()], deadline.end())
                .context("cannot wait for the device")?;
        }
    }

    fn poll(&mut self, take: &mut impl FnMut(&mut Member, &GenericWorkCompletion<'_>) -> Result<()>) -> Result<bool> {
        let count = self.cq.poll_each(u32::MAX, |completion| {
            match completion.status() {
                Status::Success => {}
                status @ Status::LocalLengthError => {
                    bail!("a message failed: {status}: it is longer than --size; give both sides the same")
                }
                status => bail!("a message failed: {status}"),
            }
            let own = completion.qp_num();
            let member = self.all.iter_mut().find(|member| member.qp.qp_number() == own);
            take(member.context("a completion has an unknown queue pair number")?, &completion)
        })?;
        Ok(count > 0)
    }
}

/// The device for the group: the one with the source address, or the one on the route.
fn find_device(
    events: &Arc<EventChannel>,
    id: &Identifier,
    source: Option<SocketAddr>,
    group: SocketAddr,
    timeout: Timeout,
) -> Result<()> {
    if let Some(source) = source {
        return Ok(id.bind_addr(source)?);
    }
    id.resolve_addr(None, group, timeout.0.unwrap_or(Duration::MAX))
        .context("no route to the group; give the local address with -b")?;
    let event = next_event(events, timeout)?;
    match event.kind() {
        EventKind::AddressResolved => Ok(()),
        _ => Err(unexpected(&event).context("no route to the group; give the local address with -b")),
    }
}

/// Returns the next event. Skips changes of the hardware address (bonding), which affect only later joins.
fn next_event(events: &Arc<EventChannel>, timeout: Timeout) -> Result<Event> {
    let deadline = Deadline::after(timeout);
    loop {
        let left = deadline.end().map(|end| end.saturating_duration_since(Instant::now()));
        let event = events.get_cm_event(left)?;
        if !matches!(event.kind(), EventKind::AddressChange) {
            return Ok(event);
        }
    }
}

#[cold]
fn unexpected(event: &Event) -> anyhow::Error {
    let what = match event.kind() {
        EventKind::MulticastError(_) => "joining failed, or the membership is lost",
        EventKind::DeviceRemoval => "the device is being removed",
        EventKind::AddressError(_) => "no RDMA device has a route to the group",
        _ => "unexpected event",
    };
    anyhow::anyhow!("{what}: {event}")
}

/// One member of the group: an identifier with a queue pair.
#[derive(Debug)]
struct Member {
    qp: GenericQueuePair<Datagram>,
    id: Arc<Identifier>,
    /// The path to the group, after the join.
    path: Option<Path>,
    tally: Tally,
}

/// The path to all other members of the group.
#[derive(Debug)]
struct Path {
    ah: Arc<AddressHandle>,
    qp_num: u32,
    qkey: u32,
}

impl Path {
    fn new(ah: Arc<AddressHandle>, membership: &MulticastMembership) -> Self {
        Self { ah, qp_num: membership.qp_number(), qkey: membership.qkey() }
    }
}

impl Member {
    /// Posts receives for the next `count` messages, all into the same buffer.
    fn post_receives(&mut self, buffer: Buffer, count: u32) -> Result<()> {
        let mut batch = self.qp.start_post_recv();
        for _ in 0..count {
            // SAFETY: the buffer is that of `Members`, registered for local writes, and dropped after its queue pairs.
            // No reference into it exists, so the device may write messages in any order.
            unsafe { batch.construct_wr(0).setup_sge(buffer.lkey, buffer.addr, buffer.length) };
        }
        Ok(batch.post()?)
    }

    /// Sends `count` messages to the group, with the number of this queue pair as immediate data.
    fn post_sends(&mut self, buffer: Buffer, count: u32) -> Result<()> {
        let path = self.path.as_ref().context("the group is not joined")?;
        let own = self.qp.qp_number();
        let mut batch = self.qp.start_post_send();
        for _ in 0..count {
            let request = batch.construct_wr(0, WorkRequestFlags::Signaled).setup_send_imm(own);
            let request = request.setup_ud_addr(&path.ah, path.qp_num, path.qkey);
            // SAFETY: the buffer is that of `Members`, registered, dropped after its queue pairs, and never written.
            unsafe { request.setup_sge(buffer.lkey, buffer.addr, buffer.length) };
        }
        Ok(batch.post()?)
    }
}
