//! Unit tests of `src/red_lock/lock.rs`.

use super::super::servers::default_node_timeout;
use super::*;
use crate::settings::{LONGEST_LEASE, SHORTEST_LEASE};

#[test]
fn the_usual_node_limit_suits_every_lease() {
    for lease in [SHORTEST_LEASE, ms(500), ms(3000), ms(30_000), LONGEST_LEASE] {
        let limit = default_node_timeout(lease);
        assert!((SHORTEST_NODE_TIMEOUT..=lease / 2).contains(&limit), "{limit:?} of {lease:?}");
        assert!(limit >= ms(25) && limit <= ms(200), "{limit:?} of {lease:?}");
    }
    assert_eq!((default_node_timeout(ms(2000)), default_node_timeout(ms(30_000))), (ms(100), ms(200)));
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}
