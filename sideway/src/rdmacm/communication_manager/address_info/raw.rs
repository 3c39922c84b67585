//! Address information in C form.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};

use libc::socklen_t;
use rdma_mummy_sys as sys;
use rdma_mummy_sys::rdma_addrinfo;

use super::{AddressInfo, AddressInfoFlags};
use crate::error::VerbError;
use crate::ibverbs::queue_pair::QueuePairType;
use crate::rdmacm::communication_manager::socket_address::{self, RawAddress};
use crate::rdmacm::communication_manager::{Address, AddressFamily, PortSpace};

impl AddressInfo {
    /// Runs `call` with the C struct, which is a list of one element. It is readable during the call. The two names are
    /// omitted.
    pub(in crate::rdmacm::communication_manager) fn with_raw<R>(
        &self,
        call: impl FnOnce(*mut rdma_addrinfo) -> R,
    ) -> R {
        let mut source = self.source.map(RawAddress::from);
        let mut destination = self.destination.map(RawAddress::from);
        let (ai_src_addr, ai_src_len) = parts(source.as_mut());
        let (ai_dst_addr, ai_dst_len) = parts(destination.as_mut());
        let mut raw = rdma_addrinfo {
            ai_flags: self.flags.bits() as c_int,
            ai_family: self.family().raw() as c_int,
            ai_qp_type: self.qp_type.map_or(0, QueuePairType::raw) as c_int,
            ai_port_space: self.port_space.map_or(0, PortSpace::raw) as c_int,
            ai_src_len,
            ai_dst_len,
            ai_src_addr,
            ai_dst_addr,
            ai_src_canonname: ptr::null_mut(),
            ai_dst_canonname: ptr::null_mut(),
            ai_route_len: self.route.len(),
            ai_route: bytes(&self.route),
            ai_connect_len: self.connect_data.len(),
            ai_connect: bytes(&self.connect_data),
            ai_next: ptr::null_mut(),
        };
        call(&mut raw)
    }

    /// # Safety
    ///
    /// Each pointer of `raw` is null, or points to as many readable bytes as its length field states. The names are C
    /// strings.
    unsafe fn copy(raw: &rdma_addrinfo) -> Self {
        let non_zero = |value: c_int| (value != 0).then_some(value as u32);
        // SAFETY: the caller upholds the contract of this function.
        unsafe {
            Self {
                flags: AddressInfoFlags::from_bits_retain(raw.ai_flags as u32),
                family: non_zero(raw.ai_family).map(AddressFamily::from_raw),
                qp_type: non_zero(raw.ai_qp_type).map(QueuePairType::from_raw),
                port_space: non_zero(raw.ai_port_space).map(PortSpace::from_raw),
                source: socket_address::read(raw.ai_src_addr, raw.ai_src_len as usize),
                destination: socket_address::read(raw.ai_dst_addr, raw.ai_dst_len as usize),
                source_name: copy_name(raw.ai_src_canonname),
                destination_name: copy_name(raw.ai_dst_canonname),
                route: copy_bytes(raw.ai_route, raw.ai_route_len),
                connect_data: copy_bytes(raw.ai_connect, raw.ai_connect_len),
            }
        }
    }
}

fn parts(address: Option<&mut RawAddress>) -> (*mut libc::sockaddr, socklen_t) {
    // An address has at most 48 bytes.
    address.map_or((ptr::null_mut(), 0), |address| (address.as_mut_ptr(), address.length() as socklen_t))
}

/// Returns a pointer for C. C takes it as a mutable pointer but does not write to it.
fn bytes(bytes: &[u8]) -> *mut c_void {
    if bytes.is_empty() { ptr::null_mut() } else { bytes.as_ptr().cast_mut().cast() }
}

/// # Safety
///
/// `name` is null, or a C string.
unsafe fn copy_name(name: *const c_char) -> Option<CString> {
    // SAFETY: the caller upholds the contract of this function.
    (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned())
}

/// # Safety
///
/// `data` is null, or `length` bytes can be read at `data`.
unsafe fn copy_bytes(data: *const c_void, length: usize) -> Vec<u8> {
    if data.is_null() || length == 0 {
        return Vec::new();
    }
    // SAFETY: this follows from the contract of this function. Readable memory is not longer than a slice may be.
    unsafe { std::slice::from_raw_parts(data.cast::<u8>(), length) }.to_vec()
}

/// A list that the library returned.
pub(in crate::rdmacm::communication_manager) struct List(NonNull<rdma_addrinfo>);

impl List {
    /// # Safety
    ///
    /// `raw` was just returned by `rdma_getaddrinfo` or `rdma_query_addrinfo`, and is not shared.
    pub(in crate::rdmacm::communication_manager) unsafe fn new(raw: NonNull<rdma_addrinfo>) -> Self {
        Self(raw)
    }

    /// Copies all elements.
    pub(in crate::rdmacm::communication_manager) fn copy(&self) -> Vec<AddressInfo> {
        // SAFETY: by the contract of `new`, the elements are live until the list is freed, and their length fields are
        // correct for their pointers.
        let elements = std::iter::successors(Some(unsafe { self.0.as_ref() }), |raw| unsafe { raw.ai_next.as_ref() });
        // SAFETY: as above.
        elements.map(|raw| unsafe { AddressInfo::copy(raw) }).collect()
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: this object owns the list, and frees it once.
        unsafe { sys::rdma_freeaddrinfo(self.0.as_ptr()) };
    }
}

