//! The repository itself: what documents name exists, and every function has its row.

mod architecture;
mod commands;
mod coverage;
mod documents;
mod errors;
