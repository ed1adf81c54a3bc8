//! A lock over several independent servers, held while a majority of them grants it: Redlock, after
//! <https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/>.

mod holding;
mod lock;
mod node;
mod round;
mod servers;

pub use self::lock::RedLock;
pub use self::servers::RedLockClient;
