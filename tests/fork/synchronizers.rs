//! The child of a process that reads, writes, has permits, and waits at a latch and a barrier.

use std::thread;
use std::time::Duration;

use redis_concurrent::kinds::Permits;
use redis_concurrent::optimistic::Outcome;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{CancellationToken, ErrorKind};
use redis_concurrent_testkit::*;

use crate::child::{in_child, leave, split, wait_for};
use crate::forked;
use crate::support::*;

#[test]
fn a_child_uses_no_synchronizer_of_its_parent() {
    alone("synchronizers::a_child_uses_no_synchronizer_of_its_parent", || {
        let server = RedisServer::start().unwrap();
        let recorder = Recorder::default();
        let lease =
            |lease| builder(&server.url()).lease(ms(lease)).renew_every(ms(300)).observer(recorder.clone());
        let (client, brief) = (lease(9000).connect().unwrap(), lease(2000).connect().unwrap());
        let other = connect(&server);
        let (read, written) = (client.read_write_lock("read"), client.read_write_lock("written"));
        let free = client.read_write_lock("free");
        let (permits, latch) = (client.semaphore("permits"), client.count_down_latch("latch"));
        let barrier = client.cyclic_barrier("barrier", 2);
        let limiter = client.rate_limiter("limiter", Rate::fixed_window(2, Duration::from_secs(3600)));
        assert!(limiter.try_acquire(1).unwrap().allowed);
        permits.set_permits(3).unwrap();
        latch.try_set_count(1).unwrap();
        let mut reads = Some(read.read_lock().lock().unwrap());
        let mut writes = Some(written.write_lock().lock().unwrap());
        let mut permit = Some(permits.acquire(2).unwrap());
        let paper = brief.semaphore("permits").acquire(1).unwrap().into_receipt().unwrap();
        thread::scope(|scope| {
            let waiters = [
                // Through two forks.
                scope.spawn(|| latch.wait_with(6 * LONG).map(usize::from)),
                scope.spawn(|| barrier.wait_with(6 * LONG)),
            ];
            for name in ["latch", "barrier"] {
                let key = format!("rc:{{{name}}}:queue");
                wait_until(SOON, "it waits", || exists(&server, &key));
            }
            let failures = recorder.failures();
            in_child(|| {
                let token = CancellationToken::new();
                forked(free.read_lock().lock());
                forked(free.read_lock().try_lock_for(ms(50)));
                forked(free.write_lock().lock());
                forked(free.write_lock().try_lock());
                forked(read.read_count());
                forked(written.write_lock().is_locked());
                let condition = written.write_lock().condition("it");
                forked(condition.wait(writes.as_mut().unwrap()));
                forked(condition.signal_all(writes.as_ref().unwrap()));
                forked(written.downgrade(writes.take().unwrap()));
                forked(permits.acquire(1));
                forked(permits.try_acquire(1));
                forked(permits.drain());
                forked(permits.set_permits(9));
                forked(permits.delete());
                forked(permits.available());
                forked(permits.holders());
                forked(client.adopt::<Permits>(&paper));
                forked(latch.wait());
                forked(latch.wait_with(ms(50)));
                forked(latch.wait_with(&token));
                forked(latch.try_set_count(9));
                forked(latch.count_down());
                forked(latch.count());
                forked(latch.reset(9));
                forked(latch.delete());
                forked(barrier.wait());
                forked(barrier.wait_with(ms(50)));
                forked(barrier.wait_then(|| panic!("an action in the child")));
                forked(barrier.is_broken());
                forked(barrier.reset());
                forked(limiter.try_acquire(1));
                forked(limiter.acquire(1));
                forked(limiter.acquire_with(1, ms(50)));
                forked(limiter.available());
                forked(limiter.delete());
                assert!(limiter.closed().is_cancelled());
                forked(permit.take().unwrap().release());
                forked(reads.take().unwrap().unlock());
                forked(client.close());
                assert_eq!(recorder.failures(), failures);
            });
            in_child(|| {
                drop((permit.take(), reads.take(), writes.take()));
            });
            // The parent is unharmed: it holds, renews, and waits.
            for _ in 0..2 {
                renewed_again(|| reads.as_ref().unwrap().remaining());
                renewed_again(|| writes.as_ref().unwrap().remaining());
                renewed_again(|| permit.as_ref().unwrap().remaining());
                assert!(other.read_write_lock("read").write_lock().try_lock().unwrap().is_none());
                assert!(other.read_write_lock("written").read_lock().try_lock().unwrap().is_none());
                assert!(other.semaphore("permits").available().unwrap() <= 1);
            }
            assert_eq!(other.count_down_latch("latch").count_down().unwrap(), 0);
            assert_eq!(other.cyclic_barrier("barrier", 2).wait().unwrap(), 0);
            assert_eq!(waiters.map(|waiter| waiter.join().unwrap().unwrap()), [1, 1]);
        });
        writes.take().unwrap().unlock().unwrap();
        reads.take().unwrap().unlock().unwrap();
        permit.take().unwrap().release().unwrap();
        // The one on paper had nobody to renew it.
        wait_until(SOON, "all permits are back", || permits.available().unwrap() == 3);
        assert_eq!(recorder.losses() + recorder.failures(), 0, "{:?}", recorder.all());
        assert_eq!(limiter.available().unwrap(), 1);
        assert!(permits.delete().unwrap() && latch.delete().unwrap() && limiter.delete().unwrap());
        client.close().unwrap();
    });
}

/// Also one that is forked in the midst of an update: it has a copy of the connection on which its parent
/// watches.
#[test]
fn a_child_writes_nothing_by_its_parent_s_connection() {
    alone("synchronizers::a_child_writes_nothing_by_its_parent_s_connection", || {
        let server = RedisServer::start().unwrap();
        let client = connect(&server);
        let (optimistic, fenced) = (client.optimistic(&["stock"]), client.fenced("report"));
        fenced.set(5, "the parent's").unwrap();
        let script = fenced.script("redis.call('INCR', 'ran')");
        let update = optimistic.max_attempts(1).run(|read, write| {
            let before: Option<u32> = read.get("stock")?;
            in_child(|| {
                forked(optimistic.run(|_, _| Ok(Outcome::Commit(()))));
                forked(fenced.set(6, "the child's"));
                forked(fenced.get::<String>());
                forked(script.run::<()>(6, &[], None::<&str>));
                forked(fenced.expire_after(LONG));
                forked(fenced.delete());
                forked(read.get::<Option<u32>>("stock"));
            });
            write.set("stock", before.unwrap_or(0) + 1);
            Ok(Outcome::Commit(()))
        });
        assert!(update.unwrap().committed);
        // The child goes on with the closure where its parent does, and drops what it has of the connection.
        let mut pid = 0;
        let update = optimistic.max_attempts(1).run(|_, write| {
            pid = split();
            if pid > 0 {
                wait_for(pid);
            }
            write.set("stock", pid);
            Ok(Outcome::Commit(()))
        });
        if pid == 0 {
            leave(update.is_err_and(|e| e.kind() == ErrorKind::Forked));
        }
        assert!(update.unwrap().committed);
        assert_eq!(
            optimistic
                .max_attempts(1)
                .run(|read, _| Ok(Outcome::Commit(read.get::<i32>("stock")?)))
                .unwrap()
                .value,
            pid
        );
        assert_eq!(fenced.get_with_token::<String>().unwrap(), (Some(5), Some("the parent's".to_owned())));
    });
}
