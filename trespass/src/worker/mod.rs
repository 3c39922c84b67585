//! The loop that joins connections to a backend.
