//! The cost of posting and polling with sideway and with C: instructions, on a device that does nothing.
//! BENCHMARKING.md has the table.

pub mod allocations;
pub mod c;
pub mod callgrind;
pub mod column;
pub mod count;
pub mod device;
pub mod limit;
pub mod objects;
pub mod run;
pub mod rust;
pub mod table;
pub mod work;
