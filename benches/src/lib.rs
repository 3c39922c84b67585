//! What the benchmarks share. There is no benchmark yet.
