//! Tasks that wait for locks: in order, on one thread, until they give up; in both kinds of runtime, and
//! without one.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

use redis_concurrent::kinds::{Kind, Permits, Reentrancy, Sharing};
use redis_concurrent::{CancellationToken, Client, ErrorKind, rule_file};
use redis_concurrent_testkit::{RedisServer, wait_until};
use redis_concurrent_tokio::{AsyncLock, AsyncReadWriteLock, AsyncSemaphore};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Long enough for anything that is sure to happen.
const LONG: Duration = Duration::from_secs(30);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn runtimes() -> [Runtime; 2] {
    [
        Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap(),
        Builder::new_current_thread().enable_all().build().unwrap(),
    ]
}

/// Counts the threads of this process whose names have this prefix. (A name has at most 15 bytes here.)
fn threads(prefix: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
    names.filter(|name| name.starts_with(prefix)).count()
}

#[test]
fn a_task_holds_the_lock_until_it_releases_it() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (Client::connect(&server.url()).unwrap(), Client::connect(&server.url()).unwrap());
    let theirs = other.reentrant_lock("it");
    for runtime in runtimes() {
        let lock = AsyncLock::new(client.reentrant_lock("it"));
        runtime.block_on(async {
            let guard = lock.lock().await.unwrap();
            assert!(guard.token() > 0 && !guard.lost().is_cancelled());
            assert!(lock.try_lock().await.unwrap().is_none());
            assert!(theirs.try_lock().unwrap().is_none());
            guard.unlock().await.unwrap();
            let again = lock.try_lock().await.unwrap().expect("it is free");
            drop(again);
        });
        // It is released in the background, but at once.
        assert!(theirs.try_lock_for(LONG).unwrap().is_some());
    }
}

/// The runtime of a test has far fewer threads for blocking work than there are tasks.
#[test]
fn two_thousand_tasks_wait_with_one_thread_and_block_nobody() {
    const TASKS: usize = 2000;
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let runtime =
        Builder::new_multi_thread().worker_threads(2).max_blocking_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let lock = client.reentrant_lock("crowd");
        let held = AsyncLock::new(lock.clone()).lock().await.unwrap();
        let (inside, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..TASKS {
            // Each with a handle of its own, as handlers of requests have.
            let (lock, inside, done) = (AsyncLock::new(lock.clone()), inside.clone(), done.clone());
            tasks.spawn(async move {
                let guard = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                done.fetch_add(1, Ordering::SeqCst);
                guard.unlock().await.unwrap();
            });
        }
        wait_until(LONG, "one waits", || lock.local_queue_length() == 1);
        // The runtime's threads for blocking work are not used up.
        timeout(LONG, tokio::fs::metadata("/proc")).await.expect("no deadlock").unwrap();
        assert_eq!(lock.local_queue_length(), 1);
        held.unlock().await.unwrap();
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        assert_eq!(done.load(Ordering::SeqCst), TASKS);
    });
}

#[test]
fn a_lock_has_one_thread_however_many_tasks_wait() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (Client::connect(&server.url()).unwrap(), Client::connect(&server.url()).unwrap());
    let theirs = other.reentrant_lock("one thread");
    let held = theirs.lock_owned().unwrap();
    let lock = client.reentrant_lock("one thread");
    for runtime in runtimes() {
        runtime.block_on(async {
            let mut tasks = JoinSet::new();
            for _ in 0..100 {
                let lock = AsyncLock::new(lock.clone());
                tasks.spawn(async move { timeout(ms(300), lock.lock()).await.is_err() });
            }
            let mut given_up = 0;
            while let Some(task) = tasks.join_next().await {
                assert!(lock.local_queue_length() <= 1);
                given_up += usize::from(task.unwrap());
            }
            assert_eq!(given_up, 100);
        });
        // A dropped future leaves no waiter behind, here or in Redis.
        wait_until(LONG, "nobody waits", || {
            theirs.queue_length().unwrap() == 0 && lock.local_queue_length() == 0
        });
    }
    held.unlock().unwrap();
    assert!(lock.try_lock_for(LONG).unwrap().is_some(), "what was granted to nobody is given back");
}

