//! What goes wrong, by symptom: the usual causes, where to look, what to change.
//!
//! # How to read an error
//!
//! A verb that fails gives a [`VerbError`]: the C function, the errno, and a hint where this crate knows more than the kernel
//! said. Printed, it is a sentence with all three. Where a program may want to branch, the error is a type of its own, with the
//! `VerbError` inside: [`GetDeviceListError`], [`OpenDeviceError`], [`ModifyQueuePairError`], [`PostError`],
//! [`PollCompletionQueueError`], [`ConnectError`].
//!
//! ```no_run
//! use sideway::ibverbs::device::{DeviceList, GetDeviceListError};
//! use sideway::ibverbs::queue_pair::{GenericQueuePair, ModifyQueuePairError, QueuePair, QueuePairAttribute};
//!
//! fn devices() -> Result<DeviceList, String> {
//!     match DeviceList::new() {
//!         Ok(list) if list.is_empty() => Err("libibverbs is there, and has no device".to_owned()),
//!         Ok(list) => Ok(list),
//!         Err(GetDeviceListError::Load(error)) => Err(format!("{} is not there: {error}", error.library())),
//!         Err(error) => Err(error.to_string()),
//!     }
//! }
//!
//! fn connect(qp: &GenericQueuePair, attribute: &QueuePairAttribute) -> Result<(), ModifyQueuePairError> {
//!     match qp.modify(attribute) {
//!         // The peer may be booting: this one is worth another try.
//!         Err(ModifyQueuePairError::ResolveRouteTimedout { .. }) => qp.modify(attribute),
//!         other => other,
//!     }
//! }
//! ```
//!
//! What is found out while something is dropped cannot be returned: it goes to the `log` crate. A program that has no logger
//! misses it.
//!
//! # Where to look
//!
//! | command | tells |
//! |---|---|
//! | `rdma link` (iproute2) | which network interface has which RDMA device, and whether it is up |
//! | `ibv_devinfo -v` (ibverbs-utils; the example of that name) | devices, ports, limits, GIDs |
//! | the example `show_gids` | the GIDs, of which RoCE version, of which interface |
//! | `ls -l /dev/infiniband` | the files that are opened, and who may |
//! | `ulimit -l` | how much memory may be locked, in KiB |
//! | `lsmod`, `dmesg` | kernel modules, what drivers complained of |
//! | `rdma resource show` | how many objects there are on each device |
//! | `/sys/class/infiniband/DEVICE/ports/1/hw_counters/` | retries, time-outs, packets out of order, as the driver counts them |
//! | `stride-perf devices`, `stride-perf write bw --loopback` | whether the machine can do it at all |
//!
//! # There is no device
//!
//! | symptom | usual cause | what to change |
//! |---|---|---|
//! | [`GetDeviceListError::Load`]: `cannot load libibverbs.so.1: tried …` | rdma-core is not installed, or of another architecture | the text has the packages and each path with the loader's words; see [`deploying`](super::deploying) |
//! | `… has no function …: it takes a newer rdma-core` | the library is older than the function | a newer rdma-core; [`deploying`](super::deploying#which-version-has-what) has the versions |
//! | `ibv_get_device_list`: `ENOSYS` | the kernel has no RDMA, or `ib_uverbs` is not loaded | `modprobe ib_uverbs`; in a container, load it on the host |
//! | an empty list, and `rdma link` is empty too | no driver is loaded | the module of the NIC (`mlx5_ib`, `irdma`, `bnxt_re`, …), or a device in software: softrnic, `rdma_rxe` |
//! | an empty list, and `rdma link` has a device | no provider for it: libibverbs writes a warning to stderr | Debian, Ubuntu: `ibverbs-providers`. In a container: its rdma-core is older than the device |
//! | `no RDMA device is named …` ([`DeviceNotFoundError`](crate::ibverbs::device::DeviceNotFoundError)) | the name is another; they change with udev rules and the order of slots | the text has the names that there are |
//! | `ibv_open_device`: `EACCES`, `EPERM` | the user may not read and write `/dev/infiniband/uverbsN` | permissions of the file; in a container the cgroup of devices |
//! | `ibv_open_device`: `ENOENT` | the file is not there | pass it into the container (`--device`) |
//! | `ibv_open_device`: `ENODEV`, `ENXIO`, `EIO` | the device is being removed or reset | wait, list anew |
//! | `ibv_open_device`: `EMFILE` | too many open files | `ulimit -n` |
//! | a port that is not `Active` ([`PortAttr::port_state`]) | cable, switch, interface down; on InfiniBand no subnet manager | `ip link set … up`; `sminfo` |
//!
//! # Memory
//!
//! | symptom | usual cause | what to change |
//! |---|---|---|
//! | [`reg_mr`](ProtectionDomain::reg_mr): `ENOMEM` | the limit of locked memory, which counts all that the process has registered; queues of some drivers count too | `ulimit -l unlimited`, `/etc/security/limits.conf`, `LimitMEMLOCK=` of a service, `CAP_IPC_LOCK` in a container |
//! | the same, with the limit far away | out of keys, or of memory | fewer and larger regions; [`DeviceAttr::max_mr`], [`DeviceAttr::max_mr_size`] |
//! | `EPERM` | the limit of locked memory is 0 | as above |
//! | `EFAULT` | the range is not mapped, or not writable though the flags ask for writing; an address of a GPU's memory, without peer memory | [`AccessFlags`] without writing; [`gpu`](super::gpu) |
//! | `EINVAL` | [`RemoteWrite`](AccessFlags::RemoteWrite) or [`RemoteAtomic`](AccessFlags::RemoteAtomic) without [`LocalWrite`](AccessFlags::LocalWrite); length 0 | the hint says which |
//! | `EOPNOTSUPP` | the device does not know a flag: [`OnDemand`](AccessFlags::OnDemand), flush | [`DeviceAttr::odp_caps`], or no such flag |
//! | [`reg_dmabuf_mr`](ProtectionDomain::reg_dmabuf_mr): `EOPNOTSUPP`, `EPROTONOSUPPORT`, `ENOSYS`, `EBADF` | see [`gpu`](super::gpu#when-it-does-not-register) | |
//! | the region is leaked when it is dropped (log) | `EBUSY`: a memory window is bound to it | unbind or invalidate first |
//!
//! # Queues
//!
//! | symptom | usual cause | what to change |
//! |---|---|---|
//! | completion queue: `EINVAL`, `ENOMEM` | more entries than the device has, no such completion vector; for `ENOMEM` also locked memory | the hint compares with [`DeviceAttr::max_cqe`] |
//! | completion queue, `build_ex`: `EOPNOTSUPP` | the driver has no extended queues, or not this field | [`build_generic`](crate::ibverbs::completion::CompletionQueueBuilder::build_generic) |
//! | queue pair: `EINVAL` | requests, entries or inline data above the device's; no completion queue; an object of another device context; a type that another builder makes | the hint says which |
//! | queue pair: `ENOMEM` | the same, of drivers that say it so; no queue pairs left; locked memory | `rdma resource show` for those that leak |
//! | queue pair: `EOPNOTSUPP` | no extended queue pairs, or not these operations on this service; or the driver does not check the room of an extended send queue ([`quirks`](super::quirks#send-queues-without-a-check)) | [`build_generic`](crate::ibverbs::queue_pair::QueuePairBuilder::build_generic), or fewer [`SendOperationFlags`](crate::ibverbs::queue_pair::SendOperationFlags) |
//! | queue pair for raw packets, flow: `EPERM` | `CAP_NET_RAW` is missing | `setcap cap_net_raw+ep PROGRAM` |
//! | `close`: `EBUSY` | something holds the object: queue pairs a completion queue, events and flows a queue pair | it goes with the last holder, see [`ownership`](super::ownership) |
//!
//! # A queue pair does not change its state
//!
//! [`ModifyQueuePairError`] looks the transition up after the driver has refused it. What each takes, of the most used services;
//! the state itself aside:
//!
//! | transition | RC | UC | UD |
//! |---|---|---|---|
//! | Reset → Init | P_Key index, port, access flags | as RC | P_Key index, port, Q_Key |
//! | Init → ReadyToReceive | address vector, path MTU, the peer's number and PSN, `max_dest_read_atomic`, `min_rnr_timer` | as RC without the last two | nothing |
//! | ReadyToReceive → ReadyToSend | PSN, `timeout`, `retry_cnt`, `rnr_retry`, `max_read_atomic` | PSN | PSN |
//!
//! [`connect_rc`](crate::ibverbs::queue_pair::QueuePair::connect_rc) and
//! [`connect_uc`](crate::ibverbs::queue_pair::QueuePair::connect_uc) set all of these, and return this error in
//! [`ConnectQueuePairError::Modify`](crate::ibverbs::queue_pair::ConnectQueuePairError::Modify).
//!
//! | error | usual cause | what to change |
//! |---|---|---|
//! | [`InvalidTransition`](ModifyQueuePairError::InvalidTransition) | a step was left out, or the queue pair has failed meanwhile | `reachable` has the states; from Error the way is Reset, Init, … |
//! | [`InvalidAttributeMask`](ModifyQueuePairError::InvalidAttributeMask) | an attribute too few or too many | `needed`, `invalid` |
//! | [`Verb`](ModifyQueuePairError::Verb), `EINVAL` or `ENODATA`, to ReadyToReceive | a GID index that is empty or out of the table; no GRH on Ethernet; one GID IPv4 and the other IPv6; path MTU above the port's | the hint says which; `show_gids` on both sides |
//! | the same without a hint | `max_dest_read_atomic` above [`DeviceAttr::max_qp_rd_atom`], a service level, a P_Key index | [`query_device`](crate::ibverbs::device_context::DeviceContext::query_device) |
//! | [`ResolveRouteTimedout`](ModifyQueuePairError::ResolveRouteTimedout) (`ETIMEDOUT`) | nobody answers ARP or neighbour discovery for the peer's GID: it is down, on another network, or the GID index of this side is of another interface | `ping -I INTERFACE` its address; the GID index |
//! | [`NetworkUnreachable`](ModifyQueuePairError::NetworkUnreachable) (`ENETUNREACH`, `EHOSTUNREACH`) | no route between the two GIDs: IPv4 and IPv6, or RoCE v1 and v2 | GIDs of one kind |
//!
//! # A request is not posted
//!
//! [`PostError::kind`] is what to do, [`failed_request`](PostError::failed_request) which one, [`posted`](PostError::posted) how
//! many went before it.
//!
//! | kind | usual cause | what to change |
//! |---|---|---|
//! | [`NotEnoughResources`](PostErrorKind::NotEnoughResources) | the queue is full: completions were not polled, or too few requests are signaled | poll, then post; signal at least one in each queue length. [`queue_limit`](PostError::queue_limit) is how many requests the queue was built for |
//! | [`InvalidWorkRequest`](PostErrorKind::InvalidWorkRequest) | too many entries, too much inline data, an object of another device; some drivers say so of a wrong state | the limits of the builder, such as [`setup_max_inline_data`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_max_inline_data) |
//! | [`InvalidQueuePair`](PostErrorKind::InvalidQueuePair) | the state takes no requests: sends need ReadyToSend, receives Init | order of the steps |
//! | [`OperationNotEnabled`](PostErrorKind::OperationNotEnabled) | not among those it was built for | [`setup_send_ops_flags`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_send_ops_flags) |
//!
//! # A request completes with an error
//!
//! Of a completion that is no success, `wr_id`, `status`, `qp_num` and `vendor_err` mean something, and nothing else does. On a
//! connection the first error takes the queue pair to the error state, and everything behind it is flushed: **the first
//! completion that is not flushed is the cause**. A queue pair in the error state is reset and connected anew, see
//! [`teardown`](super::teardown).
//!
//! | status (C) | usual cause | look at, change |
//! |---|---|---|
//! | [`RetryCounterExceededError`](Status::RetryCounterExceededError) (`RETRY_EXC_ERR`) | the peer does not answer: its program has ended, its queue pair is not in ReadyToReceive yet or has failed; numbers or PSNs were exchanged wrongly; GIDs that do not reach each other; UDP port 4791 is filtered; a switch has a smaller MTU; the fabric drops packets | the peer's own completions and log; `ping` with the size of the MTU; both sides' GID index; `timeout` and `retry_cnt`: a `timeout` of 0 waits for ever, 14 is 67 ms an attempt |
//! | [`ResponderNotReadyRetryCounterExceededError`](Status::ResponderNotReadyRetryCounterExceededError) (`RNR_RETRY_EXC_ERR`) | the peer has no receive posted, or takes them too slowly; a write with immediate takes one too | more receives, posted before the peer is told to send; `rnr_retry` 7 is without end, `min_rnr_timer` of the receiver is the time between |
//! | [`LocalProtectionError`](Status::LocalProtectionError) (`LOC_PROT_ERR`) | a local key of another region or protection domain, a range beyond it, a registration that has ended; a read or a receive into memory without [`LocalWrite`](AccessFlags::LocalWrite) | the region outlives its requests; [`OwnedMemoryRegion::sge`](crate::ibverbs::memory_region::OwnedMemoryRegion::sge) checks the range |
//! | [`LocalLengthError`](Status::LocalLengthError) (`LOC_LEN_ERR`) | at the receiver: a message longer than its receive; at the sender: longer than the port or, of datagrams, the MTU | the size both agree on; a datagram's receive has 40 bytes of header before the data |
//! | [`RemoteAccessError`](Status::RemoteAccessError) (`REM_ACCESS_ERR`) | the remote key is wrong, stale or of another protection domain; the range is beyond the region; the region lacks the right, **or the peer's queue pair does** (its access flags in Init); an invalidated window | keys exchanged anew after a restart; [`RemoteRead`](AccessFlags::RemoteRead), … on region and queue pair |
//! | [`RemoteInvalidRequestError`](Status::RemoteInvalidRequestError) (`REM_INV_REQ_ERR`) | the peer finds the request wrong: a message longer than its receive, more reads and atomics at a time than its `max_dest_read_atomic`, an atomic on an address that is no multiple of 8, an operation that it has not | `max_read_atomic` here is at most `max_dest_read_atomic` there |
//! | [`RemoteOperationError`](Status::RemoteOperationError) (`REM_OP_ERR`) | the peer could not do it though it is allowed: mostly the memory of its receive was wrong | the peer's completion, which is a `LocalProtectionError` |
//! | [`WorkRequestFlushedError`](Status::WorkRequestFlushedError) (`WR_FLUSH_ERR`) | the queue pair had failed before, or was moved to Error, or the connection has ended | the completion before; where there is none, the peer's side |
//! | [`LocalQueuePairOperationError`](Status::LocalQueuePairOperationError) (`LOC_QP_OP_ERR`) | the driver or device found the request inconsistent: an address handle that has gone, a faulty list of entries | `vendor_err`; [`quirks`](super::quirks) |
//! | [`MemoryWindowBindError`](Status::MemoryWindowBindError) (`MW_BIND_ERR`) | the region lacks [`MemoryWindowBind`](AccessFlags::MemoryWindowBind), the range is beyond it, a window of another type or domain | flags of the region |
//! | [`LocalAccessError`](Status::LocalAccessError) (`LOC_ACCESS_ERR`) | at the responder: a write with immediate, a receive, into memory without the right | flags of the region |
//! | [`BadResponseError`](Status::BadResponseError) (`BAD_RESP_ERR`) | the answer fits no request: two queue pairs with the same peer, a faulty device | who else was told this number? |
//! | [`RemoteAbortedError`](Status::RemoteAbortedError) (`REM_ABORT_ERR`) | the peer gave up | the peer's log |
//! | [`FatalError`](Status::FatalError), [`ResponseTimeoutError`](Status::ResponseTimeoutError), [`GeneralError`](Status::GeneralError) | the device or its driver | `dmesg`, `vendor_err`, asynchronous events |
//! | [`TagMatchingError`](Status::TagMatchingError), [`TagMatchingRendezvousIncomplete`](Status::TagMatchingRendezvousIncomplete) | tag matching: not carried out; the message is to be fetched by the program | [`tag matching`](crate::ibverbs::shared_receive_queue) |
//! | [`LocalEndToEndContextOperationError`](Status::LocalEndToEndContextOperationError), [`InvalidEndToEndContextNumberError`](Status::InvalidEndToEndContextNumberError), [`InvalidEndToEndContextStateError`](Status::InvalidEndToEndContextStateError), [`LocalReliableDatagramDomainViolationError`](Status::LocalReliableDatagramDomainViolationError), [`RemoteInvalidReliableDatagramRequest`](Status::RemoteInvalidReliableDatagramRequest) | reliable datagrams, which no device has | the driver |
//!
//! | no completion at all | |
//! |---|---|
//! | the request was not signaled | [`WorkRequestFlags::Signaled`](crate::ibverbs::work_request::WorkRequestFlags::Signaled), or [`setup_sq_sig_all`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_sq_sig_all) |
//! | a write arrives, and the peer is told nothing | that is what a write does: a write with immediate, or a send behind it |
//! | a completion channel is silent | the queue is armed with [`req_notify`](crate::ibverbs::completion::CompletionQueue::req_notify) **before** the last empty poll, and once for each event |
//! | datagrams vanish | no receive, a wrong Q_Key, longer than the MTU: nobody is told of a lost datagram |
//! | [`PollCompletionQueueError::Verb`], `EIO` | the completion queue overran: it must hold all that can be outstanding on all its queue pairs |
//!
//! # Connections by address
//!
//! [`rdmacm`](crate::rdmacm#what-errors-mean) has a table of what [`ConnectError`] says. Those who take events by themselves meet:
//!
//! | event | usual cause | what to change |
//! |---|---|---|
//! | [`AddressError`](EventType::AddressError) | nobody answers for the address (`ETIMEDOUT`, `EHOSTUNREACH`), or no RDMA device leads there (`ENODEV`) | `ip route get`, `rdma link`; not 127.0.0.1 on hardware |
//! | [`RouteError`](EventType::RouteError) | InfiniBand: the subnet manager has no path; RoCE: 127.0.0.1, which resolves and has no route (`ENODEV`) | the subnet manager; an address that a device has |
//! | [`Unreachable`](EventType::Unreachable) | the machine is there and does not answer, UDP port 4791 is filtered; or the program there takes no events (`ETIMEDOUT`) | firewall; the listener's loop |
//! | [`Rejected`](EventType::Rejected), [`InvalidServiceId`](RejectReason::InvalidServiceId) | nobody listens at the port in this port space | port, [`PortSpace`](crate::rdmacm::PortSpace) |
//! | …, [`ConsumerDefined`](RejectReason::ConsumerDefined) | the program there said no, dropped the request, or failed to accept it; a listener at another address | its log, the private data |
//! | …, [`StaleConnection`](RejectReason::StaleConnection) | the queue pair is known there from a connection that has just ended | another queue pair, or after `TimewaitExit` |
//! | …, [`InsufficientResponderResources`](RejectReason::InsufficientResponderResources) | `initiator_depth` above what the peer serves | [`ConnectionParameter::MAX_DEPTH`](crate::rdmacm::ConnectionParameter::MAX_DEPTH) |
//! | …, [`NoQueuePair`](RejectReason::NoQueuePair), [`NoResources`](RejectReason::NoResources) | the peer is out of something | the peer |
//! | …, [`InvalidGid`](RejectReason::InvalidGid), [`InvalidMtu`](RejectReason::InvalidMtu), and the other `Invalid…` | the sides disagree on the path | GIDs and MTU of both |
//! | [`ConnectError`](EventType::ConnectError) | the library or the kernel could not go on, such as with a queue pair that cannot be moved | the errno in the status |
//! | [`Disconnected`](EventType::Disconnected) | the peer has ended, disconnected, or died | flushed requests; [`teardown`](super::teardown) |
//! | [`TimewaitExit`](EventType::TimewaitExit) | no error: the queue pair may be used anew | |
//! | [`DeviceRemoval`](EventType::DeviceRemoval) | the driver goes, a NIC is reset | drop all that is on the device, list anew |
//! | [`AddressChange`](EventType::AddressChange) | the network device has another address now, as when a bond moves | connections go on where they can; new ones resolve anew |
//! | [`MulticastError`](EventType::MulticastError) | the group cannot be joined, or is lost | the subnet manager; the status |
//!
//! | call | usual cause | what to change |
//! |---|---|---|
//! | `rdma_create_event_channel`: `ENODEV` | no RDMA device | [above](#there-is-no-device) |
//! | …: `ENOENT`, `EPERM` | `rdma_ucm` is not loaded | `modprobe rdma_ucm` |
//! | …: `EACCES` | `/dev/infiniband/rdma_cm` may not be opened | permissions; `--device` |
//! | `rdma_bind_addr`: `EADDRINUSE`; `EADDRNOTAVAIL` for any address | the port is in use | another, or 0 |
//! | `rdma_bind_addr`: `ENODEV` | the interface of the address has no RDMA device | `rdma link` |
//! | `rdma_bind_addr`: `EACCES` | a port below 1024 | `CAP_NET_BIND_SERVICE` |
//! | `rdma_resolve_addr`: `ENETUNREACH` | the routing table | `ip route get` |
//!
//! # The device reports
//!
//! [`AsyncEventType`](AsyncEvent), by [`async_events`](crate::ibverbs::device_context::DeviceContext::async_events):
//!
//! | event | usual cause | what to do |
//! |---|---|---|
//! | [`CompletionQueueError`](AsyncEvent::CompletionQueueError) | overrun | a larger queue; this one and its queue pairs are lost |
//! | [`QueuePairFatal`](AsyncEvent::QueuePairFatal) | an error that no completion could tell, such as an overrun of its completion queue | reset or destroy it |
//! | [`QueuePairAccessError`](AsyncEvent::QueuePairAccessError) | the **peer** asked for memory that it may not touch | what the peer was told; its completion is a `RemoteAccessError` |
//! | [`QueuePairRequestError`](AsyncEvent::QueuePairRequestError) | the peer sent what this side cannot understand | versions of both programs |
//! | [`PathMigrationError`](AsyncEvent::PathMigrationError) | the alternate path does not work | |
//! | [`SharedReceiveQueueError`](AsyncEvent::SharedReceiveQueueError), [`WorkQueueFatal`](AsyncEvent::WorkQueueFatal) | the queue has failed | destroy it with its queue pairs |
//! | [`SharedReceiveQueueLimitReached`](AsyncEvent::SharedReceiveQueueLimitReached) | no error: receives run low | post more, arm anew |
//! | [`LastWorkRequestReached`](AsyncEvent::LastWorkRequestReached) | no error: the failed queue pair takes no more of its shared receives | empty the completion queue, destroy it |
//! | [`PortError`](AsyncEvent::PortError) | the link went down | wait for [`PortActive`](AsyncEvent::PortActive); requests live as long as their retries |
//! | [`GidChange`](AsyncEvent::GidChange), [`LidChange`](AsyncEvent::LidChange), [`PkeyChange`](AsyncEvent::PkeyChange) | addresses came or went | look indices up anew; open connections may have lost their way |
//! | [`ClientReregister`](AsyncEvent::ClientReregister), [`SubnetManagerChange`](AsyncEvent::SubnetManagerChange) | another subnet manager | join multicast groups anew |
//! | [`DeviceFatal`](AsyncEvent::DeviceFatal) | firmware, or the device was pulled | drop all that is on it, list anew |
//! | [`CommunicationEstablished`](AsyncEvent::CommunicationEstablished), [`SendQueueDrained`](AsyncEvent::SendQueueDrained), [`PathMigrated`](AsyncEvent::PathMigrated) | no error | |
//!
//! # After `fork`
//!
//! | symptom | usual cause | what to change |
//! |---|---|---|
//! | a device writes, and the parent does not see it (Linux before 5.12) | a page was copied for the child | [`fork_init`](crate::ibverbs::fork::fork_init) before the first device is opened |
//! | [`fork_init`](crate::ibverbs::fork::fork_init): `EINVAL` | a device was opened before | at the start of `main` |
//! | a child crashes at memory that its parent has registered | it was kept from children | the child uses memory of its own, or runs another program |
//! | verbs in the child fail or hang | the objects are the parent's | the child opens the device anew; with softrnic they give `EIO` |
//!
//! # Ending
//!
//! See [`teardown`](super::teardown): what is freed too early is written later, by a device that has not given up.

#[cfg(doc)]
use crate::error::VerbError;
#[cfg(doc)]
use crate::ibverbs::AccessFlags;
#[cfg(doc)]
use crate::ibverbs::async_event::AsyncEventType as AsyncEvent;
#[cfg(doc)]
use crate::ibverbs::completion::{PollCompletionQueueError, WorkCompletionStatus as Status};
#[cfg(doc)]
use crate::ibverbs::device::{GetDeviceListError, OpenDeviceError};
#[cfg(doc)]
use crate::ibverbs::device_context::{DeviceAttr, PortAttr};
#[cfg(doc)]
use crate::ibverbs::protection_domain::ProtectionDomain;
#[cfg(doc)]
use crate::ibverbs::queue_pair::ModifyQueuePairError;
#[cfg(doc)]
use crate::ibverbs::work_request::{PostError, PostErrorKind};
#[cfg(doc)]
use crate::rdmacm::EventType;
#[cfg(doc)]
use crate::rdmacm::{ConnectError, RejectReason};
