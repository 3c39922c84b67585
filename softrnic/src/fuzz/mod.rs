//! Handlers of untrusted input as functions of bytes. Fuzz targets (`fuzz/` of the repository) call them with generated
//! bytes, and a test calls them with the corpus (`fuzz/corpus`).
//!
//! Each function panics on a violated guarantee, such as that ungranted memory is unchanged. A function returns whether
//! it accepted the whole input.

mod input;
#[cfg(test)]
mod tests;

pub(crate) use self::input::Input;
pub use crate::cm::fuzz::connections;
pub use crate::ipc::fuzz::handshake::handshake;
pub use crate::ipc::fuzz::messages::messages;
pub use crate::ipc::fuzz::session::session;

/// Parses the kernel's list of sockets, whose names any process can choose.
pub fn names(list: &[u8]) -> bool {
    let list = String::from_utf8_lossy(list);
    let has_members = crate::ipc::fuzz::has_members(&list);
    crate::cm::fuzz::has_ports(&list) || has_members
}

/// Parses the device environment variable.
pub fn devices(text: &[u8]) -> bool {
    match crate::builder::from_variable(&String::from_utf8_lossy(text)) {
        Ok(names) => {
            assert!(names.iter().all(|name| (1..64).contains(&name.len()) && name.is_ascii()), "{names:?}");
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}
