//! Providers in this process: software NICs, for example, beside the system's libraries.
//!
//! A provider is a table of functions, like a library. After registration, `ibv_get_device_list` returns its devices
//! after the system's, and each verb on an object goes to the object's provider.
//!
//! A provider cannot be unregistered: its devices, and all objects made from them, point to its functions without a
//! reference count.

use core::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use libc::{nfds_t, pollfd, timespec};

use super::gate;
use super::ibverbs::IbverbsTable;
use super::rdmacm::RdmacmTable;
use super::route::{Owner, Routed, stamp};
use crate::bindings::verbs::{ibv_comp_channel, ibv_context, ibv_device};

/// The name of the system's libraries; no provider can use it.
pub const SYSTEM: &str = "system";

/// A provider to be registered.
#[derive(Debug, Clone)]
pub struct Provider {
    name: String,
    ibverbs: IbverbsTable,
    rdmacm: Option<RdmacmTable>,
    below: Option<ProviderId>,
    wait: Option<Wait>,
    driver: Option<Driver>,
}

/// A function that [`front::driver`](super::front::driver) calls.
pub type Driver = unsafe fn(*mut ibv_context) -> *const c_void;

/// A function that [`wait`] calls for a channel of the provider.
pub type Wait = unsafe fn(*mut ibv_comp_channel, &mut [pollfd], Option<Duration>) -> c_int;

impl Provider {
    /// Creates a provider of devices. Functions missing in its table fail with `EOPNOTSUPP` on its objects.
    pub fn new(name: impl Into<String>, ibverbs: IbverbsTable) -> Self {
        Provider { name: name.into(), ibverbs, rdmacm: None, below: None, wait: None, driver: None }
    }

    /// Adds a connection manager for these devices.
    #[must_use]
    pub fn with_rdmacm(mut self, rdmacm: RdmacmTable) -> Self {
        self.rdmacm = Some(rdmacm);
        self
    }

    /// Adds a function that serves the device while a thread waits for completion events. The function behaves as
    /// [`wait`] describes, and is called with the arguments of `wait`.
    #[must_use]
    pub fn with_wait(mut self, wait: Wait) -> Self {
        self.wait = Some(wait);
        self
    }

    /// For a front that replaces functions in contexts: adds a function that returns the address of the driver's
    /// `poll_cq`, or null if the front has not replaced it.
    #[must_use]
    pub fn with_driver(mut self, driver: Driver) -> Self {
        self.driver = Some(driver);
        self
    }

    /// Replaces the provider `below`, whose functions the new provider calls, for example to log calls or to make them
    /// fail. Later device lists, and the choice of a connection manager, use the new provider instead. The new provider
    /// inherits the function of [`with_wait`](Self::with_wait).
    #[must_use]
    pub fn in_front_of(mut self, below: ProviderId) -> Self {
        self.below = Some(below);
        self.wait = self.wait.or(below.0.provider.wait);
        self
    }
}

/// A registered provider, with a link to the next in order of registration.
#[derive(Debug)]
pub struct Registered {
    provider: Provider,
    next: OnceLock<&'static Registered>,
}

impl Registered {
    /// A provider that is not in the list.
    pub(crate) fn unlisted(provider: Provider) -> &'static Self {
        Box::leak(Box::new(Registered { provider, next: OnceLock::new() }))
    }

    pub(crate) fn ibverbs(&'static self) -> &'static IbverbsTable {
        &self.provider.ibverbs
    }

    pub(crate) fn rdmacm(&'static self) -> Option<&'static RdmacmTable> {
        self.provider.rdmacm.as_ref()
    }

    pub(crate) fn driver(&'static self) -> Option<Driver> {
        self.provider.driver
    }

    pub(crate) fn name(&'static self) -> &'static str {
        &self.provider.name
    }
}

static FIRST: OnceLock<&'static Registered> = OnceLock::new();
/// Held while appending to the list. Readers need no lock: a link is set once and never changes.
static APPENDING: Mutex<()> = Mutex::new(());

/// The registered providers, in order.
pub(crate) fn all() -> impl Iterator<Item = &'static Registered> {
    std::iter::successors(FIRST.get().copied(), |registered| registered.next.get().copied())
}

/// The providers that no other provider replaces.
pub(crate) fn listed() -> impl Iterator<Item = &'static Registered> {
    let is_below = |one: &&'static Registered| all().any(|other| other.provider.below == Some(ProviderId(one)));
    all().filter(move |registered| !is_below(registered))
}

