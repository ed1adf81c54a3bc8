//! Elections: who leads, for how long, and what others see of it.

mod beginning;
mod campaigning;
mod observing;
mod running;

use redis_concurrent::Client;
use redis_concurrent::admin::HeldBy;

/// Ends the term of the leader.
fn depose(client: &Client, name: &str) {
    assert_eq!(client.force_unlock_if(name, &HeldBy::Anyone, "", false).unwrap().holders, 1);
}
