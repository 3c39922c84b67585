//! The repository itself: files that documents name exist, every function has its row, and misuse does not compile.

mod architecture;
mod compile_fail;
mod coverage;
mod documents;
