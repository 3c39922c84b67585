//! Looking up names with `rdma_getaddrinfo`.

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

/// `rdma_getaddrinfo(node, service, hints, res)` — looks up the addresses of a name, with the parameters for
/// connecting. There is one result, or several results if the service ibacm is running.
///
/// `node` is a host name or an address, and `service` is a service name or a port. One of them may be `None`. Both may
/// be `None` if the hints contain addresses. The call waits for the name service without a time limit, unless the hints
/// contain [`NumericHost`](AddressInfoFlags::NumericHost).
///
/// The C results are copied and freed (`rdma_freeaddrinfo`).
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
/// - [`GetAddressInfoError::Lookup`]: the name service has no such node or service, or did not respond.
/// - [`GetAddressInfoError::Verb`] otherwise: with `EINVAL` if there is nothing to look up, if a name contains a NUL,
///   or if the hints contradict each other; with `ENODEV` if there is no RDMA device; with `ENOMEM` if memory is
///   exhausted.
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
    // SAFETY: the names and the hints are readable during the call, and the call may write to `list`.
    lookup.run(|node, service, hints| unsafe { sys::rdma_getaddrinfo(node, service, hints, &mut list) })?;
    clear_errno();
    let list = check_pointer(lookup.verb, list)?;
    // SAFETY: the library has just returned this list.
    Ok(unsafe { List::new(list) }.copy())
}

/// A lookup whose arguments were checked.
pub(in crate::rdmacm::communication_manager) struct Lookup<'a> {
    verb: &'static str,
    node: Option<CString>,
    service: Option<CString>,
    hints: &'a AddressInfo,
}

impl<'a> Lookup<'a> {
    /// # Errors
    ///
    /// Returns `EINVAL` if a name contains a NUL, or if the library would crash with these arguments.
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
                VerbError::invalid(verb, format!("the {what} contains a NUL at byte {place}; remove it"))
            })
        };
        Ok(Self { verb, node: text("node", node)?, service: text("service", service)?, hints })
    }

    /// Runs the lookup with a library function.
    ///
    /// # Errors
    ///
    /// Returns the error that the function reports. This is -1 with an errno, a code of `getaddrinfo(3)`, or -1 with
    /// such a code in errno.
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
                // The name was created from text, so no character is lost.
                text.as_ref().map(|text| text.to_string_lossy().into())
            });
            return GetAddressInfoError::Lookup(LookupError { verb: self.verb, code, node, service });
        }
        let error = VerbError::new(self.verb, Errno::from_raw(code));
        let names = Names(self.node.as_deref(), self.service.as_deref());
        GetAddressInfoError::Verb(match code {
            libc::EOPNOTSUPP if self.verb != "rdma_getaddrinfo" => {
                error.with_hint("librdmacm is older than RDMACM_1.4; use getaddrinfo, which waits")
            }
            libc::EOPNOTSUPP => error.with_hint("librdmacm is not loaded; EventChannel::new reports why"),
            libc::ENODEV => error.with_hint("there is no RDMA device; check with `rdma link`"),
            _ => error.with_hint(format!("looking up {names}")),
        })
    }
}

/// Refuses arguments with which the library would crash.
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
                true => "there is neither a node nor a service, and the hints have no source; set one of them",
                false => "there is neither a node nor a service, and the hints have no destination; set one of them",
            },
        ));
    }
    let wants_gid = hints.family() == AddressFamily::InfiniBand
        && hints.flags().contains(AddressInfoFlags::Family | AddressInfoFlags::NumericHost);
    // The library assumes that the result of the lookup is an IPv6 address, and reads as many bytes.
    let is_gid = |node: &str| node.split('%').next().is_some_and(|node| node.parse::<Ipv6Addr>().is_ok());
    if wants_gid && (node.is_some() || service.is_some()) && !node.is_some_and(is_gid) {
        return Err(VerbError::invalid(
            verb,
            match node {
                Some(node) => format!("{node:?} is no GID; write it like an IPv6 address"),
                None => "there is no node; pass a GID, written like an IPv6 address".to_owned(),
            },
        ));
    }
    Ok(())
}

