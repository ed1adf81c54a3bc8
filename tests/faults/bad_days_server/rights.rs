//! The user's rights are taken away.

use std::thread;
use std::time::Instant;

use redis_concurrent::{Error, ErrorKind};
use redis_concurrent_testkit::{RedisServer, eventually};

use crate::both::both;
use crate::server_days::*;

mod bodies {
    use super::*;

    /// A server with a user whose rights can be taken away without ours, and the user's URL.
    fn with_user() -> (RedisServer, String) {
        let server = RedisServer::start().unwrap();
        ask::<()>(&server, &["ACL", "SETUSER", "locks", "on", ">pw", "~*", "&*", "+@all"]);
        let url = format!("redis://locks:pw@127.0.0.1:{}/", server.port());
        (server, url)
    }

    pub fn rights_that_are_taken_away_are_told_and_missed_no_longer_than_that<K: Subject>(kind: K) {
        let (server, url) = with_user();
        let counters = Counters::default();
        let client = connected(|| lively(&url).lease(ms(60_000)).observer(counters.clone()));
        let asks = connected(|| unhurried(&url));
        let (held, lock) = (client.lock_with_kind("held", kind), asks.lock_with_kind("rights", kind));
        let rights = |rights: &[&str]| {
            ask::<()>(&server, &[&["ACL", "SETUSER", "locks"], rights].concat());
        };
        let no_commands: [&str; 2] = ["-evalsha", "-eval"];
        for (taken, given) in [
            (&no_commands[..], &["+evalsha", "+eval"][..]),
            (&["resetkeys"], &["~*"]),
            (&["-set", "-hset"], &["+@all"]),
        ] {
            let guard = held.lock().unwrap();
            rights(taken);
            let calls: [&dyn Fn() -> Result<(), Error>; 3] = [
                &|| on_time("try_lock", ms(0), || lock.try_lock().map(drop)),
                &|| on_time("try_lock_for", ms(300), || lock.try_lock_for(ms(300)).map(drop)),
                &|| on_time("lock", ms(300), || lock.lock().map(drop)),
            ];
            for call in calls {
                // A command inside a script has a text of its own.
                refused_for(&["noperm", "can't run this command", "acl failure in script"], "rights", call);
            }
            // What a script ran before it was refused something stays.
            match taken[0] {
                "-set" => guard.unlock().unwrap(),
                _ => {
                    error_of(on_time("unlock", COMMAND, || guard.unlock()), ErrorKind::Unavailable, "held");
                }
            }
            rights(given);
            another_gets_in(&server, kind, "held", SURELY);
            lock.lock().unwrap().unlock().unwrap();
        }
        assert!(counters.losses().is_empty());
        drop((held, lock));
        nothing_stays(&server, &[&client, &asks]);
    }

    pub fn without_the_right_to_publish_waiters_get_in_by_their_timer<K: Subject>(kind: K) {
        let (server, url) = with_user();
        let (mine, yours) = (connect(&url), connect(&url));
        let (held, awaited) = (mine.lock_with_kind("mute", kind), yours.lock_with_kind("mute", kind));
        for right in ["-publish", "resetchannels"] {
            let guard = held.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| awaited.lock().unwrap().unlock());
                wait_for_queue(&server, "mute");
                ask::<()>(&server, &["ACL", "SETUSER", "locks", right]);
                guard.unlock().unwrap();
                // A heartbeat, and whatever the machine takes.
                on_time("the waiter", HEARD / 3, || waiting.join().unwrap().unwrap());
            });
            ask::<()>(&server, &["ACL", "SETUSER", "locks", "+publish", "&*"]);
        }
        drop((held, awaited));
        nothing_stays(&server, &[&mine, &yours]);
    }

    pub fn without_the_right_to_subscribe_waiting_is_refused_at_once<K: Subject>(kind: K) {
        let (server, url) = with_user();
        ask::<()>(&server, &["ACL", "SETUSER", "locks", "resetchannels"]);
        let (mine, yours) = (connect(&server.url()), connect(&url));
        let (held, awaited) = (mine.lock_with_kind("deaf", kind), yours.lock_with_kind("deaf", kind));
        let guard = held.lock().unwrap();
        let started = Instant::now();
        for outcome in [
            on_time("lock", ms(300), || awaited.lock().map(drop)),
            on_time("try_lock_for", ms(300), || awaited.try_lock_for(SURELY).map(drop)),
        ] {
            let error = error_of(outcome, ErrorKind::Unavailable, "deaf");
            assert!(error.to_string().contains("subscribe"), "{error}");
        }
        eprintln!("refused after {:?}", started.elapsed());
        // A caller that does not wait needs no channel.
        assert!(awaited.try_lock().unwrap().is_none());
        guard.unlock().unwrap();
        awaited.lock().unwrap().unlock().unwrap();
        ask::<()>(&server, &["ACL", "SETUSER", "locks", "&*"]);
        let guard = held.lock().unwrap();
        thread::scope(|scope| {
            // The listener tries again each second.
            let waiting = scope.spawn(|| {
                eventually(SURELY, || awaited.try_lock_for(SURELY).ok()).expect("released").unlock().unwrap();
            });
            wait_for_queue(&server, "deaf");
            guard.unlock().unwrap();
            waiting.join().unwrap();
        });
        drop((held, awaited));
        nothing_stays(&server, &[&mine, &yours]);
    }
}

both! {
    rights_that_are_taken_away_are_told_and_missed_no_longer_than_that;
    without_the_right_to_publish_waiters_get_in_by_their_timer;
    without_the_right_to_subscribe_waiting_is_refused_at_once;
}
