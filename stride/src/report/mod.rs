//! Formats results for people and for programs.
//!
//! Everything in this module takes plain values, and writes to the writer that the caller passes. Only [`Style::of`]
//! and [`columns`] query the terminal.

mod axis;
mod environment;
mod read;
mod row;
mod style;
mod time;
mod units;

pub mod compare;
pub mod csv;
pub mod hints;
pub mod histogram;
pub mod json;
pub mod limits;
pub mod page;
pub mod perftest;
pub mod plot;
pub mod table;
pub mod verdict;

#[cfg(test)]
pub(crate) mod sample;

pub use self::environment::{Environment, bound, ports};
pub use self::read::{series, text};
pub use self::row::{Row, Series};
pub use self::style::{Style, columns};
pub use self::time::rfc3339;
pub use self::units::{bytes, bytes_in_words, fixed};
