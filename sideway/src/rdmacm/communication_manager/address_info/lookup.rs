//! `rdma_getaddrinfo`: from names to addresses.

use std::borrow::Cow;
use std::ffi::{CStr, CString};
use std::fmt;
use std::net::Ipv6Addr;
use std::ptr::{self, NonNull};

use libc::{c_char, c_int};
use rdma_mummy_sys as sys;
use rdma_mummy_sys::rdma_addrinfo;

use super::raw::{List, check_families};
use super::{AddressInfo, AddressInfoFlags};
use crate::error::{Errno, VerbError};
use crate::ffi::{check_pointer, clear_errno, last_errno};
use crate::rdmacm::communication_manager::AddressFamily;

/// `rdma_getaddrinfo(node, service, hints, res)` — the addresses of a name, with what can be connected there: one, or more where
/// the service ibacm runs. `node` is the name of a host or an address, `service` the name of a service or a port; one of them
/// is left out, or both where the hints have addresses. Waits for the name service as long as that takes, unless the hints say
/// [`NumericHost`](AddressInfoFlags::NumericHost).
///
/// What C gives is copied, and freed (`rdma_freeaddrinfo`).
///
/// ```no_run
/// use sideway::rdmacm::communication_manager::{AddressInfo, EventChannel, getaddrinfo};
///
/// let found = getaddrinfo(Some("storage-7"), Some("7471"), &AddressInfo::new())?;
/// let id = EventChannel::new()?.create_ep(&found[0])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// - [`GetAddressInfoError::Lookup`]: the name service does not know the node or the service, or did not answer.
/// - [`GetAddressInfoError::Verb`] otherwise: `EINVAL` where too little is given, a name has a NUL in it, or the hints do not fit
///   each other; `ENODEV` where there is no RDMA device; `ENOMEM`.
///
/// # References
///
/// [rdma_getaddrinfo(3)](https://man7.org/linux/man-pages/man3/rdma_getaddrinfo.3.html)
#[doc(alias = "rdma_getaddrinfo")]
#[doc(alias = "rdma_freeaddrinfo")]
pub fn getaddrinfo(
    node: Option<&str>,
    service: Option<&str>,
    hints: &AddressInfo,
) -> Result<Vec<AddressInfo>, GetAddressInfoError> {
    let lookup = Lookup::new("rdma_getaddrinfo", node, service, hints)?;
    let mut list = ptr::null_mut();
    // SAFETY: names and hints can be read for the whole call, and `list` is there to be written.
    lookup.run(|node, service, hints| unsafe { sys::rdma_getaddrinfo(node, service, hints, &mut list) })?;
    clear_errno();
    let list = check_pointer(lookup.verb, list)?;
    // SAFETY: given just now.
    Ok(unsafe { List::new(list) }.copy())
}

/// A lookup that the library can be asked for.
pub(in crate::rdmacm::communication_manager) struct Lookup<'a> {
    verb: &'static str,
    node: Option<CString>,
    service: Option<CString>,
    hints: &'a AddressInfo,
}

impl<'a> Lookup<'a> {
    /// # Errors
    ///
    /// `EINVAL`: a NUL in a name; or something that the library does not survive.
    pub(in crate::rdmacm::communication_manager) fn new(
        verb: &'static str,
        node: Option<&str>,
        service: Option<&str>,
        hints: &'a AddressInfo,
    ) -> Result<Self, VerbError> {
        check_families(verb, hints)?;
        if !hints.flags().contains(AddressInfoFlags::SubnetAdministrator) {
            check_node(verb, node, service, hints)?;
        }
        let text = |what, text: Option<&str>| {
            text.map(CString::new).transpose().map_err(|error| {
                let place = error.nul_position();
                VerbError::invalid(verb, format!("the {what} has a NUL at byte {place}"))
            })
        };
        Ok(Self { verb, node: text("node", node)?, service: text("service", service)?, hints })
    }

    /// Asks the library.
    ///
    /// # Errors
    ///
    /// What it gave: -1 and an errno, a code of `getaddrinfo(3)`, or -1 and such a code for an errno.
    pub(in crate::rdmacm::communication_manager) fn run(
        &self,
        call: impl FnOnce(*const c_char, *const c_char, *const rdma_addrinfo) -> c_int,
    ) -> Result<(), GetAddressInfoError> {
        let pointer = |text: &Option<CString>| text.as_ref().map_or(ptr::null(), |text| text.as_ptr());
        clear_errno();
        match self.hints.with_raw(|hints| call(pointer(&self.node), pointer(&self.service), hints)) {
            0 => Ok(()),
            -1 => Err(self.error(last_errno().raw())),
            code => Err(self.error(code)),
        }
    }

