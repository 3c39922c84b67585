//! The `tcp` backend.
