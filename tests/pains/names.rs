//! Of what stays behind of a name.

use std::collections::HashMap;

use parking_lot::Mutex;
use redis_concurrent::testing::*;

use crate::support::*;

/// A registry that grows with every name.
#[test]
fn pain_30_names_leave_nothing() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let counts: Mutex<HashMap<usize, usize>> = Mutex::default();
    for i in 0..3000 {
        let lock = client.reentrant_lock(&format!("name {i}"));
        if i % 10 == 0 {
            lock.lock().unwrap().unlock().unwrap();
        }
        drop(lock);
        *counts.lock().entry(client.locks()).or_default() += 1;
    }
    assert_eq!(counts.into_inner(), HashMap::from([(0, 3000)]));
    nothing_left(&server);
}