    #[cold]
    fn error(&self, code: c_int) -> GetAddressInfoError {
        if code < 0 {
            let [node, service] = [&self.node, &self.service].map(|text| {
                // They were text.
                text.as_ref().map(|text| text.to_string_lossy().into())
            });
            return GetAddressInfoError::Lookup(LookupError { verb: self.verb, code, node, service });
        }
        let error = VerbError::new(self.verb, Errno::from_raw(code));
        let names = Names(self.node.as_deref(), self.service.as_deref());
        GetAddressInfoError::Verb(match code {
            libc::EOPNOTSUPP if self.verb != "rdma_getaddrinfo" => {
                error.with_hint("librdmacm is older than RDMACM_1.4: use getaddrinfo, which waits")
            }
            libc::EOPNOTSUPP => error.with_hint("librdmacm is not there: see EventChannel::new"),
            libc::ENODEV => error.with_hint("there is no RDMA device"),
            _ => error.with_hint(format!("looking for {names}")),
        })
    }
}

/// What the library does not survive.
fn check_node(
    verb: &'static str,
    node: Option<&str>,
    service: Option<&str>,
    hints: &AddressInfo,
) -> Result<(), VerbError> {
    let known = if hints.is_passive() { hints.source() } else { hints.destination() };
    if node.is_none() && service.is_none() && known.is_none() {
        return Err(VerbError::invalid(
            verb,
            match hints.is_passive() {
                true => "neither node nor service is given, and the hints have no source",
                false => "neither node nor service is given, and the hints have no destination",
            },
        ));
    }
    let wants_gid = hints.family() == AddressFamily::InfiniBand
        && hints.flags().contains(AddressInfoFlags::Family | AddressInfoFlags::NumericHost);
    // The library takes what it finds to be an address of IPv6, and reads it to that length.
    let is_gid = |node: &str| node.split('%').next().is_some_and(|node| node.parse::<Ipv6Addr>().is_ok());
    if wants_gid && (node.is_some() || service.is_some()) && !node.is_some_and(is_gid) {
        return Err(VerbError::invalid(
            verb,
            match node {
                Some(node) => format!("{node:?} is no GID: it is written as an address of IPv6"),
                None => "no node is given: it is a GID, written as an address of IPv6".to_owned(),
            },
        ));
    }
    Ok(())
}

/// Why there is no address.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GetAddressInfoError {
    /// The name service says no, or nothing.
    #[error(transparent)]
    Lookup(LookupError),
    /// The library says no.
    #[error(transparent)]
    Verb(#[from] VerbError),
}

/// A failure of `getaddrinfo(3)`.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{verb}: {}: {}", text(*.code), Names(.node.as_deref(), .service.as_deref()))]
pub struct LookupError {
    verb: &'static str,
    code: c_int,
    node: Option<Box<str>>,
    service: Option<Box<str>>,
}

crate::error::debug_is_text!(GetAddressInfoError, LookupError);

impl LookupError {
    /// The code, such as [`libc::EAI_NONAME`].
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Whether the name service did not answer, so that another attempt may help.
    pub fn is_temporary(&self) -> bool {
        self.code == libc::EAI_AGAIN
    }

    /// The node that was looked for.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// The service that was looked for.
    pub fn service(&self) -> Option<&str> {
        self.service.as_deref()
    }
}

/// What `getaddrinfo(3)` says of a code.
fn text(code: c_int) -> Cow<'static, str> {
    // SAFETY: the function takes any number, and gives a text that ends and stays.
    NonNull::new(unsafe { libc::gai_strerror(code) }.cast_mut())
        .map_or(c"unknown error", |text| unsafe { CStr::from_ptr(text.as_ptr()) })
        .to_string_lossy()
}

/// `node "nowhere", service "7471"`.
struct Names<T>(Option<T>, Option<T>);

