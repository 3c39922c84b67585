#![doc = include_str!("coverage_rdmacm.md")]
