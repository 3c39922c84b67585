//! Selects a device, and creates the objects that all of its links share.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use sideway::error::VerbError;
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::Gid;
use sideway::ibverbs::completion::{CompletionChannel, GenericCompletionQueue};
use sideway::ibverbs::device::DeviceInfo;
use sideway::ibverbs::device_context::{DeviceCapabilityFlags, DeviceContext, PortState};
use sideway::ibverbs::protection_domain::ProtectionDomain;
use sideway::ibverbs::queue_pair::{GenericQueuePair, QueuePairBuilder, SendOperationFlags};
use sideway::ibverbs::shared_receive_queue::SharedReceiveQueue;
use sideway::rdmacm;

use super::{Options, READS, SEND_QUEUE};
use crate::memory::Domain;

/// An open device, with the queues of one worker.
#[derive(Debug)]
pub(super) struct Device {
    pub(super) context: Arc<DeviceContext>,
    pub(super) pd: Arc<ProtectionDomain>,
    /// Whether the program has named the device, so the worker uses no other one.
    pub(super) is_named: bool,
    /// Whether keys come from memory windows of type 2B.
    pub(super) has_windows: bool,
    /// Whether a key can let a peer write to one buffer and to no other memory.
    pub(super) announces: bool,
    /// Maximum number of inline bytes of a request.
    pub(super) inline: u32,
    /// How many reads a queue pair may have outstanding in each direction.
    pub(super) reads: u8,
    /// The number of receives that the shared queue holds.
    pub(super) receives: u32,
    /// The number of entries of the completion queue.
    pub(super) completions: u32,
}

/// Lets a thread sleep on descriptors. If it has the channel of a device in software, the thread does the device's work
/// while it sleeps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sleeper(pub(super) Option<Arc<CompletionChannel>>);

impl Sleeper {
    /// Waits until a descriptor is readable, or until the time has passed. Returns which of them are readable. A signal
    /// may end the wait early.
    pub(crate) fn sleep<const N: usize>(&self, fds: [BorrowedFd<'_>; N], time: Duration) -> io::Result<[bool; N]> {
        if let Some(channel) = &self.0 {
            return channel.wait_readable(fds, Some(time)).map_err(verb);
        }
        let time =
            Timespec { tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX), tv_nsec: time.subsec_nanos().into() };
        let mut polls = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        match poll(&mut polls, Some(&time)) {
            Ok(_) => Ok(polls.map(|poll| !poll.revents().is_empty())),
            Err(Errno::INTR) => Ok([false; N]),
            Err(error) => Err(error.into()),
        }
    }
}

/// The locked memory that each receive needs, in bytes: its queue entry, and two completions.
const QUEUED: u64 = 3 * 64;
/// Minimum number of receives of a worker, even if the limit of locked memory is low.
const FEWEST: u32 = 4096;

/// Returns the number of receives whose queues fit into an eighth of the lockable memory; the other memory is for
/// buffers.
fn affordable(limit: Option<u64>) -> u32 {
    limit.map_or(u32::MAX, |limit| u32::try_from(limit / 8 / QUEUED).unwrap_or(u32::MAX)).max(FEWEST)
}

impl Device {
    pub(super) fn new(context: Arc<DeviceContext>, options: &Options) -> io::Result<Self> {
        let pd = context.alloc_pd().map_err(verb)?;
        let attributes = context.query_device().map_err(verb)?;
        let flags = attributes.device_cap_flags();
        let most_completions = attributes.max_cqe();
        // The completion queue has an entry for each receive, and as many entries for the sends of all links.
        let lockable = affordable(getrlimit(Resource::Memlock).current);
        let receives = options.receives.min(lockable).min(attributes.max_srq_wr()).min(most_completions / 2).max(1);
        let completions = (receives * 2).max(receives + 2 * SEND_QUEUE).min(most_completions);
        let has_windows = flags.contains(DeviceCapabilityFlags::MemoryWindowType2B);
        let mut device = Self {
            announces: has_windows && context.checks_window_bounds(),
            context,
            pd,
            is_named: options.device.is_some(),
            has_windows,
            inline: 0,
            reads: attributes.max_qp_rd_atom().min(attributes.max_qp_init_rd_atom()).min(u32::from(READS)) as u8,
            receives,
            completions,
        };
        device.inline = device.most_inline(options.inline);
        Ok(device)
    }

    /// Returns the domain with which the pool's memory is registered. With memory windows, the key of the whole memory
    /// gives peers no access.
    pub(super) fn domain(&self) -> Domain {
        let keys = if self.has_windows { AccessFlags::MemoryWindowBind } else { AccessFlags::RemoteRead };
        Domain { pd: Arc::clone(&self.pd), access: AccessFlags::LocalWrite | keys, has_windows: self.has_windows }
    }

    pub(super) fn channel(&self) -> io::Result<Arc<CompletionChannel>> {
        self.context.create_comp_channel().map_err(verb)
    }

    pub(super) fn completion_queue(&self, channel: &Arc<CompletionChannel>) -> io::Result<GenericCompletionQueue> {
        let mut builder = self.context.create_cq_builder();
        builder.setup_cqe(self.completions).setup_comp_channel(channel, 0).build_generic().map_err(verb)
    }

    pub(super) fn receive_queue(&self) -> io::Result<SharedReceiveQueue> {
        self.pd.create_srq_builder().setup_max_wr(self.receives).setup_max_sge(1).build().map_err(verb)
    }

