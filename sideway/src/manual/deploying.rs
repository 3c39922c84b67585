//! What the machine needs that a program runs on.
//!
//! # One binary
//!
//! Building needs `rustc` and a linker: no C compiler, no headers, no rdma-core. The program is linked to none of rdma-core's
//! libraries; it opens them (`dlopen`) when the first verb is called. So one binary runs on machines with and without RDMA, and
//! with old and new rdma-core; what a machine lacks fails as one verb with a typed error, and not as a program that does not
//! start.
//!
//! | library | opened by | soname |
//! |---|---|---|
//! | libibverbs, which opens the driver of each device | the first verb, such as [`DeviceList::new`] | `libibverbs.so.1` |
//! | librdmacm | the first event channel ([`rdmacm`](crate::rdmacm)) | `librdmacm.so.1` |
//! | libmlx5, with the feature `mlx5` | the first of its functions | `libmlx5.so.1` |
//! | libefa, with the feature `efa` | the first of its functions | `libefa.so.1` |
//!
//! Sonames are searched for as the loader does it: `LD_LIBRARY_PATH`, its cache, the folders of the system. A library that was
//! opened stays open. A failure is not remembered: a service that starts before the packages are there finds them at a later call.
//!
//! ```
//! use sideway::ibverbs::device::{DeviceList, GetDeviceListError};
//!
//! // At the start of a service: RDMA where there is some, and else what it does without.
//! let has_rdma = match DeviceList::new() {
//!     Ok(devices) => !devices.is_empty(),
//!     Err(GetDeviceListError::Load(error)) => {
//!         eprintln!("no RDMA: {error}"); // the library, each path that was tried and why not, the packages
//!         false
//!     }
//!     Err(error) => {
//!         eprintln!("no RDMA: {error}"); // ENOSYS: the kernel has none
//!         false
//!     }
//! };
//! # let _ = has_rdma;
//! ```
//!
//! # Packages
//!
//! | distribution | to run | tools |
//! |---|---|---|
//! | Debian, Ubuntu | `libibverbs1 ibverbs-providers`; `librdmacm1` for connections by address | `ibverbs-utils rdmacm-utils perftest iproute2` |
//! | Fedora, RHEL and its like | `libibverbs` (with the drivers); `librdmacm` | `libibverbs-utils librdmacm-utils perftest iproute` |
//! | SUSE | `libibverbs` (drivers are apart, such as `libmlx5-1`); `librdmacm1` | `libibverbs-utils librdmacm-utils perftest iproute2` |
//! | Arch | `rdma-core` | the same, `iproute2` |
//!
//! On Debian and Ubuntu `libibverbs1` alone lists nothing: the drivers are in `ibverbs-providers`. No `-dev` package is needed.
//! A vendor's own rdma-core (DOCA, OFED) has the same sonames and does as well.
//!
//! # The kernel
//!
//! | what | for |
//! |---|---|
//! | the driver of the NIC: `mlx5_ib`, `mlx4_ib`, `irdma`, `bnxt_re`, `efa`, …; in software `rdma_rxe`, `siw` | devices |
//! | `ib_uverbs` | verbs from programs; without it [`DeviceList::new`] gives `ENOSYS` |
//! | `rdma_ucm` | connections by address |
//! | `nvidia_peermem` | memory of GPUs by address, see [`gpu`](super::gpu) |
//!
//! The package `rdma-core` brings udev rules that load these when a device appears; in a machine without it, `modprobe` does.
//!
//! # Permissions
//!
//! - **Files.** A device is `/dev/infiniband/uverbsN`, the connection manager `/dev/infiniband/rdma_cm`; they must be readable and
//!   writable. Most distributions let everybody (`crw-rw-rw-`). [`OpenDeviceError`](crate::ibverbs::device::OpenDeviceError)
//!   names the file.
//! - **Locked memory.** Memory that is registered is pinned, and counts against `RLIMIT_MEMLOCK`; so do the queues of many
//!   drivers. The default is 8 MiB on current systems and 64 KiB on older ones: `ENOMEM` soon. A process with `CAP_IPC_LOCK` has no
//!   limit.
//!
//!   | where the program is started | how to raise it |
//!   |---|---|
//!   | a shell, a login | `/etc/security/limits.conf`: `* - memlock unlimited`, then log in anew; `ulimit -l` shows |
//!   | a systemd service | `LimitMEMLOCK=infinity` in its unit; limits.conf does not count there |
//!   | Docker, Podman | `--ulimit memlock=-1`, or `--cap-add IPC_LOCK` |
//!   | Kubernetes | `capabilities: add: [IPC_LOCK]`: there is no field for limits |
//!   | Slurm and the like | the limit of its daemon is inherited |
//! - **Raw packets and flow rules** need `CAP_NET_RAW`; connection manager ports below 1024 `CAP_NET_BIND_SERVICE`.
//!
//! # Containers
//!
//! The image brings user space, the host the kernel and its modules.
//!
//! ```console
//! $ docker run --device /dev/infiniband/uverbs0 --device /dev/infiniband/rdma_cm \
//!       --ulimit memlock=-1 --network host IMAGE
//! ```
//!
//! - The image has the packages above. Its drivers must know the device: an image that is older than the NIC lists none.
//! - `/sys` must show `class/infiniband` and `class/infiniband_verbs` (it does unless it is masked).
//! - **Network.** GIDs of RoCE are the addresses of a network interface, and a container without that interface has none to use. With
//!   `--network host` all are there. Else the interface, or a virtual function of the NIC, is moved into the container's network
//!   namespace; `rdma system show` tells whether devices are shared between namespaces or belong to one.
//! - **Kubernetes.** A device plugin hands the files out as a resource, under a name that its configuration gives; SR-IOV plugins
//!   bring an interface along.
//!
//!   ```yaml
//!   resources:
//!     limits: { rdma/hca_shared_devices_a: 1 } # the name that the plugin was configured with
//!   securityContext:
//!     capabilities: { add: [IPC_LOCK] }
//!   ```
//!
//! # Environment variables
//!
//! | variable | meaning |
//! |---|---|
//! | `RDMA_MUMMY_LIBIBVERBS`, `RDMA_MUMMY_LIBRDMACM`, `RDMA_MUMMY_LIBMLX5`, `RDMA_MUMMY_LIBEFA` | a path or soname in place of the library's; nothing else is tried then. Ignored in set-user-ID programs, and where empty |
//! | `RDMA_MUMMY_RDMACM` | who serves new connections: `system`, or a provider in the process such as `softrnic`; unset, the system where it has a device, else the provider |
//! | `SOFTRNIC_DEVICES`, `SOFTRNIC_PEERS` | of programs that register softrnic, see [`testing`](super::testing) |
//!
//! The libraries have variables of their own, such as `RDMAV_HUGEPAGES_SAFE` ([`fork`](crate::ibverbs::fork)) and the `MLX5_…` of
//! libmlx5. A program chooses its library itself with `rdma_mummy_sys::load`: `open_from`, then `install`, before the first verb.
//!
//! # Which version has what
//!
//! The bindings are those of rdma-core 44; all functions are looked up by name, and those that came later too. A library that lacks
//! one fails at that verb, with `EOPNOTSUPP` or a value that says so, and all else works. **28 is the oldest that makes sense**:
//! registering memory calls `ibv_reg_mr_iova2`, as C programs do that were compiled with newer headers. What is loaded is told by
//! `rdma_mummy_sys::load::ibverbs::library()`: its path, and where the name of the file has it, the release.
//!
//! | rdma-core | adds |
//! |---|---|
//! | 30 | [`DeviceInfo::index`](crate::ibverbs::device::DeviceInfo::index) |
//! | 31 | [ECE](crate::ibverbs::queue_pair::Ece), import of domains and regions |
//! | 32 | GIDs with type and interface in one call; before it they are read from `/sys` |
//! | 34 | [`reg_dmabuf_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_dmabuf_mr) |
//! | 35 | [`is_fork_initialized`](crate::ibverbs::fork::is_fork_initialized), import of device memory |
//! | 36 | [`query_data_in_order`](crate::ibverbs::queue_pair::QueuePair::query_data_in_order) |
//! | 45 | [flush](crate::ibverbs::work_request::Flush) |
//! | after 56 | [`resolve_addrinfo`](crate::rdmacm::communication_manager::Identifier::resolve_addrinfo), events of the program's (RDMACM_1.4) |
//! | after 56 | DMA handles, [`reg_mr_ex`](crate::ibverbs::protection_domain::ProtectionDomain::reg_mr_ex) (IBVERBS_1.15) |
//! | 62 | speed of a port as a number (IBVERBS_1.16) |
//! | after 62 | [buffers of the provider](crate::ibverbs::provider_buffer), [completion counters](crate::ibverbs::completion::CompletionCounter) (IBVERBS_1.17, 1.18) |
//!
//! Whether a device and its kernel driver have a thing is another question, which the verb answers.
//!
//! # musl
//!
//! `dlopen` needs a program that is linked dynamically to its C library. Rust's musl targets link statically unless told otherwise
//! (`-C target-feature=-crt-static`); a static program can open no library, and each verb gives a load error. Libraries and program
//! must be of one C library: a program for glibc does not load Alpine's. The tests run on glibc alone.
//!
//! [`DeviceList::new`]: crate::ibverbs::device::DeviceList::new
