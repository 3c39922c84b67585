//! Accesses the files of this host: walks trees, reads metadata, and writes below a directory that is kept open.

mod ancestry;
mod attributes;
mod beneath;
mod filter;
mod keep;
mod meta;
mod nodes;
mod origin;
mod partial;
mod permissions;
mod remove;
mod resolve;
mod settle;
mod stored;
mod stream;
mod walk;

pub use ancestry::Ancestry;
pub use attributes::{has_access_list, read_attributes};
pub use beneath::{Directory, GivesWay};
pub use filter::Filter;
pub use keep::{Keep, facts};
pub use meta::{keep_facts, set_directory_facts, set_facts, with_own_facts};
pub use origin::{Branch, Origin};
pub use partial::{LEAST, Partial, Written, temporary_name};
pub use settle::settle;
pub use stored::is_stored_as;
pub use stream::{open_special, own_stream};
pub use walk::{Listing, Pending, Place, Walk};

pub(crate) use ancestry::place;
pub(crate) use partial::{entry_of, leftover, partial_name};
pub(crate) use walk::{base_name, changed, is_contents, join, names, sum_of, unreadable};
