//! A lock over several servers, whose clocks are set back.

use std::time::Instant;

use redis_concurrent::{Client, RedLockClient};
use redis_concurrent_testkit::wait_until;

use super::clock::{HOUR, SteppedServer};
use crate::support::*;

/// By their clocks they will be started only in an hour. A client that comes then has found them there a lease later.
#[test]
fn servers_set_back_to_before_their_start_count_a_lease_after_they_were_found() {
    let servers: Vec<_> = (0..3).map(|_| SteppedServer::start()).collect();
    servers.iter().for_each(|server| server.set_clock(-HOUR));
    let lease = ms(1500);
    let came = Instant::now();
    let clients: Vec<Client> =
        servers.iter().map(|server| connected(|| unhurried(&server.url()).lease(lease))).collect();
    let red = RedLockClient::new(clients).unwrap().with_node_timeout(lease / 4);
    wait_until(LONG, "they count", || match red.lock("it").try_lock() {
        Ok(guard) => guard.is_some(),
        Err(error) => {
            println!("{error:#}");
            false
        }
    });
    assert!(came.elapsed() >= lease, "{:?}", came.elapsed());
}
