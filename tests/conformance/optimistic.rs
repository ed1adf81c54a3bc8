//! Reads without a lock, that are asked afterwards whether they were true.

use redis_concurrent::optimistic::Outcome;
use redis_concurrent::{Client, ErrorKind};

use crate::conformance::fixture::{Fixture, NAME, Tried};
use crate::conformance::rows::rows;

rows! { one_lock:
    what_was_read_is_true_unless_somebody_wrote
}

/// Reads, has something happen, and says whether what was read was still true then.
fn valid(client: &Client, key: &str, meanwhile: impl Fn()) -> bool {
    let looked = client.optimistic(&[key]).max_attempts(1).run(|read, _| {
        read.get::<Option<u32>>(key)?;
        meanwhile();
        Ok(Outcome::Commit(()))
    });
    match looked {
        Ok(update) => update.committed,
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::Conflict, "{e}");
            false
        }
    }
}

/// JSR-166 StampedLockTest.testValidateOptimistic: free, beside a reader, beside a writer.
fn what_was_read_is_true_unless_somebody_wrote<K: Tried>(fixture: &Fixture<K>) {
    let (one, two) = (fixture.client(), fixture.client());
    let key = format!("{}:value", fixture.place.namespace());
    let write = || {
        let written = two.optimistic(&[&key]).run(|_, write| {
            write.set(&key, 1);
            Ok(Outcome::Commit(()))
        });
        assert!(written.unwrap().committed);
    };
    assert!(valid(&one, &key, || ()));
    let lock = two.read_write_lock(NAME);
    assert!(valid(&one, &key, || lock.read_lock().lock().unwrap().unlock().unwrap()));
    let guard = lock.write_lock().lock_owned().unwrap();
    assert!(valid(&one, &key, || ()), "a lock's holder has not written");
    assert!(!valid(&one, &key, write));
    guard.unlock().unwrap();
    assert!(valid(&one, &key, || ()));
    let gone = two.optimistic(&[&key]).run(|_, write| {
        write.del(&key);
        Ok(Outcome::Commit(()))
    });
    assert!(gone.unwrap().committed);
}
