//! The rights of the user that the pages tell to make: all are used, and each one that is missing is told, or
//! missed no more than the page says.

use std::collections::BTreeSet;

use redis_concurrent::admin::HeldBy;
use redis_concurrent::inventory::Order;
use redis_concurrent::{Error, MultiLock};

use super::*;
use crate::server_days::ask;

/// What an exact list needs, in the words of the page, without user, password and patterns.
fn listed() -> BTreeSet<String> {
    let (_, rights) =
        include_str!("../../../docs/operations.md").split_once("redis-cli ACL SETUSER locks ").unwrap();
    let (rights, _) = rights.split_once("```").unwrap();
    let rights = rights.split_whitespace().map(|word| word.trim_matches('\''));
    rights.filter_map(|word| word.strip_prefix('+')).map(str::to_owned).collect()
}

/// A user of exactly these rights, and its URL.
fn with_rights<'a>(server: &RedisServer, rights: impl Iterator<Item = &'a String>) -> String {
    let rights: Vec<_> = rights.map(|right| format!("+{right}")).collect();
    let mut words =
        vec!["ACL", "SETUSER", "locks", "reset", "on", ">secret", "~rc:{*", "resetchannels", "&rc:inbox:*"];
    words.extend(rights.iter().map(String::as_str));
    ask::<()>(server, &words);
    format!("redis://locks:secret@127.0.0.1:{}/", server.port())
}

/// Every kind and every sort of call, none of which waits for another caller for long.
fn calls(url: &str) -> Result<(), Error> {
    let short = Duration::from_millis(60);
    // However busy the machine is, a right that is missing is not told as a timeout.
    let builder =
        || Client::builder().url(url).connect_timeout(LONG).command_timeout(LONG).waiter_timeout(LONG);
    let [client, other] = [builder().connect()?, builder().connect()?];

    let simple = client.simple_lock("simple");
    let guard = simple.lock_owned()?;
    // The other has a queue position for a while.
    assert!(other.simple_lock("simple").try_lock_for(short)?.is_none());
    guard.renew_for(LONG)?;
    assert!(simple.holder()?.is_some());
    simple.queue_length()?;
    let receipt = guard.into_receipt()?;
    other.adopt::<redis_concurrent::kinds::Simple>(&receipt)?.unlock()?;

    let reentrant = client.reentrant_lock("reentrant");
    let mut guard = reentrant.lock()?;
    let condition = reentrant.condition("c");
    assert!(!condition.wait_with(&mut guard, short)?);
    condition.signal_all(&guard)?;
    guard.unlock()?;
    let _taken = reentrant.lock_owned()?;
    reentrant.force_unlock()?;

    let pages = client.read_write_lock("pages");
    let read = pages.read_lock().lock_owned()?;
    assert!(other.read_write_lock("pages").write_lock().try_lock_for(short)?.is_none());
    assert_eq!(pages.read_count()?, 1);
    read.unlock()?;
    let write = pages.write_lock().lock()?;
    pages.downgrade(write)?.unlock()?;

    let permits = client.semaphore("permits");
    permits.set_permits(2)?;
    let permit = permits.acquire(2)?;
    assert!(other.semaphore("permits").acquire_with(1, short)?.is_none());
    assert_eq!(permits.holders()?.len(), 1);
    permit.release()?;
    permits.expire_after(LONG)?;
    permits.set_permits(2)?;
    permits.delete()?;

    let latch = client.count_down_latch("latch");
    latch.try_set_count(1)?;
    assert!(!latch.wait_with(short)?);
    latch.count_down()?;
    latch.delete()?;

    let barrier = client.cyclic_barrier("barrier", 2);
    // (A wait that is over before it has a place breaks nothing.)
    match barrier.wait_with(10 * short) {
        Err(e) if e.kind() == ErrorKind::Timeout => {}
        other => return other.map(drop),
    }
    assert!(barrier.is_broken()?);
    barrier.reset()?;
    // One that all have passed, and one that waits for more.
    let alone = client.cyclic_barrier("alone", 1);
    alone.wait()?;
    alone.reset()?;

    let inventory = client.inventory("sale");
    inventory.add_stock("tee", 3)?;
    let order = Order::of("tee", 1).id("42").customer("ann", 2);
    inventory.try_reserve(&order)?.expect("there are some").commit()?;
    assert!(inventory.is_committed("42")?);
    let reserved = inventory.try_reserve(&Order::of("tee", 1))?.expect("there is one");
    assert_eq!(inventory.holders()?.len(), 1);
    reserved.cancel()?;
    inventory.delete()?;

    let limiter = client.rate_limiter("limited", Rate::smooth(2, LONG));
    assert!(limiter.try_acquire(1)?.allowed);
    limiter.delete()?;

    let both = MultiLock::new(&[&client.simple_lock("one"), &client.simple_lock("two")]);
    both.lock()?.unlock()?;
    match simple.with_replicas(1, short).lock().map(drop) {
        Err(e) if e.kind() == ErrorKind::NotReplicated => {}
        other => return other,
    }

    let key = "rc:{mine}";
    for outcome in [Outcome::Abort(()), Outcome::Commit(())] {
        client.optimistic(&[key]).run(|read, write| {
            let n = read.get::<Option<u32>>(key)?.unwrap_or(0);
            write.set(key, n + 1);
            Ok(outcome)
        })?;
    }
    let fenced = client.fenced("mine");
    fenced.set(1, "x")?;
    fenced.get::<String>()?;
    fenced.expire_after(LONG)?;
    fenced.delete()?;
    client.close()?;
    other.close()
}

