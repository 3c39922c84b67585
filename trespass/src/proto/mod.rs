//! A connection as a state machine: no I/O, clock, threads or unsafe code.
