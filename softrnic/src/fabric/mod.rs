//! The other processes of the host, without a daemon: who has which numbers, and rings in shared memory to and from each.
