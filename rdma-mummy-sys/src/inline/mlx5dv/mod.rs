//! The inline functions of mlx5dv.h: extended work requests, completion entries, queue entries, clock and DevX fields.

mod cqe;
mod device;
mod devx;
mod segment;
mod send_wr;

pub use cqe::*;
pub use device::*;
pub use devx::*;
pub use segment::*;
pub use send_wr::*;

use crate::load::mlx5::c as library;
