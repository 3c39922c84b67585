//! The modules that the programs share.

pub mod measure;