/// Registers `provider` in this process. Later device lists include its devices, in order of registration.
///
/// # Errors
///
/// [`RegisterError`] if the name is in use; the error names the provider that has the name.
///
/// # Safety
///
/// Until the process exits, each function of the provider's tables behaves as rdma-core documents for its name, and the
/// provider's devices leave `_ops` unused: the device list and [`ProviderId::stamp`] write to `_ops`.
pub unsafe fn register(provider: Provider) -> Result<ProviderId, RegisterError> {
    let _hold = gate::hold();
    // The lock guards no data, so a poisoned lock is harmless.
    let _appending = APPENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if provider.name == SYSTEM {
        return Err(RegisterError { name: provider.name, holder: None });
    }
    if let Some(holder) = all().find(|registered| registered.provider.name == provider.name) {
        return Err(RegisterError { name: provider.name, holder: Some(ProviderId(holder)) });
    }
    let end = all().last().map_or(&FIRST, |last| &last.next);
    let registered = end.get_or_init(|| Registered::unlisted(provider));
    Ok(ProviderId(registered))
}

/// Waits like `ppoll(2)` until one of the descriptors is ready, or for at most `most`. Returns what `ppoll` returns, with
/// `errno` set if that is -1.
///
/// A thread that waits for completion events calls this function. The descriptors contain that of `channel`, or other
/// descriptors that become readable with it, such as an epoll instance. A provider can do the work of the channel's
/// device on this thread while it waits, so that no other thread must wake up for a completion. If the provider has no
/// function for this purpose, or `channel` is null, this function only calls `ppoll`.
///
/// # Safety
///
/// `channel` is null or a live channel.
pub unsafe fn wait(channel: *mut ibv_comp_channel, descriptors: &mut [pollfd], most: Option<Duration>) -> c_int {
    // SAFETY: the caller upholds the contract.
    match unsafe { channel.owner() } {
        Owner::Provider(Registered { provider: Provider { wait: Some(wait), .. }, .. }) => {
            // SAFETY: as above.
            unsafe { wait(channel, descriptors, most) }
        }
        _ => poll(descriptors, most),
    }
}

/// Calls `ppoll(2)`.
pub fn poll(descriptors: &mut [pollfd], most: Option<Duration>) -> c_int {
    let most = most.map(|most| timespec {
        tv_sec: most.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().cast_signed().into(),
    });
    let most = most.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the slice and the time are live during the call. A null signal mask leaves the mask unchanged.
    unsafe { libc::ppoll(descriptors.as_mut_ptr(), descriptors.len() as nfds_t, most, ptr::null()) }
}

/// A registered provider.
#[derive(Clone, Copy)]
pub struct ProviderId(&'static Registered);

impl ProviderId {
    /// Returns the provider of `device`; `None` for a null pointer and for the system's devices.
    ///
    /// # Safety
    ///
    /// `device` is null or a live device.
    pub unsafe fn of_device(device: *mut ibv_device) -> Option<Self> {
        // SAFETY: the caller upholds the contract.
        Self::of(unsafe { device.owner() })
    }

    /// Returns the provider of `context`; `None` for a null pointer and for the system's contexts.
    ///
    /// # Safety
    ///
    /// `context` is null or a live context.
    pub unsafe fn of_context(context: *mut ibv_context) -> Option<Self> {
        // SAFETY: the caller upholds the contract.
        Self::of(unsafe { context.owner() })
    }

    pub(super) fn of(owner: Owner) -> Option<Self> {
        match owner {
            Owner::Provider(registered) => Some(ProviderId(registered)),
            Owner::System | Owner::Null => None,
        }
    }

    /// Returns the provider registered under `name`.
    pub fn by_name(name: &str) -> Option<Self> {
        all().find(|registered| registered.provider.name == name).map(ProviderId)
    }

    /// Returns the provider's name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Marks `device` as made by this provider, so that verbs on it and on its objects are routed here.
    ///
    /// The functions of this crate mark each device in a device list, and the device of a connection identifier. A
    /// provider calls this for devices that reach a program in other ways.
    ///
    /// # Safety
    ///
    /// `device` is a live device of this provider.
    pub unsafe fn stamp(self, device: *mut ibv_device) {
        // SAFETY: the caller upholds the contract.
        unsafe { stamp(device, self.0) };
    }

    /// Returns the provider's libibverbs functions, for another provider that replaces it.
    pub fn ibverbs(self) -> &'static IbverbsTable {
        self.0.ibverbs()
    }

    /// Returns its librdmacm functions, if it has a connection manager.
    pub fn rdmacm(self) -> Option<&'static RdmacmTable> {
        self.0.rdmacm()
    }

    pub(crate) fn registered(self) -> &'static Registered {
        self.0
    }
}

impl PartialEq for ProviderId {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0)
    }
}

impl Eq for ProviderId {}

impl fmt::Debug for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProviderId").field(&self.name()).finish()
    }
}

/// The name is in use, or reserved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", match .holder {
    Some(_) => format!("a provider named `{name}` is already registered; choose another name"),
    None => format!("`{name}` names the system's libraries; choose another name"),
})]
#[non_exhaustive]
pub struct RegisterError {
    /// The name.
    pub name: String,
    /// The provider that has it; `None` for [`SYSTEM`], which is reserved.
    pub holder: Option<ProviderId>,
}