    /// Returns the builder of queue pairs.
    pub(super) fn queue_pair(&self, cq: &GenericCompletionQueue) -> QueuePairBuilder {
        let windows = SendOperationFlags::BindMemoryWindow | SendOperationFlags::LocalInvalidate;
        let plain = SendOperationFlags::Send | SendOperationFlags::Write | SendOperationFlags::Read;
        let mut builder = self.pd.create_qp_builder();
        builder
            .setup_send_cq(cq)
            .setup_recv_cq(cq)
            // One entry more than `post` uses: it is reserved for the request that marks the end of the flush.
            .setup_max_send_wr(SEND_QUEUE + 1)
            .setup_max_recv_wr(0)
            .setup_max_inline_data(self.inline)
            .setup_send_ops_flags(if self.has_windows { plain | windows } else { plain });
        builder
    }

    /// Returns the largest inline size, up to `wish`, that the device supports. Tries several sizes, because devices do
    /// not report the maximum.
    fn most_inline(&self, wish: u32) -> u32 {
        let Ok(cq) = self.context.create_cq_builder().setup_cqe(64).build_generic() else { return 0 };
        let takes = |bytes: &u32| {
            let mut builder = self.pd.create_qp_builder();
            let built: Result<GenericQueuePair, VerbError> =
                builder.setup_send_cq(&cq).setup_recv_cq(&cq).setup_max_inline_data(*bytes).build_generic();
            built.is_ok()
        };
        [wish, 64, 32].into_iter().filter(|&bytes| bytes <= wish).find(takes).unwrap_or(0)
    }
}

/// Opens all devices. The first call loads the libraries and registers the devices of softrnic.
pub(crate) fn devices() -> Result<Vec<Arc<DeviceContext>>, VerbError> {
    #[cfg(feature = "softrnic")]
    if let Err(error) = softrnic::register() {
        rdma_mummy_sys::log!(warn, "cannot register softrnic: {error}");
    }
    rdmacm::devices()
}

/// Returns the device of this name; otherwise the one that has a route to `near`; otherwise the first with an active
/// port.
///
/// # Errors
///
/// No device is usable; the error text is the reason for the fallback.
pub(crate) fn choose(name: Option<&str>, near: Option<SocketAddr>) -> io::Result<Arc<DeviceContext>> {
    let contexts = devices().map_err(|error| unavailable(&error))?;
    if let Some(name) = name {
        let named = contexts.iter().find(|context| context.name() == name);
        return named.cloned().ok_or_else(|| {
            let names: Vec<String> = contexts.iter().map(|context| context.name()).collect();
            let text = format!("no RDMA device is named {name}; there are: {}", names.join(", "));
            io::Error::new(io::ErrorKind::NotFound, text)
        });
    }
    let near = near.and_then(source_of).and_then(|source| with_address(&contexts, source));
    near.or_else(|| active(&contexts).next()).cloned().ok_or_else(|| {
        let text = match contexts.len() {
            0 => "there is no RDMA device".to_owned(),
            count => format!("none of {count} RDMA devices has an active port"),
        };
        io::Error::new(io::ErrorKind::NotFound, text)
    })
}

/// Returns the device with this address of the host.
pub(crate) fn device_at(address: IpAddr) -> Option<Arc<DeviceContext>> {
    with_address(&devices().ok()?, address).cloned()
}

fn with_address(contexts: &[Arc<DeviceContext>], address: IpAddr) -> Option<&Arc<DeviceContext>> {
    active(contexts).find(|context| has_address(context, address))
}

fn active(contexts: &[Arc<DeviceContext>]) -> impl Iterator<Item = &Arc<DeviceContext>> {
    contexts.iter().filter(|context| has_active_port(context))
}

fn has_active_port(context: &DeviceContext) -> bool {
    let Ok(attributes) = context.query_device() else { return false };
    let ports = 1..=u8::try_from(attributes.phys_port_cnt()).unwrap_or(u8::MAX);
    ports.into_iter().any(|port| context.query_port(port).is_ok_and(|port| port.port_state() == PortState::Active))
}

fn has_address(context: &DeviceContext, address: IpAddr) -> bool {
    let gid = match address {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => address.into(),
    };
    context.query_gid_table().is_ok_and(|entries| entries.iter().any(|entry| entry.gid() == gid))
}

/// Returns the source address that the routing table selects for packets to `address`. Sends nothing.
pub(crate) fn source_of(address: SocketAddr) -> Option<IpAddr> {
    if address.ip().is_unspecified() {
        return None;
    }
    let any: SocketAddr = if address.is_ipv4() { ([0; 4], 0).into() } else { ([0_u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(address).ok()?;
    socket.local_addr().ok().map(|local| local.ip())
}

/// Returns the IP address that a GID contains on Ethernet.
pub(crate) fn in_words(gid: Gid) -> IpAddr {
    gid.ipv4().map_or_else(|| Ipv6Addr::from(gid).into(), IpAddr::from)
}

/// Converts a verb's error. The result has the kind of its errno, and the verb's error as its source.
pub(super) fn verb(error: VerbError) -> io::Error {
    let kind = match error.errno().raw() {
        libc::ENODEV | libc::EIO => io::ErrorKind::NetworkDown,
        _ => error.kind(),
    };
    io::Error::new(kind, error)
}

fn unavailable(error: &VerbError) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, error.to_string())
}

/// Whether the device of the tests has memory windows of type 2B. If not, reports that what needs them did not run.
#[cfg(test)]
pub(crate) fn has_windows() -> bool {
    let device = choose(std::env::var("SIDEWAY_TEST_DEVICE").ok().as_deref(), None);
    let has = device.and_then(|device| Device::new(device, &Options::default())).is_ok_and(|device| device.has_windows);
    if !has {
        sideway_tests::requirements::may_not_run("the device has no memory windows of type 2B");
    }
    has
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_leave_locked_memory_for_buffers() {
        assert_eq!([Some(64 << 10), Some(8 << 20), None].map(affordable), [4096, 5461, u32::MAX]);
    }
}
