//! Failures by symptom, with usual causes and remedies.
//!
//! # Reading an error
//!
//! A failed verb returns a [`VerbError`]. It contains the C function, the errno and, if this crate can say more than the
//! kernel reported, a hint. Its `Display` prints all three. Errors on which programs usually branch have separate
//! types, which contain the `VerbError`: [`GetDeviceListError`], [`OpenDeviceError`], [`ModifyQueuePairError`],
//! [`PostError`], [`PollCompletionQueueError`], [`ConnectError`].
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
//!         // The peer may still be booting: try again.
//!         Err(ModifyQueuePairError::ResolveRouteTimedout { .. }) => qp.modify(attribute),
//!         other => other,
//!     }
//! }
//! ```
//!
//! `Drop` cannot return an error. It logs failures through the `log` crate; install a logger to see them.
//!
//! # Diagnostic commands
//!
//! | command | shows |
//! |---|---|
//! | `rdma link` (iproute2) | the RDMA device of each network interface, and whether it is up |
//! | `ibv_devinfo -v` (ibverbs-utils, and an example here) | devices, ports, limits, GIDs |
//! | the example `show_gids` | each GID with its RoCE version and interface |
//! | `ls -l /dev/infiniband` | the device files and their permissions |
//! | `ulimit -l` | the limit of locked memory, in KiB |
//! | `lsmod`, `dmesg` | loaded kernel modules, messages of drivers |
//! | `rdma resource show` | the number of objects on each device |
//! | `/sys/class/infiniband/DEVICE/ports/1/hw_counters/` | the driver's counts of retries, time-outs and out-of-order packets |
//! | `stride-perf devices`, `stride-perf write bw --loopback` | whether RDMA works on this machine |
//!
//! # No device
//!
//! | symptom | usual cause | remedy |
//! |---|---|---|
//! | [`GetDeviceListError::Load`]: `cannot load libibverbs.so.1: tried …` | rdma-core is not installed, or is for another architecture | install the packages that the error names; it also lists each path with the loader's message; see [`deploying`](super::deploying) |
//! | `… has no function …` | the library is older than the function | upgrade rdma-core; [`deploying`](super::deploying#functions-by-version) lists the versions |
//! | `ibv_get_device_list`: `ENOSYS` | the kernel has no RDMA, or `ib_uverbs` is not loaded | `modprobe ib_uverbs`; in a container, load it on the host |
//! | an empty list, and `rdma link` is empty too | no driver is loaded | load the NIC's module (`mlx5_ib`, `irdma`, `bnxt_re`, …), or use a software device: softrnic, `rdma_rxe` |
//! | an empty list, but `rdma link` shows a device | libibverbs has no provider for it, and prints a warning to stderr | Debian, Ubuntu: install `ibverbs-providers`. In a container: use an rdma-core that supports the device |
//! | `no RDMA device is named …` ([`DeviceNotFoundError`](crate::ibverbs::device::DeviceNotFoundError)) | the name changed: udev rules and slot order determine it | use a name that the error lists |
//! | `ibv_open_device`: `EACCES`, `EPERM` | no permission to read and write `/dev/infiniband/uverbsN` | fix the file's permissions; in a container, the device cgroup |
//! | `ibv_open_device`: `ENOENT` | the device file does not exist | pass it into the container (`--device`) |
//! | `ibv_open_device`: `ENODEV`, `ENXIO`, `EIO` | the device is being removed or reset | wait, then list the devices again |
//! | `ibv_open_device`: `EMFILE` | too many open files | raise `ulimit -n` |
//! | a port is not `Active` ([`PortAttr::port_state`]) | cable, switch, or interface down; on InfiniBand no subnet manager | `ip link set … up`; `sminfo` |
//!
//! # Memory
//!
//! | symptom | usual cause | remedy |
//! |---|---|---|
//! | [`reg_mr`](ProtectionDomain::reg_mr): `ENOMEM` | the limit of locked memory. It covers all registrations of the process, and with some drivers also the queues | `ulimit -l unlimited`, `/etc/security/limits.conf`, `LimitMEMLOCK=` of a service, `CAP_IPC_LOCK` in a container |
//! | `ENOMEM` far below the limit | out of keys, or of memory | register fewer and larger regions; [`DeviceAttr::max_mr`], [`DeviceAttr::max_mr_size`] |
//! | `EPERM` | the limit of locked memory is 0 | as for `ENOMEM` |
//! | `EFAULT` | the range is not mapped, or is read-only while the flags include write access; a GPU address, without peer memory | use [`AccessFlags`] without write access; [`gpu`](super::gpu) |
//! | `EINVAL` | [`RemoteWrite`](AccessFlags::RemoteWrite) or [`RemoteAtomic`](AccessFlags::RemoteAtomic) without [`LocalWrite`](AccessFlags::LocalWrite); length 0 | follow the hint |
//! | `EOPNOTSUPP` | the device does not support a flag: [`OnDemand`](AccessFlags::OnDemand), flush | check [`DeviceAttr::odp_caps`], or omit the flag |
//! | [`reg_dmabuf_mr`](ProtectionDomain::reg_dmabuf_mr): `EOPNOTSUPP`, `EPROTONOSUPPORT`, `ENOSYS`, `EBADF` | see [`gpu`](super::gpu#registration-errors) | |
//! | a dropped region is leaked (log) | `EBUSY`: a memory window is bound to it | unbind or invalidate the window first |
//!
//! # Queues
//!
//! | symptom | usual cause | remedy |
//! |---|---|---|
//! | completion queue: `EINVAL`, `ENOMEM` | more entries than the device supports, invalid completion vector; for `ENOMEM` also locked memory | the hint compares with [`DeviceAttr::max_cqe`] |
//! | completion queue, `build_ex`: `EOPNOTSUPP` | the driver does not support extended queues, or a requested field | [`build_generic`](crate::ibverbs::completion::CompletionQueueBuilder::build_generic) |
//! | queue pair: `EINVAL` | requests, entries or inline data above the device's limits; no completion queue; an object of another device context; a type with its own builder | follow the hint |
//! | queue pair: `ENOMEM` | as for `EINVAL`, depending on the driver; no queue pairs left; locked memory | look for leaked queue pairs with `rdma resource show` |
//! | queue pair: `EOPNOTSUPP` | no extended queue pairs, or these operations are unsupported on this service; or the driver does not check for overflow of an extended send queue ([`quirks`](super::quirks#send-queues-without-an-overflow-check)) | [`build_generic`](crate::ibverbs::queue_pair::QueuePairBuilder::build_generic), or fewer [`SendOperationFlags`](crate::ibverbs::queue_pair::SendOperationFlags) |
//! | queue pair for raw packets, flow: `EPERM` | the process lacks `CAP_NET_RAW` | `setcap cap_net_raw+ep PROGRAM` |
//! | `close`: `EBUSY` | the object is in use: a completion queue by queue pairs, a queue pair by events and flows | the last user destroys it, see [`ownership`](super::ownership) |
//!
//! # Queue pair transitions
//!
//! After the driver has rejected a transition, [`ModifyQueuePairError`] looks up the transition's rules. The table
//! lists the required attributes of the common services, in addition to the state:
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
//! | error | usual cause | remedy |
//! |---|---|---|
//! | [`InvalidTransition`](ModifyQueuePairError::InvalidTransition) | a step was left out, or the queue pair has entered Error | `reachable` lists the states; from Error continue with Reset, Init, … |
//! | [`InvalidAttributeMask`](ModifyQueuePairError::InvalidAttributeMask) | a missing or an extra attribute | `needed`, `invalid` |
//! | [`Verb`](ModifyQueuePairError::Verb), `EINVAL` or `ENODATA`, to ReadyToReceive | a GID index that is empty or out of range; no GRH on Ethernet; an IPv4 and an IPv6 GID; path MTU above the port's | follow the hint; compare `show_gids` on both sides |
//! | `Verb` without a hint | `max_dest_read_atomic` above [`DeviceAttr::max_qp_rd_atom`], a service level, a P_Key index | compare with [`query_device`](crate::ibverbs::device_context::DeviceContext::query_device) |
//! | [`ResolveRouteTimedout`](ModifyQueuePairError::ResolveRouteTimedout) (`ETIMEDOUT`) | no reply to ARP or neighbour discovery for the peer's GID: it is down or on another network, or the local GID index belongs to another interface | `ping -I INTERFACE` the peer's address; check the GID index |
//! | [`NetworkUnreachable`](ModifyQueuePairError::NetworkUnreachable) (`ENETUNREACH`, `EHOSTUNREACH`) | no route between the two GIDs: IPv4 and IPv6, or RoCE v1 and v2 | use GIDs of the same type |
//!
//! # Posting
//!
//! [`PostError::kind`] determines the remedy. [`failed_request`](PostError::failed_request) returns the request at
//! fault, and [`posted`](PostError::posted) the number of requests posted before it.
//!
//! | kind | usual cause | remedy |
//! |---|---|---|
//! | [`NotEnoughResources`](PostErrorKind::NotEnoughResources) | the queue is full: completions were not polled, or too few requests are signaled | poll, then post; signal at least one request per queue length. [`queue_limit`](PostError::queue_limit) is the queue's capacity |
//! | [`InvalidWorkRequest`](PostErrorKind::InvalidWorkRequest) | too many entries, too much inline data, an object of another device; with some drivers also a wrong state | raise the builder's limits, such as [`setup_max_inline_data`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_max_inline_data) |
//! | [`InvalidQueuePair`](PostErrorKind::InvalidQueuePair) | wrong state: sends need ReadyToSend, receives need Init | connect before posting |
//! | [`OperationNotEnabled`](PostErrorKind::OperationNotEnabled) | the queue pair was built without this operation | [`setup_send_ops_flags`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_send_ops_flags) |
//!
//! # Completions with an error
//!
//! In an unsuccessful completion only `wr_id`, `status`, `qp_num` and `vendor_err` are valid. On a connection, the
//! first error moves the queue pair to the Error state, and the device flushes all later requests. So **the first
//! failed completion with another status than "flushed" shows the cause**. Reset the queue pair and connect it again;
//! see [`teardown`](super::teardown).
//!
//! | status (C) | usual cause | what to check or change |
//! |---|---|---|
//! | [`RetryCounterExceededError`](Status::RetryCounterExceededError) (`RETRY_EXC_ERR`) | the peer does not acknowledge: its program has ended; its queue pair is not yet in ReadyToReceive, or has failed; wrong numbers or PSNs; GIDs without a route between them; UDP port 4791 is filtered; a switch has a smaller MTU; the fabric drops packets | the peer's completions and log; `ping` with packets of the MTU's size; the GID index on both sides; `timeout` and `retry_cnt`: a `timeout` of 0 is infinite, 14 is 67 ms per attempt |
//! | [`ResponderNotReadyRetryCounterExceededError`](Status::ResponderNotReadyRetryCounterExceededError) (`RNR_RETRY_EXC_ERR`) | the peer has no receive posted, or posts too slowly; a write with immediate data needs one too | post more receives, before the peer starts to send; `rnr_retry` 7 retries forever, the receiver's `min_rnr_timer` is the interval |
//! | [`LocalProtectionError`](Status::LocalProtectionError) (`LOC_PROT_ERR`) | a local key of another region or protection domain, a range outside the region, a deregistered region; a read or receive into memory without [`LocalWrite`](AccessFlags::LocalWrite) | keep the region until its requests complete; [`OwnedMemoryRegion::sge`](crate::ibverbs::memory_region::OwnedMemoryRegion::sge) checks the range |
//! | [`LocalLengthError`](Status::LocalLengthError) (`LOC_LEN_ERR`) | at the receiver: a message longer than its receive; at the sender: longer than the port's maximum or, for datagrams, the MTU | the message size on both sides; a datagram's receive has 40 bytes of header before the data |
//! | [`RemoteAccessError`](Status::RemoteAccessError) (`REM_ACCESS_ERR`) | the remote key is wrong, stale or of another protection domain; the range is outside the region; the region lacks the access right, **or the peer's queue pair does** (its access flags in Init); an invalidated window | exchange keys again after a restart; set [`RemoteRead`](AccessFlags::RemoteRead), … on region and queue pair |
//! | [`RemoteInvalidRequestError`](Status::RemoteInvalidRequestError) (`REM_INV_REQ_ERR`) | the peer rejects the request: a message longer than its receive, more outstanding reads and atomics than its `max_dest_read_atomic`, an atomic on an address that is not a multiple of 8, an unsupported operation | set `max_read_atomic` to at most the peer's `max_dest_read_atomic` |
//! | [`RemoteOperationError`](Status::RemoteOperationError) (`REM_OP_ERR`) | the peer failed to execute a permitted request: usually the memory of its receive was wrong | the peer's completion, a `LocalProtectionError` |
//! | [`WorkRequestFlushedError`](Status::WorkRequestFlushedError) (`WR_FLUSH_ERR`) | the queue pair had failed before, was moved to Error, or was disconnected | the preceding completion; if there is none, the peer |
//! | [`LocalQueuePairOperationError`](Status::LocalQueuePairOperationError) (`LOC_QP_OP_ERR`) | the driver or device found the request inconsistent: a destroyed address handle, a faulty scatter/gather list | `vendor_err`; [`quirks`](super::quirks) |
//! | [`MemoryWindowBindError`](Status::MemoryWindowBindError) (`MW_BIND_ERR`) | the region lacks [`MemoryWindowBind`](AccessFlags::MemoryWindowBind), the range is outside the region, a window of another type or domain | the region's flags |
//! | [`LocalAccessError`](Status::LocalAccessError) (`LOC_ACCESS_ERR`) | at the responder: a write with immediate data, or a receive, into memory without the access right | the region's flags |
//! | [`BadResponseError`](Status::BadResponseError) (`BAD_RESP_ERR`) | the response matches no request: two queue pairs have the same peer, or a faulty device | whether another queue pair uses the same destination number |
//! | [`RemoteAbortedError`](Status::RemoteAbortedError) (`REM_ABORT_ERR`) | the peer aborted the operation | the peer's log |
//! | [`FatalError`](Status::FatalError), [`ResponseTimeoutError`](Status::ResponseTimeoutError), [`GeneralError`](Status::GeneralError) | the device or its driver | `dmesg`, `vendor_err`, asynchronous events |
//! | [`TagMatchingError`](Status::TagMatchingError), [`TagMatchingRendezvousIncomplete`](Status::TagMatchingRendezvousIncomplete) | tag matching failed; the program must fetch the message itself | [`tag matching`](crate::ibverbs::shared_receive_queue) |
//! | [`LocalEndToEndContextOperationError`](Status::LocalEndToEndContextOperationError), [`InvalidEndToEndContextNumberError`](Status::InvalidEndToEndContextNumberError), [`InvalidEndToEndContextStateError`](Status::InvalidEndToEndContextStateError), [`LocalReliableDatagramDomainViolationError`](Status::LocalReliableDatagramDomainViolationError), [`RemoteInvalidReliableDatagramRequest`](Status::RemoteInvalidReliableDatagramRequest) | reliable datagrams, which no device supports | the driver |
//!
//! | no completion | cause and remedy |
//! |---|---|
//! | the request was not signaled | [`WorkRequestFlags::Signaled`](crate::ibverbs::work_request::WorkRequestFlags::Signaled), or [`setup_sq_sig_all`](crate::ibverbs::queue_pair::QueuePairBuilder::setup_sq_sig_all) |
//! | a write arrives, but the peer is not notified | writes do not notify; use a write with immediate data, or a send after it |
//! | a completion channel delivers no event | arm the queue with [`req_notify`](crate::ibverbs::completion::CompletionQueue::req_notify) **before** the last empty poll, and again for each event |
//! | datagrams are lost | no receive, a wrong Q_Key, longer than the MTU: neither side is notified of a lost datagram |
//! | [`PollCompletionQueueError::Verb`], `EIO` | the completion queue overran: size it for all outstanding requests of all its queue pairs |
//!
//! # Connections by address
//!
//! [`rdmacm`](crate::rdmacm#errors) explains [`ConnectError`]. Programs that take events themselves receive the
//! following events:
//!
//! | event | usual cause | remedy |
//! |---|---|---|
//! | [`AddressError`](EventType::AddressError) | no reply for the address (`ETIMEDOUT`, `EHOSTUNREACH`), or no RDMA device routes to it (`ENODEV`) | `ip route get`, `rdma link`; hardware does not support 127.0.0.1 |
//! | [`RouteError`](EventType::RouteError) | InfiniBand: the subnet manager has no path; RoCE: 127.0.0.1, which resolves but has no route (`ENODEV`) | check the subnet manager; use a device's address |
//! | [`Unreachable`](EventType::Unreachable) | the peer's machine does not reply; UDP port 4791 is filtered; or the peer's program takes no events (`ETIMEDOUT`) | check the firewall and the listener's event loop |
//! | [`Rejected`](EventType::Rejected), [`InvalidServiceId`](RejectReason::InvalidServiceId) | no listener on the port in this port space | check the port and [`PortSpace`](crate::rdmacm::PortSpace) |
//! | …, [`ConsumerDefined`](RejectReason::ConsumerDefined) | the peer's program rejected or dropped the request, or failed to accept it; or it listens on another address | read its log and the private data |
//! | …, [`StaleConnection`](RejectReason::StaleConnection) | the peer still has the queue pair in a connection that has just ended | use another queue pair, or wait for `TimewaitExit` |
//! | …, [`InsufficientResponderResources`](RejectReason::InsufficientResponderResources) | `initiator_depth` exceeds the peer's limit | [`ConnectionParameter::MAX_DEPTH`](crate::rdmacm::ConnectionParameter::MAX_DEPTH) |
//! | …, [`NoQueuePair`](RejectReason::NoQueuePair), [`NoResources`](RejectReason::NoResources) | the peer is out of resources | check the peer |
//! | …, [`InvalidGid`](RejectReason::InvalidGid), [`InvalidMtu`](RejectReason::InvalidMtu), and the other `Invalid…` | the sides disagree on the path | compare GIDs and MTU |
//! | [`ConnectError`](EventType::ConnectError) | a local step failed, such as a transition of the queue pair | read the errno in the status |
//! | [`Disconnected`](EventType::Disconnected) | the peer disconnected or died | poll the flushed requests; [`teardown`](super::teardown) |
//! | [`TimewaitExit`](EventType::TimewaitExit) | not an error: the queue pair may be reused | |
//! | [`DeviceRemoval`](EventType::DeviceRemoval) | the driver is unloaded, or the NIC resets | drop all objects of the device, list the devices again |
//! | [`AddressChange`](EventType::AddressChange) | the network device's hardware address changed, as at a bond failover | resolve again for new connections; open ones may survive |
//! | [`MulticastError`](EventType::MulticastError) | joining failed, or the membership was lost | check the subnet manager; read the status |
//!
//! | call | usual cause | remedy |
//! |---|---|---|
//! | `rdma_create_event_channel`: `ENODEV` | no RDMA device | see [No device](#no-device) |
//! | …: `ENOENT`, `EPERM` | `rdma_ucm` is not loaded | `modprobe rdma_ucm` |
//! | …: `EACCES` | no permission to open `/dev/infiniband/rdma_cm` | fix the permissions; `--device` |
//! | `rdma_bind_addr`: `EADDRINUSE`; `EADDRNOTAVAIL` for any address | the port is in use | choose another port, or 0 |
//! | `rdma_bind_addr`: `ENODEV` | the address's interface has no RDMA device | `rdma link` |
//! | `rdma_bind_addr`: `EACCES` | a port below 1024 | `CAP_NET_BIND_SERVICE` |
//! | `rdma_resolve_addr`: `ENETUNREACH` | no route in the routing table | `ip route get` |
//!
//! # Asynchronous events
//!
//! [`AsyncEventType`](AsyncEvent), from [`async_events`](crate::ibverbs::device_context::DeviceContext::async_events):
//!
//! | event | usual cause | remedy |
//! |---|---|---|
//! | [`CompletionQueueError`](AsyncEvent::CompletionQueueError) | overrun | build a larger queue; this one and its queue pairs are lost |
//! | [`QueuePairFatal`](AsyncEvent::QueuePairFatal) | an error that no completion could report, such as an overrun of the completion queue | reset or destroy the queue pair |
//! | [`QueuePairAccessError`](AsyncEvent::QueuePairAccessError) | the **peer** requested memory without the access right | check the key and the range that the peer was given; the peer's completion is a `RemoteAccessError` |
//! | [`QueuePairRequestError`](AsyncEvent::QueuePairRequestError) | the peer sent an invalid request | compare the versions of both programs |
//! | [`PathMigrationError`](AsyncEvent::PathMigrationError) | migration to the alternate path failed | |
//! | [`SharedReceiveQueueError`](AsyncEvent::SharedReceiveQueueError), [`WorkQueueFatal`](AsyncEvent::WorkQueueFatal) | the queue has failed | destroy it with its queue pairs |
//! | [`SharedReceiveQueueLimitReached`](AsyncEvent::SharedReceiveQueueLimitReached) | not an error: receives run low | post more, arm again |
//! | [`LastWorkRequestReached`](AsyncEvent::LastWorkRequestReached) | not an error: the failed queue pair consumes no more shared receives | empty the completion queue, destroy the queue pair |
//! | [`PortError`](AsyncEvent::PortError) | the link went down | wait for [`PortActive`](AsyncEvent::PortActive); requests survive until their retries are exhausted |
//! | [`GidChange`](AsyncEvent::GidChange), [`LidChange`](AsyncEvent::LidChange), [`PkeyChange`](AsyncEvent::PkeyChange) | the port's addresses changed | look up the indices again; open connections may have lost their path |
//! | [`ClientReregister`](AsyncEvent::ClientReregister), [`SubnetManagerChange`](AsyncEvent::SubnetManagerChange) | the subnet manager changed | join multicast groups again |
//! | [`DeviceFatal`](AsyncEvent::DeviceFatal) | a firmware fault, or the device was removed | drop all objects of the device, list the devices again |
//! | [`CommunicationEstablished`](AsyncEvent::CommunicationEstablished), [`SendQueueDrained`](AsyncEvent::SendQueueDrained), [`PathMigrated`](AsyncEvent::PathMigrated) | not an error | |
//!
//! # After `fork`
//!
//! | symptom | usual cause | remedy |
//! |---|---|---|
//! | the parent does not see the data that the device writes (Linux before 5.12) | a page was copied for the child | call [`fork_init`](crate::ibverbs::fork::fork_init) before opening the first device |
//! | [`fork_init`](crate::ibverbs::fork::fork_init): `EINVAL` | a device was opened before | call it at the start of `main` |
//! | a child crashes on memory that its parent registered | the child does not have those pages | use the child's own memory, or call `exec` |
//! | verbs in the child fail or hang | the objects belong to the parent | open the device again in the child; softrnic returns `EIO` |
//!
//! # Teardown
//!
//! A device may still write to memory that was freed too early; see [`teardown`](super::teardown).

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
