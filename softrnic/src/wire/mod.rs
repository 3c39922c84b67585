//! What travels between queue pairs: messages, their parts and answers.

pub(crate) mod address;
pub(crate) mod events;
pub(crate) mod limits;
pub(crate) mod message;
pub(crate) mod packet;
pub(crate) mod work;
