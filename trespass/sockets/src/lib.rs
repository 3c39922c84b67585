//! TCP programs over RDMA, unmodified: a shared object to preload.
//!
//! The program's descriptors stay the kernel's, so that `poll`, `select`, `epoll` and `dup` do in the kernel what they
//! always do. A listener stays a TCP socket, which also has an acceptor for RDMA. A connection over RDMA has a `mirror`:
//! one end of a pair of Unix sockets, whose readiness follows that of the stream. The functions in `exports` replace
//! those of the C library; for all other descriptors they call the C library at once.
//!
//! | module | what |
//! |---|---|
//! | `exports` | the C functions |
//! | `table` | which numbers of descriptors are streams and listeners |
//! | `stream`, `listener` | what the C functions do with them |
//! | `rdma` | the worker, and attempts to connect |
//! | `refusals` | servers that use TCP only |
//! | `mirror` | the descriptor of a stream |
//! | `inside` | signal handlers that interrupt a call |
//! | `settings` | the environment, with the `numbers` in it |
//! | `address` | socket addresses in C's layout |
//! | `system` | the functions of the C library |

mod address;
mod exports;
mod inside;
mod listener;
mod mirror;
mod numbers;
mod rdma;
mod refusals;
mod settings;
mod stream;
mod system;
mod table;
