//! The repository itself: files that documents name exist, and every function has its row.

mod architecture;
mod coverage;
mod documents;
mod errors;
