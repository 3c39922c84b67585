//! The `inproc` backend.
