//! The benchmark tool `stride-perf` will live here. Nothing is implemented yet.
