//! What others than the program send, as functions of bytes: for the fuzz targets (`fuzz/` of the repository), which call them
//! with bytes of their choice, and for the test that calls them with those that are kept (`fuzz/corpus`).
//!
//! Each function panics where a promise is broken: one to the program, such as that memory which was not granted stays as it is.
//! It tells whether what came was believed to its end.

mod input;
#[cfg(test)]
mod tests;

pub(crate) use self::input::Input;
pub use crate::cm::fuzz::connections;
pub use crate::ipc::fuzz::greeting::greeting;
pub use crate::ipc::fuzz::messages::messages;
pub use crate::ipc::fuzz::session::session;

/// The list of the kernel's sockets, whose names any process chooses.
pub fn names(list: &[u8]) -> bool {
    let list = String::from_utf8_lossy(list);
    let has_members = crate::ipc::fuzz::has_members(&list);
    crate::cm::fuzz::has_ports(&list) || has_members
}

/// What the environment says of devices.
pub fn devices(text: &[u8]) -> bool {
    match crate::builder::named(&String::from_utf8_lossy(text)) {
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