#[test]
fn tasks_are_served_in_order_of_arrival() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lock = AsyncLock::new(client.simple_lock("order"));
        let held = lock.lock().await.unwrap();
        let turn = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for i in 0..20 {
            let (lock, turn) = (lock.clone(), turn.clone());
            tasks.spawn(async move {
                let guard = lock.lock().await.unwrap();
                assert_eq!(turn.fetch_add(1, Ordering::SeqCst), i);
                guard.unlock().await.unwrap();
            });
        }
        // On this thread all of them ask before this task continues.
        tokio::task::yield_now().await;
        held.unlock().await.unwrap();
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
    });
}

#[test]
fn a_guard_may_be_dropped_outside_of_a_runtime() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let lock = AsyncLock::new(client.reentrant_lock("outside"));
    let semaphore = AsyncSemaphore::new(client.semaphore("permits"));
    semaphore.blocking().set_permits(2).unwrap();
    let (guard, permit) = {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { (lock.lock().await.unwrap(), semaphore.acquire(2).await.unwrap()) })
    };
    drop((guard, permit));
    wait_until(LONG, "all is released", || {
        !lock.blocking().is_locked().unwrap() && semaphore.blocking().available().unwrap() == 2
    });
    // On a thread that ends, too.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let guard = runtime.block_on(lock.lock()).unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    wait_until(LONG, "it is released", || !lock.blocking().is_locked().unwrap());
}

#[test]
fn permits_are_taken_in_order_and_given_back() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    for runtime in runtimes() {
        runtime.block_on(async {
            let semaphore = AsyncSemaphore::new(client.semaphore("printers"));
            semaphore.blocking().try_set_permits(3).unwrap();
            let two = semaphore.acquire(2).await.unwrap();
            assert_eq!(two.permits(), 2);
            assert!(semaphore.try_acquire(2).await.unwrap().is_none());
            let one = semaphore.try_acquire(1).await.unwrap().expect("one is left");
            assert!(timeout(ms(50), semaphore.acquire(1)).await.is_err());
            let error = semaphore.acquire(4).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused);
            one.release().await.unwrap();
            drop(two);
            semaphore.acquire(3).await.unwrap().release().await.unwrap();
        });
    }
}

/// Also while others wait, however long that takes.
#[test]
fn a_number_of_permits_that_cannot_be_is_told_at_once() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let semaphore = AsyncSemaphore::new(client.semaphore("numbers"));
        semaphore.blocking().set_permits(1).unwrap();
        let held = semaphore.acquire(1).await.unwrap();
        let waits = tokio::spawn({
            let semaphore = semaphore.clone();
            async move { semaphore.acquire(1).await.unwrap().release().await }
        });
        let queued = async {
            while client.lock_with_kind("numbers", Permits::default()).local_queue_length() == 0 {
                tokio::task::yield_now().await;
            }
        };
        timeout(LONG, queued).await.expect("it waits");
        for n in [0, 1 << 31] {
            let error = timeout(LONG, semaphore.acquire(n)).await.expect("it waits for its turn");
            assert_eq!(
                error.unwrap_err().to_string(),
                semaphore.blocking().acquire(n).unwrap_err().to_string()
            );
            assert_eq!(semaphore.try_acquire(n).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        held.release().await.unwrap();
        waits.await.unwrap().unwrap();
    });
}

#[test]
fn many_tasks_read_or_one_writes() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    for runtime in runtimes() {
        runtime.block_on(async {
            let lock = AsyncReadWriteLock::new(client.read_write_lock("prices"));
            let readers = [lock.read().await.unwrap(), lock.read().await.unwrap()];
            assert!(lock.write_lock().try_lock().await.unwrap().is_none());
            let writes = tokio::spawn({
                let lock = lock.clone();
                async move { lock.write().await.unwrap().token() }
            });
            for reader in readers {
                reader.unlock().await.unwrap();
            }
            assert!(writes.await.unwrap() > 0);
            assert!(timeout(LONG, lock.read()).await.unwrap().unwrap().value() > 0);
        });
    }
}

