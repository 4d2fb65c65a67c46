//! A server without a kernel, and properties that must hold for any bytes it receives. Shared by
//! the fuzz target and the tests of this crate.

mod script;
mod subject;

#[cfg(test)]
mod creation;
#[cfg(test)]
mod interrupted;
#[cfg(test)]
mod random;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod sent_again;

pub use script::{BY_ROOT, RAW, Record, WRONG_LENGTH, encode};
pub use subject::check_conversation;
#[cfg(test)]
pub(crate) use subject::{ScriptedChannel, all_granted};
