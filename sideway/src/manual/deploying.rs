//! What a machine requires to run a program: packages, kernel modules, permissions and versions.
//!
//! # One binary for all machines
//!
//! Building needs `rustc` and a linker, but no C compiler, headers or rdma-core. The program is not linked to
//! rdma-core's libraries. It loads them with `dlopen` when it calls the first verb. One binary therefore runs on
//! machines with and without RDMA, and with old and new versions of rdma-core. If a library or function is missing, the
//! program still starts, and the verb that needs it returns a typed error.
//!
//! | library | loaded by | soname |
//! |---|---|---|
//! | libibverbs, which loads each device's driver | the first verb, such as [`DeviceList::new`] | `libibverbs.so.1` |
//! | librdmacm | the first event channel ([`rdmacm`](crate::rdmacm)) | `librdmacm.so.1` |
//! | libmlx5, with the feature `mlx5` | the first of its functions | `libmlx5.so.1` |
//! | libefa, with the feature `efa` | the first of its functions | `libefa.so.1` |
//!
//! The loader searches for sonames in its usual places: `LD_LIBRARY_PATH`, its cache and the system directories. A
//! loaded library stays loaded. Failures are not cached, so a service that starts before the packages are installed
//! finds the libraries in a later call.
//!
//! ```
//! use sideway::ibverbs::device::{DeviceList, GetDeviceListError};
//!
//! // At service start: use RDMA if present, otherwise the fallback.
//! let has_rdma = match DeviceList::new() {
//!     Ok(devices) => !devices.is_empty(),
//!     Err(GetDeviceListError::Load(error)) => {
//!         eprintln!("no RDMA: {error}"); // the library, each path with its error, the packages
//!         false
//!     }
//!     Err(error) => {
//!         eprintln!("no RDMA: {error}"); // ENOSYS: the kernel has no RDMA
//!         false
//!     }
//! };
//! # let _ = has_rdma;
//! ```
//!
//! # Packages
//!
//! | distribution | runtime | tools |
//! |---|---|---|
//! | Debian, Ubuntu | `libibverbs1 ibverbs-providers`; `librdmacm1` for connections by address | `ibverbs-utils rdmacm-utils perftest iproute2` |
//! | Fedora, RHEL and derivatives | `libibverbs` (includes the drivers); `librdmacm` | `libibverbs-utils librdmacm-utils perftest iproute` |
//! | SUSE | `libibverbs` and a package per driver, such as `libmlx5-1`; `librdmacm1` | `libibverbs-utils librdmacm-utils perftest iproute2` |
//! | Arch | `rdma-core` | `rdma-core`, `iproute2` |
//!
//! On Debian and Ubuntu, `libibverbs1` alone lists no devices, because the drivers are in `ibverbs-providers`. No
//! `-dev` package is needed. A vendor's rdma-core (DOCA, OFED) has the same sonames and also works.
//!
//! # Kernel modules
//!
//! | module | needed for |
//! |---|---|
//! | the NIC's driver: `mlx5_ib`, `mlx4_ib`, `irdma`, `bnxt_re`, `efa`, …; software devices `rdma_rxe`, `siw` | devices |
//! | `ib_uverbs` | verbs in user space. Without this module, [`DeviceList::new`] returns `ENOSYS` |
//! | `rdma_ucm` | connections by address |
//! | `nvidia_peermem` | GPU memory by address, see [`gpu`](super::gpu) |
//!
//! The `rdma-core` package installs udev rules that load these modules when a device appears. Without the package, use
//! `modprobe`.
//!
//! # Permissions
//!
//! - **Files.** The file of a device is `/dev/infiniband/uverbsN`, and that of the connection manager is
//!   `/dev/infiniband/rdma_cm`. The user needs read and write access to these files. Most distributions grant it to all
//!   users (`crw-rw-rw-`). [`OpenDeviceError`](crate::ibverbs::device::OpenDeviceError) names the file.
//! - **Locked memory.** Registered memory is pinned and counts against `RLIMIT_MEMLOCK`, as do the queues of many
//!   drivers. If the limit is exceeded, registration fails with `ENOMEM`. Processes with `CAP_IPC_LOCK` have no limit.
//! - **Raw packets and flow rules** require `CAP_NET_RAW`. Ports of the connection manager below 1024 require
//!   `CAP_NET_BIND_SERVICE`.
//!
//! # Containers, limits, ports
//!
//! The page `docs/deploying.md` of the repository has a checklist, the ways to raise the limit of locked memory, the
//! settings of systemd, Docker and Kubernetes, and the ports to open. The drivers of an image must support the device: an
//! image that is older than the NIC may list no devices.
//!
//! # Environment variables
//!
//! | variable | effect |
//! |---|---|
//! | `RDMA_MUMMY_LIBIBVERBS`, `RDMA_MUMMY_LIBRDMACM`, `RDMA_MUMMY_LIBMLX5`, `RDMA_MUMMY_LIBEFA` | the only path or soname to try for the library. Ignored if empty, and in set-user-ID programs |
//! | `RDMA_MUMMY_RDMACM` | the provider of new connections: `system`, or one in the process such as `softrnic`. Default: the system if it has a device, otherwise the provider |
//! | `SOFTRNIC_DEVICES`, `SOFTRNIC_PEERS` | for programs that register softrnic, see [`testing`](super::testing) |
//!
//! The libraries read their own variables, such as `RDMAV_HUGEPAGES_SAFE` ([`fork`](crate::ibverbs::fork)) and
//! libmlx5's `MLX5_…`. A program can also select its library in code, with `rdma_mummy_sys::load`. Call `open_from` and
//! then `install` before the first verb.
//!
//! # Functions by version
//!
//! The bindings match rdma-core 44. All functions, including those of later versions, are looked up by name. If the
//! library lacks a function, that verb returns `EOPNOTSUPP` or an equivalent value, and all other verbs work. **The
//! oldest useful version is 28**: like C programs compiled with newer headers, sideway registers memory with
//! `ibv_reg_mr_iova2`. `rdma_mummy_sys::load::ibverbs::library()` returns the path of the loaded library. It also
//! returns the release, if the file name contains it.
//!
//! | rdma-core | adds |
//! |---|---|
//! | 30 | [`DeviceInfo::index`](crate::ibverbs::device::DeviceInfo::index) |
//! | 31 | [ECE](crate::ibverbs::queue_pair::Ece), import of domains and regions |
//! | 32 | GIDs with type and interface in one call; older versions read them from `/sys` |
//! | 34 | [`reg_dmabuf_mr`](crate::ibverbs::protection_domain::ProtectionDomain::reg_dmabuf_mr) |
//! | 35 | [`is_fork_initialized`](crate::ibverbs::fork::is_fork_initialized), import of device memory |
//! | 36 | [`query_data_in_order`](crate::ibverbs::queue_pair::QueuePair::query_data_in_order) |
//! | 45 | [flush](crate::ibverbs::work_request::Flush) |
//! | after 56 | [`resolve_addrinfo`](crate::rdmacm::communication_manager::Identifier::resolve_addrinfo), user events (RDMACM_1.4) |
//! | after 56 | DMA handles, [`reg_mr_ex`](crate::ibverbs::protection_domain::ProtectionDomain::reg_mr_ex) (IBVERBS_1.15) |
//! | 62 | numeric port speed (IBVERBS_1.16) |
//! | after 62 | [buffers of the provider](crate::ibverbs::provider_buffer), [completion counters](crate::ibverbs::completion::CompletionCounter) (IBVERBS_1.17, 1.18) |
//!
//! The device and its kernel driver must also support a function. If they do not, the verb returns an error.
//!
//! # musl
//!
//! `dlopen` requires that the program is dynamically linked to its C library. Rust's musl targets link statically by
//! default, and each verb then returns a load error. Use `-C target-feature=-crt-static`. The program and the libraries
//! must use the same C library, so a program for glibc cannot load Alpine's libraries. The tests run on glibc only.
//!
//! [`DeviceList::new`]: crate::ibverbs::device::DeviceList::new
