//! A lock over several independent servers, held while a majority of them grants it: Redlock, after
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>.

mod hold;
mod holding;
mod lock;
mod members;
mod node;
mod questions;
mod round;
mod servers;

pub use self::lock::QuorumLock;
pub use self::servers::RedLock;

use crate::error::Error;

/// The error, with its cause, if that is known.
fn caused_by(error: Error, source: Option<Error>) -> Error {
    match source {
        Some(source) => error.caused_by(source),
        None => error,
    }
}