/// What scripts call only by chance: where a party breaks a barrier's round that is complete or opens one too late, and
/// where a waiter for a condition is not the first.
const RARE: [(&str, &str); 3] = [
    ("hexists", include_str!("../../../lua/barrier.lua")),
    ("zcount", include_str!("../../../lua/barrier.lua")),
    ("zrevrangebylex", include_str!("../../../lua/lib/condition.lua")),
];

fn is_rare(right: &str) -> bool {
    let calls = format!("call('{}'", right.to_uppercase());
    RARE.iter().any(|(rare, lua)| *rare == right && lua.contains(&calls))
}

/// The same on an empty server, once more for each time that a call had no reply within its short time.
fn calls_at(server: &RedisServer, url: &str) -> Result<(), Error> {
    loop {
        server.flush_all().unwrap();
        match calls(url) {
            Err(e) if format!("{e:#}").contains("timed out") => eprintln!("once more: {e:#}"),
            outcome => return outcome,
        }
    }
}

#[test]
fn each_right_that_is_listed_is_used() {
    let server = RedisServer::start().unwrap();
    server.reset_stats().unwrap();
    let url = with_rights(&server, listed().iter());
    calls_at(&server, &url).unwrap();
    works_at(&url);
    reads_and_writes_at(&url);
    meets_at(&url);
    updates_at(&url);
    let used = server.command_calls().unwrap();
    let unused: Vec<_> = listed().into_iter().filter(|right| !used.contains_key(right)).collect();
    // Servers before 7.0 do not count subcommands.
    let counted = |right: &String| used.contains_key(right.split('|').next().unwrap());
    let unused: Vec<_> = unused.into_iter().filter(|right| !counted(right) && !is_rare(right)).collect();
    assert!(unused.is_empty(), "{unused:?} of {used:?}");
}

/// What the page says is done without.
const DISPENSABLE: [&str; 4] = ["info", "publish", "pubsub|numsub", "unwatch"];

#[test]
fn each_right_that_is_missing_is_told_clearly() {
    let server = RedisServer::start().unwrap();
    let all = listed();
    for missing in &all {
        let url = with_rights(&server, all.iter().filter(|right| *right != missing));
        match calls_at(&server, &url) {
            Ok(()) => {
                assert!(
                    DISPENSABLE.contains(&missing.as_str()) || is_rare(missing),
                    "{missing} is not needed"
                );
            }
            Err(e) => {
                assert!(!DISPENSABLE.contains(&missing.as_str()), "{missing}: {e:#}");
                // What a release had done already when it was refused is settled in the background.
                assert!(e.is_unavailable() || e.is_outcome_unknown(), "{missing}: {e:#}");
                let text = format!("{e:#}").to_lowercase();
                let words = ["noperm", "no permissions", "can't run this command", "the right to"];
                assert!(words.iter().any(|word| text.contains(word)), "{missing}: {text}");
            }
        }
    }
}

/// What an operator looks with is not among what locks need: without it nothing is taken for something else, or for nothing.
#[test]
fn a_look_without_its_rights_is_unavailable() {
    let server = RedisServer::start().unwrap();
    let admin = Client::connect(&server.url()).unwrap();
    let _held = admin.reentrant_lock("held").lock_owned().unwrap();
    let at = |more: &[&str]| {
        let all = listed().into_iter().chain(more.iter().map(|right| (*right).to_owned()));
        Client::connect(&with_rights(&server, all.collect::<Vec<_>>().iter())).unwrap()
    };
    let names_right = |outcome: Result<(), Error>, right: &str| {
        let error = outcome.unwrap_err();
        let text = format!("{error:#}").to_lowercase();
        assert!(error.is_unavailable() && text.contains("noperm") && text.contains(right), "{text}");
    };
    let client = at(&["scan"]);
    names_right(client.inspect("held").map(drop), "type");
    names_right(client.force_unlock_if("held", &HeldBy::Anyone, "", false).map(drop), "type");
    names_right(client.list().collect::<Result<Vec<_>, _>>().map(drop), "type");
    let client = at(&["type"]);
    assert_eq!(client.inspect("held").unwrap().expect("it is there").kind, "reentrant lock");
    names_right(client.list().collect::<Result<Vec<_>, _>>().map(drop), "scan");
    let client = at(&["type", "scan"]);
    assert_eq!(client.list().map(|found| found.unwrap().name).collect::<Vec<_>>(), ["held"]);
}