#[test]
fn a_loss_ends_the_work() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    for runtime in runtimes() {
        runtime.block_on(async {
            let lock = AsyncLock::new(client.reentrant_lock("lost"));
            let guard = lock.lock().await.unwrap();
            let lost = guard.lost();
            assert!(lock.blocking().force_unlock().unwrap().holders > 0);
            timeout(LONG, lost.cancelled()).await.expect("it is told");
            assert!(guard.unlock().await.unwrap_err().is_lease_lost());
        });
    }
}

#[test]
fn what_cannot_work_is_told_by_each_call() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let nameless = AsyncLock::new(client.reentrant_lock(""));
        assert_eq!(nameless.lock().await.unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(nameless.try_lock().await.unwrap_err().kind(), ErrorKind::InvalidInput);
        let lock = AsyncLock::new(client.reentrant_lock("closed"));
        client.close().unwrap();
        assert_eq!(lock.lock().await.unwrap_err().kind(), ErrorKind::Closed);
    });
}

/// No thread of the runtime sends a request: those that do have names of their own.
#[test]
fn threads_are_named() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let lock = AsyncLock::new(client.reentrant_lock("named"));
        lock.lock().await.unwrap().unlock().await.unwrap();
    });
    assert!(threads("rc-async-wait") >= 1 && threads("rc-async") >= 2);
}

/// A kind whose value panics when a thread of the crate drops it.
#[derive(Clone, Debug, Default)]
struct Panics;

static PANICS: AtomicUsize = AtomicUsize::new(0);

impl Drop for Panics {
    fn drop(&mut self) {
        if std::thread::current().name().is_some_and(|name| name.starts_with("rc-async")) {
            PANICS.fetch_add(1, Ordering::SeqCst);
            panic!("as it should");
        }
    }
}

impl Kind for Panics {
    const NAME: &'static str = "panics";
    const RULE: &'static str = rule_file!("../../examples/own_kind.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;

    fn args(&self) -> String {
        "1".to_owned()
    }
}

/// Polls a future once, and drops it.
fn begun(future: impl Future) {
    let mut context = Context::from_waker(Waker::noop());
    let _ = pin!(future).as_mut().poll(&mut context).is_ready();
}

#[test]
fn a_panic_costs_no_thread() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // More than there are threads for attempts, and each with the last handle of its lock.
        for i in 0..20 {
            let lock = |form| AsyncLock::new(client.lock_with_kind(&format!("{form} {i}"), Panics));
            let (tries, waits) = (lock("tries"), lock("waits"));
            begun(async move { tries.try_lock().await });
            begun(async move { waits.lock().await });
        }
        wait_until(LONG, "some panic", || PANICS.load(Ordering::SeqCst) >= 8);
        let lock = AsyncLock::new(client.reentrant_lock("beside"));
        let guard = timeout(LONG, lock.try_lock()).await.expect("there is a thread").unwrap().unwrap();
        timeout(LONG, guard.unlock()).await.expect("there is a thread").unwrap();
    });
}

/// What docs/async.md warns of: waits on the runtime's threads for blocking work leave none for the release.
#[test]
fn waits_on_the_runtimes_threads_are_a_deadlock() {
    const THREADS: usize = 4;
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(THREADS)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let lock = client.reentrant_lock("deadlock");
        let held = lock.lock_owned().unwrap();
        let cancel = CancellationToken::new();
        for _ in 0..THREADS {
            let (lock, cancel) = (lock.clone(), cancel.clone());
            tokio::task::spawn_blocking(move || lock.lock_owned_with(&cancel).map(drop));
        }
        wait_until(LONG, "all threads wait", || lock.local_queue_length() == THREADS);
        let mut release = tokio::task::spawn_blocking(move || held.unlock());
        assert!(timeout(ms(300), &mut release).await.is_err(), "it has no thread");
        cancel.cancel();
        timeout(LONG, release).await.unwrap().unwrap().unwrap();
    });
}