/// Refuses addresses of another family than that of the information, because the library would read beyond their end.
pub(in crate::rdmacm::communication_manager) fn check_families(
    verb: &'static str,
    info: &AddressInfo,
) -> Result<(), VerbError> {
    let odd = |address: &Address| info.family() != address.family();
    match info.source.filter(odd).or(info.destination.filter(odd)) {
        None => Ok(()),
        Some(address) => Err(VerbError::invalid(
            verb,
            format!("the address {address} is {}, and the rest is {}; use one family", address.family(), info.family()),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdmacm::communication_manager::InfiniBandAddress;

    /// Returns information with all fields set.
    fn whole() -> AddressInfo {
        let mut info = AddressInfo::new();
        info.setup_flags(AddressInfoFlags::NoRoute | AddressInfoFlags::from_bits_retain(1 << 30));
        info.setup_qp_type(QueuePairType::ReliableConnection).setup_port_space(PortSpace::Tcp);
        info.setup_source("192.0.2.1:0".parse::<std::net::SocketAddr>().unwrap());
        info.setup_destination("192.0.2.2:7471".parse::<std::net::SocketAddr>().unwrap());
        info.setup_family(AddressFamily::Ipv4).setup_connect_data(b"before");
        info.route = vec![1, 2, 3];
        info
    }

    fn copied(change: impl FnOnce(&mut rdma_addrinfo)) -> AddressInfo {
        whole().with_raw(|raw| {
            // SAFETY: the struct is readable and writable. The changes below only set pointers to null and shorten
            // lengths, so pointers and lengths stay valid.
            unsafe {
                change(&mut *raw);
                AddressInfo::copy(&*raw)
            }
        })
    }

    #[test]
    fn address_info_survives_round_trip() {
        assert_eq!(copied(|_| {}), whole());
        let mut info = AddressInfo::new();
        info.setup_destination(InfiniBandAddress::new("fe80::7".parse().unwrap()));
        info.with_raw(|raw| {
            // SAFETY: it is readable.
            let raw = unsafe { &*raw };
            assert_eq!((raw.ai_family, raw.ai_dst_len, raw.ai_src_len), (libc::AF_IB, 48, 0));
            assert!(raw.ai_src_addr.is_null() && raw.ai_route.is_null() && raw.ai_connect.is_null());
        });
    }

    #[test]
    fn null_pointers_are_absent_at_any_length() {
        let info = copied(|raw| {
            (raw.ai_src_addr, raw.ai_dst_addr) = (ptr::null_mut(), ptr::null_mut());
            (raw.ai_route, raw.ai_connect) = (ptr::null_mut(), ptr::null_mut());
            (raw.ai_route_len, raw.ai_connect_len) = (usize::MAX, 7);
            (raw.ai_src_len, raw.ai_dst_len) = (16, u32::MAX);
        });
        assert_eq!((info.source(), info.destination()), (None, None));
        assert_eq!((info.route(), info.connect_data()), (&b""[..], &b""[..]));
        assert_eq!((info.source_name(), info.destination_name()), (None, None));
    }

    #[test]
    fn truncated_or_unknown_address_is_none() {
        for length in [0, 1, 2, 15] {
            assert_eq!(copied(|raw| raw.ai_dst_len = length).destination(), None, "{length} bytes");
        }
        let info = copied(|raw| {
            // SAFETY: the address is writable.
            unsafe { (*raw.ai_src_addr).sa_family = 77 };
            raw.ai_family = 77;
        });
        assert_eq!((info.source(), info.family()), (None, AddressFamily::from_raw(77)));
    }

    #[test]
    fn unknown_values_pass_through() {
        let info = copied(|raw| (raw.ai_qp_type, raw.ai_port_space, raw.ai_flags) = (-1, 0x7777, -1));
        assert_eq!(info.qp_type(), Some(QueuePairType::from_raw(u32::MAX)));
        assert_eq!(info.port_space(), Some(PortSpace::from_raw(0x7777)));
        assert_eq!(info.flags().bits(), u32::MAX);
        assert!(info.is_passive());
        let info = copied(|raw| (raw.ai_qp_type, raw.ai_port_space) = (0, 0));
        assert_eq!((info.qp_type(), info.port_space()), (None, None));
    }

    #[test]
    fn names_need_not_be_utf_8() {
        let info = copied(|raw| raw.ai_dst_canonname = c"host\xff".as_ptr().cast_mut());
        assert_eq!(info.destination_name(), Some(c"host\xff"));
    }

    #[test]
    fn mixed_address_families_are_refused() {
        check_families("verb", &whole()).unwrap();
        let mut info = whole();
        info.setup_source("[::1]:0".parse::<std::net::SocketAddr>().unwrap());
        let error = check_families("verb", &info).unwrap_err();
        assert_eq!(error.hint(), Some("the address [::1]:0 is IPv6, and the rest is IPv4; use one family"));
        let error = check_families("verb", info.setup_family(AddressFamily::Unspecified)).unwrap_err();
        assert!(error.hint().unwrap().contains("the address [::1]:0"), "{error}");
    }
}
