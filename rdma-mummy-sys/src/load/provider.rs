//! Providers in this process: NICs in software and the like, beside the libraries of the system.
//!
//! A provider is a table of functions, just as what a library holds is. Once registered, its devices stand in the list
//! of `ibv_get_device_list` after those of the system, and each verb on an object goes to the provider that made the
//! object.
//!
//! A provider cannot be unregistered: its devices, and every object made from them, hold pointers to its functions, and
//! nothing counts them.

use std::fmt;
use std::sync::{Mutex, OnceLock, PoisonError};

use super::gate;
use super::ibverbs::IbverbsTable;
use super::rdmacm::RdmacmTable;
use super::route::{Owner, Routed, stamp};
use crate::bindings::verbs::{ibv_context, ibv_device};

/// The name by which the libraries of the system are chosen; no provider can have it.
pub const SYSTEM: &str = "system";

/// A provider to register.
#[derive(Debug, Clone)]
pub struct Provider {
    name: String,
    ibverbs: IbverbsTable,
    rdmacm: Option<RdmacmTable>,
    below: Option<ProviderId>,
}

impl Provider {
    /// A provider of devices. What its table leaves out fails with `EOPNOTSUPP` on its objects.
    pub fn new(name: impl Into<String>, ibverbs: IbverbsTable) -> Self {
        Provider { name: name.into(), ibverbs, rdmacm: None, below: None }
    }

    /// Adds a connection manager for these devices.
    #[must_use]
    pub fn with_rdmacm(mut self, rdmacm: RdmacmTable) -> Self {
        self.rdmacm = Some(rdmacm);
        self
    }

    /// Puts the provider in the place of another one, whose functions it calls: lists made from now on, and the choice of a
    /// connection manager, have this one instead. For logging, or for making calls fail.
    #[must_use]
    pub fn in_front_of(mut self, below: ProviderId) -> Self {
        self.below = Some(below);
        self
    }
}

/// A provider that is registered, with the next one in the order of registration.
#[derive(Debug)]
pub struct Registered {
    provider: Provider,
    next: OnceLock<&'static Registered>,
}

impl Registered {
    pub(crate) fn ibverbs(&'static self) -> &'static IbverbsTable {
        &self.provider.ibverbs
    }

    pub(crate) fn rdmacm(&'static self) -> Option<&'static RdmacmTable> {
        self.provider.rdmacm.as_ref()
    }

    pub(crate) fn name(&'static self) -> &'static str {
        &self.provider.name
    }
}

static FIRST: OnceLock<&'static Registered> = OnceLock::new();
/// Held by whoever appends to the list. Readers need no lock: a link is set once and never changes.
static APPENDING: Mutex<()> = Mutex::new(());

/// The registered providers, in order.
pub(crate) fn all() -> impl Iterator<Item = &'static Registered> {
    std::iter::successors(FIRST.get().copied(), |registered| registered.next.get().copied())
}

/// Those that no other stands in front of.
pub(crate) fn listed() -> impl Iterator<Item = &'static Registered> {
    let is_below = |one: &&'static Registered| all().any(|other| other.provider.below == Some(ProviderId(one)));
    all().filter(move |registered| !is_below(registered))
}

/// Adds `provider` to those of this process. Device lists made from now on have its devices, in the order of
/// registration.
///
/// # Errors
///
/// [`RegisterError`] when the name is taken already; it tells by whom.
///
/// # Safety
///
/// Each function of its tables does what rdma-core documents for its name, for as long as the process runs. Its devices
/// leave `_ops` alone, which the list and [`ProviderId::stamp`] write to.
pub unsafe fn register(provider: Provider) -> Result<ProviderId, RegisterError> {
    let _hold = gate::hold();
    // The lock guards no data of its own, so that a thread which panicked with it held has broken nothing.
    let _appending = APPENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if provider.name == SYSTEM {
        return Err(RegisterError { name: provider.name, holder: None });
    }
    if let Some(holder) = all().find(|registered| registered.provider.name == provider.name) {
        return Err(RegisterError { name: provider.name, holder: Some(ProviderId(holder)) });
    }
    let end = all().last().map_or(&FIRST, |last| &last.next);
    let registered = end.get_or_init(|| Box::leak(Box::new(Registered { provider, next: OnceLock::new() })));
    Ok(ProviderId(registered))
}

/// A registered provider.
#[derive(Clone, Copy)]
pub struct ProviderId(&'static Registered);

impl ProviderId {
    /// The provider that made `device`; `None` for a null pointer and for devices of the system.
    ///
    /// # Safety
    ///
    /// `device` is null or a live device.
    pub unsafe fn of_device(device: *mut ibv_device) -> Option<Self> {
        // SAFETY: passed on to the caller.
        Self::of(unsafe { device.owner() })
    }

    /// The provider that made `context`; `None` for a null pointer and for contexts of the system.
    ///
    /// # Safety
    ///
    /// `context` is null or a live context.
    pub unsafe fn of_context(context: *mut ibv_context) -> Option<Self> {
        // SAFETY: passed on to the caller.
        Self::of(unsafe { context.owner() })
    }

    pub(super) fn of(owner: Owner) -> Option<Self> {
        match owner {
            Owner::Provider(registered) => Some(ProviderId(registered)),
            Owner::System | Owner::Nobody => None,
        }
    }

    /// The provider registered under `name`.
    pub fn by_name(name: &str) -> Option<Self> {
        all().find(|registered| registered.provider.name == name).map(ProviderId)
    }

    /// The name it was registered under.
    pub fn name(self) -> &'static str {
        self.0.name()
    }

    /// Marks `device` as made by this provider, so that verbs on it and on what is made from it come here.
    ///
    /// The functions of this crate do that to each device that they hand out: those of a device list, and those that a
    /// connection identifier is bound to. A provider calls it for devices that reach a program in other ways.
    ///
    /// # Safety
    ///
    /// `device` is a live device which this provider made.
    pub unsafe fn stamp(self, device: *mut ibv_device) {
        // SAFETY: passed on to the caller.
        unsafe { stamp(device, self.0) };
    }

    /// Its functions of libibverbs, for a provider that stands in front of it.
    pub fn ibverbs(self) -> &'static IbverbsTable {
        self.0.ibverbs()
    }

    /// Its functions of librdmacm, if it has a connection manager.
    pub fn rdmacm(self) -> Option<&'static RdmacmTable> {
        self.0.rdmacm()
    }

    pub(crate) fn registered(self) -> &'static Registered {
        self.0
    }
}

impl PartialEq for ProviderId {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for ProviderId {}

impl fmt::Debug for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ProviderId").field(&self.name()).finish()
    }
}

/// The name of the provider is taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", match .holder {
    Some(_) => format!("a provider named `{name}` is registered already"),
    None => format!("no provider can be named `{name}`: that is the name of the system's libraries"),
})]
#[non_exhaustive]
pub struct RegisterError {
    /// The name.
    pub name: String,
    /// Who has it; `None` if it is [`SYSTEM`], which nobody can have.
    pub holder: Option<ProviderId>,
}
