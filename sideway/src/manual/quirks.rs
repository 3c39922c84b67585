//! Faults of drivers, kernels and rdma-core versions, and what this crate does about them.
//!
//! # Soft-RoCE (`rdma_rxe`) with the extended verbs
//!
//! Met with rdma-core 44 (Debian 12) and 39 (Ubuntu 22.04); the fixes came at different times, and distributions take them
//! up later still. The driver is known by the file that its functions are in (`librxe-rdmavNN.so`), whatever the device
//! is called.
//!
//! | fault of `librxe` | what it does to a program | what this crate does |
//! |---|---|---|
//! | `next_poll` of an extended completion queue moves the cursor and drops the lock also when it finds nothing; `end_poll` then does both again ([rdma-core #1512], [#1617]) | stale completions with `wr_id` 0, lost completions, a lock that is open when it should be shut | `next_poll` is not called: a poll takes one completion. [`build_generic`] makes a basic queue, which polls in batches |
//! | `wr_set_sge_list` takes the list to be as long as its first entry times the number of entries ([#1744]) | a gather list with entries of different lengths ends in a local protection error, or sends too little | such a list is refused with a typed error on an extended queue pair; basic ones do it right, and [`build_generic` of queue pairs] makes a basic one |
//! | `wr_set_inline_data` does not mark the request as one with inline data | a local error: the device looks for a gather list | the flag is set with the request; other drivers do without |
//! | `wr_set_inline_data_list` does not add the lengths up: it sends nothing, and copies several long pieces beyond the request | empty messages, overwritten requests | the pieces are joined and given as one |
//! | every `wr_*` function that `send_ops_flags` did not ask for is null | a crash | every operation is there: one that was not asked for is a typed error when the batch is posted, and nothing of the batch is |
//! | `create_cq_ex` knows only the standard fields | `EOPNOTSUPP` for timestamps | an error that says so; `build_generic` makes a basic queue, whose completions have no timestamp |
//! | a GID without a route to the peer's gives ENETUNREACH for IPv6 only; for IPv4 the address is asked for, and nobody answers (Linux 6.1) | ETIMEDOUT after a second | both are variants of [`ModifyQueuePairError`](crate::ibverbs::queue_pair::ModifyQueuePairError) that name the GIDs |
//! | a receive posted in the error state is not flushed: the driver does not tell the kernel of receives (Linux 6.1) | a drain that waits for it never ends | [`drain`](crate::ibverbs::queue_pair::Pair::drain) modifies the queue pair to the error state once more, which flushes it |
//! | what comes through a memory window is held against the range of the region, not of the window (Linux 6.1) | a peer reaches beyond the window, within its region | none: on soft-RoCE, make regions as small as their windows |
//! | deregistering a region under a bound window is `EINVAL` (others: `EBUSY`) | the region is leaked with its memory | the error says so: unbind or invalidate first |
//! | the completion of a send with invalidation has the kernel's flag, which for user space says `IpChecksumOk` | `WithInvalidate` is never set; the key is right | none: a program that expects an invalidation reads [`invalidated_rkey`](crate::ibverbs::completion::ExtendedWorkCompletion::invalidated_rkey) |
//! | a datagram longer than the MTU completes as a success, and is not sent | lost messages | none: look at the port's MTU |
//! | the highest bit of a Q_Key does not stand for the sender's own | dropped datagrams | none: give the Q_Key itself |
//! | an address handle is looked up when the datagram is sent, not when it is posted | a handle that goes too early loses the datagram | none: keep the handle until the completion |
//! | two devices in two network namespaces of one host, or on both ends of one veth pair, do not reach each other (Linux 6.1) | time-outs | none: use two hosts, or one device with itself |
//!
//! [rdma-core #1512]: https://github.com/linux-rdma/rdma-core/pull/1512
//! [#1617]: https://github.com/linux-rdma/rdma-core/pull/1617
//! [#1744]: https://github.com/linux-rdma/rdma-core/pull/1744
//! [`setup_send_tso`]: crate::ibverbs::work_request::WorkRequestHandle::setup_send_tso
//! [`build_generic`]: crate::ibverbs::completion::CompletionQueueBuilder::build_generic
//! [`build_generic` of queue pairs]: crate::ibverbs::queue_pair::QueuePairBuilder::build_generic
//!
//! # The connection manager (librdmacm, `rdma_ucm`)
//!
//! | fault | what it does to a program | what this crate does |
//! |---|---|---|
//! | the kernel takes a no (`rdma_reject`) after a yes (`rdma_accept`) while the connection is being made (Linux 6.1) | destroying the identifier never ends; the process cannot be killed | a request is answered once: the second answer is `EINVAL` |
//! | an `rdma_establish` out of its time is turned into such a no (Linux 6.1) | the same | `establish` takes a response that came, once: else `EINVAL` |
//! | librdmacm follows the device of an identifier that is on none (`rdma_resolve_route`, `rdma_connect`, `rdma_accept`, `rdma_create_qp`) | a crash | a typed error that says what comes first |
//! | `rdma_get_cm_event` leaves some events out and waits for the next | it waits although poll(2) said that there is an event | the descriptor is always in non-blocking mode |
//! | `rdma_get_cm_event` writes to the identifier that the event is of, also while another thread reads it | torn addresses, a null device | calls on the identifiers of a channel wait while one of its events is taken |
//! | `rdma_get_cm_event` follows the device of an identifier that `rdma_destroy_id` takes apart in another thread (rdma-core 44) | a crash | an identifier is destroyed while no event of its channel is taken |
//! | a step of librdmacm's own that fails puts -1 into the event's status | EPERM, whatever it was | errno is read right there, and is the status |
//! | identifiers of a request that comes while the listener's backlog is full are dropped without a word | the peer tries again for a minute | none: take events, or ask for a longer backlog |
//! | private data has a fixed length on InfiniBand and RoCE | the peer's bytes are followed by zeros | [`trimmed`](crate::rdmacm::communication_manager::PrivateData::trimmed) leaves those at the end out; a protocol says its length itself |
//! | who disconnects hears of it only when the peer has answered (Linux: 100 s otherwise) | a wait for `Disconnected` that takes long | none in the events; what waits has a time-out |
//! | `rdma_disconnect` between `rdma_connect` and the answer makes the connection fail here, and the other side is told nothing (Linux 6.1) | an identifier there that waits for ever | none: drop the identifier in place of disconnecting it |
//! | an answer with too much private data is `EINVAL`, and a no to the peer | the peer is rejected | none: see [`PrivateData`](crate::rdmacm::communication_manager::PrivateData) for how much there is room for |
//! | 127.0.0.1 resolves, to the first device, and has no route (RoCE) | `ENODEV` at the route | the error says to use an address that a device has |
//!
//! # Send queues without a check
//!
//! The extended interface posts a request by several calls, and a driver has to remember that one of them found no room. By their
//! sources (rdma-core 64):
//!
//! | driver | a request that the send queue has no room for | what [`build_ex`] and [`build_generic` of queue pairs] make |
//! |---|---|---|
//! | soft-RoCE, efa, ionic, softrnic | the calls that follow do nothing, and `post` fails | an extended queue pair (soft-RoCE: see above) |
//! | mlx5 | it is written over the request before it, which may be in flight, and `post` fails: the device may go on with the key, the address and the bytes of the new request | `EOPNOTSUPP`; a basic queue pair |
//! | bnxt_re | it is written over requests in flight, or through a null pointer | the same, also with [`assume_send_room`]: see below |
//! | hns | the calls that follow do nothing; but a batch that is posted before ReadyToSend leaves a wrong count of the requests | the same |
//! | any other driver of the system | not known | the same |
//!
//! - With the basic interface all drivers check the room, and write nothing of a request that has none.
//! - A program that counts its outstanding requests promises that by [`assume_send_room`], which is unsafe and lists what to count.
//!   `build_ex` then makes an extended queue pair on mlx5 as well.
//! - A driver is known by the file that its functions are in; the functions of a [provider] in the process count as checked.
//! - mlx5 writes the entries of a segmented send ([`setup_send_tso`]) to where the device does not read them, even after the end of
//!   the queue, if a header of more than 18 bytes ends together with a 64-byte block of the send queue, or goes over the end of the
//!   queue (by the source of rdma-core 55; not tried on a device). Only extended queue pairs have segmented sends, so
//!   `assume_send_room` lists this as well.
//!
//! [`build_ex`]: crate::ibverbs::queue_pair::QueuePairBuilder::build_ex
//! [`assume_send_room`]: crate::ibverbs::queue_pair::QueuePairBuilder::assume_send_room
//! [provider]: rdma_mummy_sys::load::provider
//!
//! # What drivers do not look at
//!
//! Read in rdma-core 64. Each of these would write or read memory that is not the driver's, or would wait for ever. A driver is known by
//! the file that its functions are in (`libbnxt_re-rdmavNN.so`); a table of functions that the program has registered, such as softrnic's,
//! is taken to look.
//!
//! | driver | fault | what this crate does |
//! |---|---|---|
//! | bnxt_re (since 56), extended queue pairs | inline data of any length is copied; the records of a batch that passes the end of the queue are written behind it; a request on a full queue follows a null pointer | `build_ex` gives `EOPNOTSUPP` in any case, [`build_generic` of queue pairs] makes a basic one |
//! | bnxt_re | a resize that the kernel refuses frees the queue in use | `resize` gives `EOPNOTSUPP`: build another queue |
//! | soft-RoCE | a resize whose mapping fails leaves the queue without memory | polling it gives `EIO` from then on, and so does another resize |
//! | hns, extended | lengths of inline data are added up in 32 bits; the first entry of an atomic's list is read, also of an empty one | all drivers but mlx5's: inline data and lists are compared with what the queue pair was built for, and an empty list has an address that can be read |
//! | ionic, extended | lengths of inline data are cut to 32 bits | the same |
//! | siw, basic | the opcode of an atomic write is looked up behind the end of a table | a basic queue pair takes atomic writes of a device that reports [`AtomicWrite`](crate::ibverbs::device_context::DeviceCapabilityFlags::AtomicWrite) alone |
//! | soft-RoCE, mlx4, irdma, ionic | `ibv_bind_mw` follows the region, also where it is null | [`unbind`](crate::ibverbs::memory_window::BindInformation::unbind) is `EOPNOTSUPP` unless the driver is mlx5's or in this process: drop the window |
//! | irdma | a bind by a request writes the key into the window when it is posted | the window is the batch's alone: `&mut` |
//! | libibverbs | `ibv_fork_init` sets up what registrations of other threads read, without a lock | [`fork_init`](crate::ibverbs::fork::fork_init) is refused once a device was opened |
//! | librdmacm | what is written to an event channel's descriptor are commands with addresses, which come back and are followed | the channel has no `AsFd` |
//! | all | a batch or a poller that was forgotten (`mem::forget`) leaves the driver's lock taken: the next waits for ever | none; softrnic gives `EBUSY` to the thread that has forgotten it |
//!
//! # All drivers
//!
//! - A poll on an extended completion queue holds the queue's lock until the poller is dropped. Destroying a queue pair of
//!   that queue meanwhile takes the same lock: drop the poller first.
//! - The extended posting interface tells that a batch failed, not which request. It is documented to post nothing of it
//!   then; soft-RoCE's driver may have posted all and failed to ring the doorbell. With the basic interface the requests
//!   before the failing one are posted, and [`PostError`](crate::ibverbs::work_request::PostError) says how many where the
//!   driver does.
//! - mlx4 reads the first entry of a raw packet's list also where the list is empty: it always has memory to point to here.
//! - An asynchronous event's descriptor says nothing when the device has gone (`read` answers EAGAIN): readers also look at
//!   what `poll(2)` says of it.
//! - Verbs are documented to return an errno value; some drivers return its negative, or -1 with `errno` set. All three
//!   are understood.