impl<T: fmt::Debug> fmt::Display for Names<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(Some(node), Some(service)) => write!(f, "node {node:?}, service {service:?}"),
            Self(Some(node), None) => write!(f, "node {node:?}"),
            Self(None, Some(service)) => write!(f, "service {service:?}"),
            Self(None, None) => f.write_str("the addresses of the hints"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmacm::communication_manager::InfiniBandAddress;

    const VERB: &str = "rdma_getaddrinfo";

    /// What a lookup gives where C returns `code` with this errno.
    fn given(code: c_int, errno: c_int) -> GetAddressInfoError {
        let hints = AddressInfo::new();
        let lookup = Lookup::new(VERB, Some("host"), Some("7471"), &hints).unwrap();
        let answer = lookup.run(|node, service, hints| {
            // SAFETY: both are strings that end, and the hints can be read.
            unsafe {
                assert_eq!((CStr::from_ptr(node), CStr::from_ptr(service)), (c"host", c"7471"));
                assert_eq!((*hints).ai_flags, 0);
                *libc::__errno_location() = errno;
            }
            code
        });
        answer.unwrap_err()
    }

    fn refused(node: Option<&str>, service: Option<&str>, hints: &AddressInfo) -> String {
        match Lookup::new(VERB, node, service, hints) {
            Ok(_) => panic!("it is asked for"),
            Err(error) => error.hint().unwrap().to_owned(),
        }
    }

    #[test]
    fn a_code_of_the_name_service_is_told_from_an_errno() {
        let errno = |error| match error {
            GetAddressInfoError::Verb(error) => error.errno().raw(),
            GetAddressInfoError::Lookup(error) => panic!("{error}"),
        };
        let code = |error| match error {
            GetAddressInfoError::Verb(error) => panic!("{error}"),
            GetAddressInfoError::Lookup(error) => {
                assert_eq!((error.node(), error.service()), (Some("host"), Some("7471")));
                (error.code(), error.is_temporary())
            }
        };
        assert_eq!(errno(given(-1, libc::ENOMEM)), libc::ENOMEM);
        assert_eq!(errno(given(libc::ENOMEM, 0)), libc::ENOMEM);
        assert_eq!(errno(given(-1, 0)), libc::EIO);
        // As librdmacm gives them, and as its manual page has it.
        assert_eq!(code(given(-1, libc::EAI_NONAME)), (libc::EAI_NONAME, false));
        assert_eq!(code(given(libc::EAI_AGAIN, 0)), (libc::EAI_AGAIN, true));
        let GetAddressInfoError::Verb(error) = given(-1, libc::ENXIO) else { panic!("it is an errno") };
        assert_eq!(error.hint(), Some("looking for node \"host\", service \"7471\""));
    }

    #[test]
    #[cfg_attr(miri, ignore = "asks the C library for the text")]
    fn a_failed_lookup_names_what_was_looked_for() {
        let text = given(-1, libc::EAI_NONAME).to_string();
        assert!(
            text.starts_with("rdma_getaddrinfo: ") && text.ends_with(": node \"host\", service \"7471\""),
            "{text}"
        );
        assert!(!given(c_int::MIN, 0).to_string().is_empty());
    }

    #[test]
    fn a_nul_in_a_name_is_refused() {
        let hints = AddressInfo::new();
        assert_eq!(refused(Some("a\0b"), None, &hints), "the node has a NUL at byte 1");
        assert_eq!(refused(Some("a"), Some("\0"), &hints), "the service has a NUL at byte 0");
    }

    #[test]
    fn nothing_to_look_for_is_refused() {
        let mut hints = AddressInfo::new();
        assert!(refused(None, None, &hints).contains("no destination"));
        hints.setup_flags(AddressInfoFlags::Passive);
        assert!(refused(None, None, &hints).contains("no source"));
        Lookup::new(VERB, None, Some("1"), &hints).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn an_address_of_infiniband_is_looked_up_as_a_gid() {
        let mut hints = AddressInfo::new();
        hints.setup_family(AddressFamily::InfiniBand);
        hints.setup_flags(AddressInfoFlags::Family | AddressInfoFlags::NumericHost);
        assert!(refused(Some("192.0.2.1"), None, &hints).contains("no GID"));
        assert!(refused(None, Some("7471"), &hints).contains("no node is given"));
        for gid in ["fe80::1", "fe80::1%eth0"] {
            Lookup::new(VERB, Some(gid), Some("7471"), &hints).unwrap_or_else(|error| panic!("{error}"));
        }
        hints.setup_destination(InfiniBandAddress::new("fe80::1".parse().unwrap()));
        Lookup::new(VERB, None, None, &hints).unwrap_or_else(|error| panic!("{error}"));
    }
}
