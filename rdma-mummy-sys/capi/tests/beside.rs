//! Another library in Rust, as a program may have one beside this: it panics, and catches it.

use std::panic;

/// Whether the panic came back to here.
#[unsafe(no_mangle)]
extern "C" fn beside_catches(index: usize) -> bool {
    panic::set_hook(Box::new(|_| {}));
    let empty: Vec<u8> = Vec::new();
    panic::catch_unwind(|| empty[index]).is_err()
}
