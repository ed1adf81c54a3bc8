//! A lock over several independent servers, held while a majority of them grants it: Redlock, after
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>.

mod hold;
mod holding;
mod late;
mod lock;
mod member;
mod node;
mod post;
mod questions;
mod release;
mod renew;
mod round;
mod servers;
mod vote;

pub use self::lock::QuorumLock;
pub use self::servers::RedLock;
