//! Takes the place of `message.rs` in a build without the feature `msg`.

use anyhow::Result;

use super::{Endpoint, PortInfo, Role, Unsupported};
use crate::features::Feature;
use crate::plan::Plan;

/// Returns the error that this build has no messages of trespass.
pub(super) fn open(_: &Plan, _: PortInfo, _: Role) -> Result<Box<dyn Endpoint>> {
    let missing = Feature::Msg.check("msg").err().unwrap_or_default();
    Err(Unsupported(missing).into())
}
