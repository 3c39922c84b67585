//! A second Rust library in the same program, which panics and catches the panic.

use std::panic;

/// Whether the panic was caught here.
#[unsafe(no_mangle)]
extern "C" fn beside_catches(index: usize) -> bool {
    panic::set_hook(Box::new(|_| {}));
    let empty: Vec<u8> = Vec::new();
    panic::catch_unwind(|| empty[index]).is_err()
}
