//! `Listener` and `Stream`, shaped as `std::net`.
