//! The child of a process that holds a lock over several servers.

use std::thread;
use std::time::Instant;

use redis_concurrent::{CancellationToken, Client, RedLockClient};
use redis_concurrent_testkit::*;

use crate::child::in_child;
use crate::forked;
use crate::support::*;

#[test]
fn a_child_has_nothing_of_its_parents_majority() {
    alone("red_lock::a_child_has_nothing_of_its_parents_majority", || {
        let servers: Vec<_> = (0..3).map(|_| RedisServer::start().unwrap()).collect();
        let (recorder, lease) = (Recorder::default(), ms(5000));
        let connect = |observed: bool| -> Vec<Client> {
            let builder = |server: &RedisServer| {
                let builder = builder(&server.url()).lease(lease);
                if observed { builder.observer(recorder.clone()) } else { builder }
            };
            servers.iter().map(|server| connected(|| builder(server))).collect()
        };
        let clients = connect(true);
        let red = |clients: &[Client]| {
            RedLockClient::new(clients).unwrap().skip_startup_delay().with_node_timeout(lease / 3)
        };
        let (mine, yours) = (red(&clients), red(&connect(false)));
        let (lock, free, others) = (mine.lock("it"), mine.lock("free"), yours.lock("it"));
        let mut guard = Some(lock.lock().unwrap());
        let mut owned = Some(mine.lock("owned").lock_owned().unwrap());
        let failures = recorder.failures();
        in_child(|| {
            let token = CancellationToken::new();
            forked(free.lock());
            forked(free.try_lock());
            forked(free.try_lock_for(ms(50)));
            forked(free.lock_owned());
            forked(free.lock_interruptibly(&token));
            forked(RedLockClient::new(&clients));
            let held = guard.as_ref().unwrap();
            assert!(held.is_lost() && held.remaining().is_zero() && held.servers() == 0);
            forked(held.renew());
            forked(guard.take().unwrap().unlock());
            forked(owned.take().unwrap().unlock());
            assert_eq!(recorder.failures(), failures);
        });
        in_child(|| drop((guard.take(), owned.take())));
        // The parent is unharmed: it holds, and renews.
        let began = Instant::now();
        while began.elapsed() < lease + lease / 5 {
            assert!(!guard.as_ref().unwrap().is_lost() && !owned.as_ref().unwrap().is_lost());
            assert!(others.try_lock().unwrap().is_none());
            thread::sleep(ms(20));
        }
        guard.take().unwrap().unlock().unwrap();
        owned.take().unwrap().unlock().unwrap();
        assert_eq!(recorder.losses() + recorder.failures(), 0, "{:?}", recorder.all());
    });
}