/// An error of a lookup.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GetAddressInfoError {
    /// The name service reported an error or did not respond.
    #[error(transparent)]
    Lookup(LookupError),
    /// The library reported an error.
    #[error(transparent)]
    Verb(#[from] VerbError),
}

/// An error of `getaddrinfo(3)`.
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
    /// Returns the code, such as [`libc::EAI_NONAME`].
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Whether the name service did not respond, so another attempt may succeed.
    pub fn is_temporary(&self) -> bool {
        self.code == libc::EAI_AGAIN
    }

    /// Returns the node of the lookup.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    /// Returns the service of the lookup.
    pub fn service(&self) -> Option<&str> {
        self.service.as_deref()
    }
}

/// Returns the text of `gai_strerror(3)` for a code.
fn text(code: c_int) -> Cow<'static, str> {
    // SAFETY: the function accepts any number, and returns a static C string.
    NonNull::new(unsafe { libc::gai_strerror(code) }.cast_mut())
        .map_or(c"unknown error", |text| unsafe { CStr::from_ptr(text.as_ptr()) })
        .to_string_lossy()
}

/// Formats the names of a lookup, such as `node "nowhere", service "7471"`.
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

    /// Returns the error of a lookup for which C returns `code` with this errno.
    fn given(code: c_int, errno: c_int) -> GetAddressInfoError {
        let hints = AddressInfo::new();
        let lookup = Lookup::new(VERB, Some("host"), Some("7471"), &hints).unwrap();
        let answer = lookup.run(|node, service, hints| {
            // SAFETY: both names are C strings, and the hints are readable.
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
            Ok(_) => panic!("the function is called"),
            Err(error) => error.hint().unwrap().to_owned(),
        }
    }

    #[test]
    fn name_service_code_and_errno_are_distinguished() {
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
        // The first line tests the form that librdmacm returns, and the next one the form that its manual page
        // documents.
        assert_eq!(code(given(-1, libc::EAI_NONAME)), (libc::EAI_NONAME, false));
        assert_eq!(code(given(libc::EAI_AGAIN, 0)), (libc::EAI_AGAIN, true));
        let GetAddressInfoError::Verb(error) = given(-1, libc::ENXIO) else { panic!("an errno") };
        assert_eq!(error.hint(), Some("looking up node \"host\", service \"7471\""));
    }

    #[test]
    #[cfg_attr(miri, ignore = "gai_strerror returns the text")]
    fn failed_lookup_text_has_node_and_service() {
        let text = given(-1, libc::EAI_NONAME).to_string();
        assert!(
            text.starts_with("rdma_getaddrinfo: ") && text.ends_with(": node \"host\", service \"7471\""),
            "{text}"
        );
        assert!(!given(c_int::MIN, 0).to_string().is_empty());
    }

    #[test]
    fn nul_in_name_is_refused() {
        let hints = AddressInfo::new();
        assert_eq!(refused(Some("a\0b"), None, &hints), "the node contains a NUL at byte 1; remove it");
        assert_eq!(refused(Some("a"), Some("\0"), &hints), "the service contains a NUL at byte 0; remove it");
    }

    #[test]
    fn empty_lookup_is_refused() {
        let mut hints = AddressInfo::new();
        assert!(refused(None, None, &hints).contains("no destination"));
        hints.setup_flags(AddressInfoFlags::Passive);
        assert!(refused(None, None, &hints).contains("no source"));
        Lookup::new(VERB, None, Some("1"), &hints).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn infiniband_lookup_requires_gid() {
        let mut hints = AddressInfo::new();
        hints.setup_family(AddressFamily::InfiniBand);
        hints.setup_flags(AddressInfoFlags::Family | AddressInfoFlags::NumericHost);
        assert!(refused(Some("192.0.2.1"), None, &hints).contains("no GID"));
        assert!(refused(None, Some("7471"), &hints).contains("there is no node"));
        for gid in ["fe80::1", "fe80::1%eth0"] {
            Lookup::new(VERB, Some(gid), Some("7471"), &hints).unwrap_or_else(|error| panic!("{error}"));
        }
        hints.setup_destination(InfiniBandAddress::new("fe80::1".parse().unwrap()));
        Lookup::new(VERB, None, None, &hints).unwrap_or_else(|error| panic!("{error}"));
    }
}
