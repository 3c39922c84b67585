#![doc = include_str!("testing.md")]
