//! The repository itself: what documents name exists, every function has its row, and misuse does not compile.

mod architecture;
mod compile_fail;
mod coverage;
mod documents;
