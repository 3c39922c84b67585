//! The files of an RDMA device in `/dev` and `/sys`, for programs that read these files in addition to using the C API.

use std::ffi::{CStr, c_char};

use super::device;
use super::gid;
use super::port::PORT;

/// Whether the path is that of the character device of a soft device, `/dev/infiniband/DEVICE`.
#[doc(hidden)]
pub fn is_device_file(path: &CStr) -> bool {
    path.to_str().ok().and_then(|path| path.strip_prefix("/dev/infiniband/")).is_some_and(is_device)
}

/// Returns the text in an attribute file of a soft device, which reports the type or the interface of a GID. These
/// files are in `/sys/class/infiniband/DEVICE/ports/1/gid_attrs`. Returns `None` for every other path, and if the table
/// has no GID at the index.
#[doc(hidden)]
pub fn attribute_file(path: &CStr) -> Option<String> {
    let path = path.to_str().ok()?.strip_prefix("/sys/class/infiniband/")?;
    let mut parts = path.split('/');
    let mut next = || parts.next();
    let (device, ports, port) = (next()?, next()?, next()?);
    let (attributes, kind, index) = (next()?, next()?, next()?);
    let is_ours = is_device(device) && ports == "ports" && port.parse() == Ok(PORT) && attributes == "gid_attrs";
    if !is_ours || next().is_some() {
        return None;
    }
    let interface = gid::interface_of(index.parse().ok()?)?;
    match kind {
        "types" => Some("RoCE v2\n".to_owned()),
        "ndevs" => Some(format!("{}\n", interface_name(interface)?)),
        _ => None,
    }
}

fn is_device(name: &str) -> bool {
    device::all().iter().any(|device| device.name() == name.as_bytes())
}

fn interface_name(index: u32) -> Option<String> {
    let mut name = [0 as c_char; libc::IF_NAMESIZE];
    // SAFETY: the buffer has the largest size that the function writes.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the function has written a name and its terminator.
    Some(unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "makes system calls")]
    fn attribute_files_match_the_kernels() {
        crate::register().unwrap();
        let text = |path: &str| attribute_file(&std::ffi::CString::new(path).unwrap());
        let soft = "/sys/class/infiniband/soft0/ports/1/gid_attrs";
        assert_eq!(text(&format!("{soft}/types/0")).as_deref(), Some("RoCE v2\n"));
        assert_eq!(text(&format!("{soft}/ndevs/0")).as_deref(), Some("lo\n"));
        for other in ["types/255", "types/-1", "types/x", "types/0/", "types", "", "other/0"] {
            assert_eq!(text(&format!("{soft}/{other}")), None, "{other}");
        }
        for path in
            ["soft0/ports/2/gid_attrs/types/0", "mlx5_0/ports/1/gid_attrs/types/0", "soft0/ports/1/rates/types/0"]
        {
            assert_eq!(text(&format!("/sys/class/infiniband/{path}")), None, "{path}");
        }
        assert!(is_device_file(c"/dev/infiniband/soft0"));
        for path in [c"/dev/infiniband/uverbs0", c"/dev/infiniband/", c"/dev/soft0", c"soft0", c"\xff"] {
            assert!(!is_device_file(path), "{path:?}");
        }
    }
}
