//! Faults of drivers, kernels and rdma-core versions, and how this crate handles them.
//!
//! # Soft-RoCE (`rdma_rxe`) with the extended verbs
//!
//! These faults were observed with rdma-core 44 (Debian 12) and 39 (Ubuntu 22.04). They were fixed in different
//! releases, and distributions adopt the fixes later. This crate identifies the driver by the file that contains its
//! functions (`librxe-rdmavNN.so`), and not by the device's name.
//!
//! | fault of `librxe` | effect on a program | handling |
//! |---|---|---|
//! | `next_poll` of an extended completion queue advances the cursor and releases the lock even if it finds nothing; `end_poll` then does both again ([rdma-core #1512], [#1617]) | stale completions with `wr_id` 0, lost completions, an unlocked lock | `next_poll` is not called: a poll returns one completion. [`build_generic`] builds a basic queue, which polls in batches |
//! | `wr_set_sge_list` computes the list's length as its first entry's times the number of entries ([#1744]) | a gather list with entries of different lengths ends in a local protection error, or sends too little | extended queue pairs reject such a list with a typed error; basic ones handle it, and [`build_generic` of queue pairs] builds a basic one |
//! | `wr_set_inline_data` does not mark the request as inline | a local error: the device looks for a gather list | this crate sets the flag together with the request; other drivers do not need it |
//! | `wr_set_inline_data_list` does not add up the lengths: it sends nothing, and writes several long pieces beyond the request | empty messages, overwritten requests | the pieces are joined and passed as one |
//! | `wr_*` functions not requested in `send_ops_flags` are null pointers | a crash | every operation can be called: posting a batch with one that was not requested returns a typed error, and posts nothing |
//! | `create_cq_ex` supports only the standard fields | `EOPNOTSUPP` for timestamps | the error names the field; `build_generic` builds a basic queue, whose completions have no timestamp |
//! | without a route between the GIDs, IPv6 fails with ENETUNREACH; IPv4 sends an ARP request that times out (Linux 6.1) | ETIMEDOUT after a second | both are variants of [`ModifyQueuePairError`](crate::ibverbs::queue_pair::ModifyQueuePairError) that name the GIDs |
//! | a receive posted in the Error state is not flushed: the driver does not notify the kernel of receives (Linux 6.1) | a drain waits for it forever | [`drain`](crate::ibverbs::queue_pair::Pair::drain) moves the queue pair to Error once more, which flushes it |
//! | accesses through a memory window are checked against the region's range, not the window's (Linux 6.1) | a peer can access its whole region | [`checks_window_bounds`](crate::ibverbs::device_context::DeviceContext::checks_window_bounds); on soft-RoCE, make regions as small as their windows |
//! | deregistering a region with a bound window fails with `EINVAL` (other drivers: `EBUSY`) | the region is leaked with its memory | the error's remedy: unbind or invalidate the window first |
//! | the completion of a send with invalidation carries the kernel's flag value, which means `IpChecksumOk` in user space | `WithInvalidate` is never set; the key is correct | none: a program that expects an invalidation reads [`invalidated_rkey`](crate::ibverbs::completion::ExtendedWorkCompletion::invalidated_rkey) |
//! | a datagram longer than the MTU completes successfully, but is not sent | lost messages | none: respect the port's MTU |
//! | the highest bit of a Q_Key does not select the sender's own Q_Key | dropped datagrams | none: pass the Q_Key itself |
//! | an address handle is resolved when the datagram is sent, not when it is posted | destroying the handle too early loses the datagram | none: keep the handle until the completion |
//! | a queue pair that is reset and connected again with a larger `max_dest_rd_atomic`: `free_rd_atomic_resources` walks the old array with the new length (Linux 6.1) | the kernel writes beyond the array: corrupted memory of the kernel, or an oops | none: connect again with the same number, or create a queue pair |
//! | two devices in two network namespaces of one host, or on both ends of one veth pair, cannot communicate (Linux 6.1) | time-outs | none: use two hosts, or one device in loopback |
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
//! | fault | effect on a program | handling |
//! |---|---|---|
//! | the kernel accepts `rdma_reject` after `rdma_accept` while the connection is being established (Linux 6.1) | destroying the identifier never returns; the process cannot be killed | a request is answered once: the second call returns `EINVAL` |
//! | the kernel treats an `rdma_establish` before the response as such a rejection (Linux 6.1) | as above | `establish` requires a received response, and succeeds only once; otherwise it returns `EINVAL` |
//! | librdmacm dereferences the device of an identifier without one (`rdma_resolve_route`, `rdma_connect`, `rdma_accept`, `rdma_create_qp`) | a crash | a typed error that names the missing step |
//! | `rdma_get_cm_event` skips some events and waits for the next | it blocks although poll(2) reported an event | the descriptor is always in non-blocking mode |
//! | `rdma_get_cm_event` writes to the event's identifier, even while another thread reads it | torn addresses, a null device | calls on a channel's identifiers wait while an event is taken |
//! | `rdma_get_cm_event` dereferences the device of an identifier that `rdma_destroy_id` is freeing in another thread (rdma-core 44) | a crash | destroying an identifier excludes taking events on its channel |
//! | a failed internal step of librdmacm sets the event's status to -1 | EPERM for any cause | errno is read at once, and becomes the status |
//! | a request that arrives while the listener's backlog is full is dropped silently | the peer retries for a minute | none: take events, or request a longer backlog |
//! | private data has a fixed length on InfiniBand and RoCE | zeros follow the peer's bytes | [`trimmed`](crate::rdmacm::communication_manager::PrivateData::trimmed) removes trailing zeros; a protocol should transmit the length |
//! | a side that disconnects gets `Disconnected` only after the peer has responded (Linux: otherwise 100 s) | a long wait for `Disconnected` | none for events; waiting calls have a time-out |
//! | `rdma_disconnect` between `rdma_connect` and the response fails the connection locally, without notifying the peer (Linux 6.1) | the peer's identifier waits forever | none: drop the identifier instead of disconnecting it |
//! | accepting with too much private data fails with `EINVAL` and rejects the peer | the peer is rejected | none: [`PrivateData`](crate::rdmacm::communication_manager::PrivateData) lists the maximum lengths |
//! | address resolution maps 127.0.0.1 to the first device, which has no route to it (RoCE) | `ENODEV` from route resolution | the error's remedy: use an address of a device |
//!
//! # Send queues without an overflow check
//!
//! The extended interface posts a request with several calls. If the queue overflows in one of them, the driver must
//! remember this until the last call. The table is based on the source code of the drivers (rdma-core 64):
//!
//! | driver | request on a full send queue | result of [`build_ex`] and [`build_generic` of queue pairs] |
//! |---|---|---|
//! | soft-RoCE, efa, ionic, softrnic | later calls of the batch do nothing, and `post` fails | an extended queue pair (soft-RoCE: see above) |
//! | mlx5 | overwrites the previous request, which may be in flight, and `post` fails: the device may use the key, address and bytes of the new request | `EOPNOTSUPP`; a basic queue pair |
//! | bnxt_re | overwrites requests in flight, or dereferences a null pointer | as for mlx5, also with [`assume_send_room`]: see below |
//! | hns | later calls of the batch do nothing; but a batch posted before ReadyToSend corrupts the request count | as for mlx5 |
//! | any other driver of the system | unknown | as for mlx5 |
//!
//! - In the basic interface, all drivers check for overflow. If a request does not fit, they write no part of it.
//! - A program that counts its outstanding requests can guarantee that the queue never overflows, by calling the unsafe
//!   method [`assume_send_room`]. Its documentation lists what to count. `build_ex` then also builds an extended queue
//!   pair on mlx5.
//! - This crate identifies a driver by the file that contains its functions. For a [provider] in the process, it
//!   assumes that the functions check for overflow.
//! - mlx5 misplaces the entries of a segmented send ([`setup_send_tso`]), possibly beyond the end of the queue. This
//!   happens if a header of more than 18 bytes ends on a boundary of a 64-byte block of the send queue, or crosses the
//!   end of the queue. (This is based on the source code of rdma-core 55, and was not tested on a device.) Only
//!   extended queue pairs support segmented sends, so the contract of `assume_send_room` covers this case.
//!
//! [`build_ex`]: crate::ibverbs::queue_pair::QueuePairBuilder::build_ex
//! [`assume_send_room`]: crate::ibverbs::queue_pair::QueuePairBuilder::assume_send_room
//! [provider]: rdma_mummy_sys::load::provider
//!
//! # Missing checks in drivers
//!
//! The table is based on the source code of rdma-core 64. Each of these faults makes the driver access memory that is
//! not its own, or wait forever. This crate identifies a driver by the file that contains its functions
//! (`libbnxt_re-rdmavNN.so`). It assumes that a provider that the program has registered, such as softrnic, makes these
//! checks.
//!
//! | driver | fault | handling |
//! |---|---|---|
//! | bnxt_re (since 56), extended queue pairs | copies inline data of any length; if a batch wraps around, writes its records beyond the end of the queue; dereferences a null pointer on a full queue | `build_ex` always returns `EOPNOTSUPP`; [`build_generic` of queue pairs] builds a basic one |
//! | bnxt_re | frees the queue in use if the kernel rejects a resize | `resize` returns `EOPNOTSUPP`: build another queue |
//! | soft-RoCE | a resize whose mapping fails leaves the queue without memory | polling, and another resize, return `EIO` from then on |
//! | soft-RoCE (Linux 6.1) | the destruction of a queue pair waits 50 s for a reference that is not returned, and the kernel logs a warning from `__rxe_cleanup`; seen beside busy processors | none: the call returns afterwards |
//! | hns, extended | adds the lengths of inline data in 32 bits; reads the first entry of an atomic's list even if the list is empty | for all drivers but mlx5: inline data and lists are checked against the queue pair's limits, and an empty list gets a readable address |
//! | ionic, extended | truncates the lengths of inline data to 32 bits | as for hns |
//! | siw, basic | looks up the opcode of an atomic write beyond the end of a table | a basic queue pair accepts atomic writes only if the device reports [`AtomicWrite`](crate::ibverbs::device_context::DeviceCapabilityFlags::AtomicWrite) |
//! | siw, basic | reads the key of a send with invalidate from the field for the keys of writes | the request contains the key in both fields |
//! | soft-RoCE, mlx4, irdma, ionic | `ibv_bind_mw` dereferences the region even if it is null | [`unbind`](crate::ibverbs::memory_window::BindInformation::unbind) returns `EOPNOTSUPP` unless the driver is mlx5 or in this process: drop the window |
//! | irdma | a bind request writes the key into the window when it is posted | the batch borrows the window with `&mut` |
//! | libibverbs | `ibv_fork_init` changes state that registrations in other threads read, without a lock | [`fork_init`](crate::ibverbs::fork::fork_init) fails once a device was opened |
//! | librdmacm | bytes written to an event channel's descriptor are commands with addresses, which librdmacm later dereferences | the channel has no `AsFd` |
//! | all | a forgotten batch or poller (`mem::forget`) leaves the driver's lock locked: the next one deadlocks | none; softrnic returns `EBUSY`: at once to the thread that forgot it, after 10 s to others |
//!
//! # All drivers
//!
//! - A poll on an extended completion queue holds the queue's lock until the poller is dropped. Destroying a queue pair
//!   of that queue takes the same lock, so drop the poller first.
//! - The extended posting interface reports that a batch failed, but not which request. According to its documentation,
//!   no request of that batch is posted. However, the soft-RoCE driver may have posted all requests and failed to ring
//!   the doorbell. Through the basic interface, the requests before the failed one are posted, and
//!   [`PostError`](crate::ibverbs::work_request::PostError) states their number if the driver reports it.
//! - The mlx4 driver reads the first entry of a raw packet's list even if the list is empty. So this crate always
//!   passes an entry with a readable address.
//! - After device removal, `read` still returns EAGAIN for the descriptor of asynchronous events. So a program that
//!   reads events must also check the error flags of `poll(2)`.
//! - Verbs are documented to return an errno value, but some drivers return its negative, or -1 with `errno` set. This
//!   crate accepts all three.
