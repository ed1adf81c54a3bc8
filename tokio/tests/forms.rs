//! What tasks can do besides waiting for a lock: give up after a time, do work once, lead, be limited, and use a fake.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use redis_concurrent::observe::{LockInfo, Observer};
use redis_concurrent::once::{Begun, Ending};
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, Lock, LockGuard, MultiLock, Wait};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};
use redis_concurrent_tokio::{
    AsyncAnyLock, AsyncBegun, AsyncElection, AsyncLock, AsyncOnce, AsyncRateLimiter, AsyncSemaphore,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Long enough for anything that is sure to happen.
const LONG: Duration = Duration::from_secs(30);

/// Without a clock of its own.
fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn a_task_gives_up_in_time_also_behind_others() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (Client::connect(&server.url()).unwrap(), Client::connect(&server.url()).unwrap());
    other.semaphore("permits").set_permits(2).unwrap();
    let _held =
        (other.reentrant_lock("it").lock_owned().unwrap(), other.semaphore("permits").acquire(1).unwrap());
    let lock = AsyncLock::new(client.reentrant_lock("it"));
    let permits = AsyncSemaphore::new(client.semaphore("permits"));
    runtime().block_on(async {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        // The first has its turn for longer than the others wait for theirs.
        for timeout in [ms(900), ms(300), ms(600), ms(0)] {
            let (lock, permits) = (lock.clone(), permits.clone());
            tasks.spawn(async move {
                assert!(lock.try_lock_for(timeout).await.unwrap().is_none());
                assert!(began.elapsed() >= timeout && began.elapsed() < timeout + LONG);
                let began = Instant::now();
                assert!(permits.try_acquire_for(2, timeout).await.unwrap().is_none());
                assert!(began.elapsed() >= timeout && began.elapsed() < timeout + LONG);
            });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap();
        }
        permits.try_acquire_for(1, LONG).await.unwrap().expect("one is left").release().await.unwrap();
        let free = AsyncLock::new(client.reentrant_lock("free"));
        free.try_lock_for(Duration::MAX).await.unwrap().expect("it is free").unlock().await.unwrap();
    });
}

/// With a runtime's timeout around a wait both would look the same.
#[test]
fn a_server_that_is_away_is_not_a_busy_lock() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = Client::connect(&proxy.url()).unwrap();
    let lock = AsyncLock::new(client.reentrant_lock("away"));
    proxy.refuse_connections(true).unwrap();
    proxy.cut_all();
    let error = runtime().block_on(lock.try_lock_for(ms(500))).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
}

#[test]
fn work_is_done_once_for_all_tasks_and_given_back_by_a_dropped_one() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    // A handle for each task.
    let once = || AsyncOnce::new(client.once("charge"));
    runtime().block_on(async {
        let (begins, begun) = tokio::sync::oneshot::channel();
        let mut first = tokio::spawn({
            let once = once();
            async move {
                let work = async |_, _| {
                    begins.send(()).unwrap();
                    std::future::pending().await
                };
                once.run(work).await.map(drop)
            }
        });
        begun.await.unwrap();
        assert!(matches!(once().blocking().try_begin().unwrap(), Begun::InProgress));
        first.abort();
        assert!((&mut first).await.unwrap_err().is_cancelled());
        let done = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for _ in 0..20 {
            let (once, done) = (once(), done.clone());
            tasks.spawn(async move {
                let work = async |token, lost: CancellationToken| {
                    assert!(token > 0 && !lost.is_cancelled());
                    done.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    Ok("receipt".to_owned())
                };
                once.run(work).await.unwrap()
            });
        }
        while let Some(ending) = tasks.join_next().await {
            assert_eq!(ending.unwrap(), Ending::Done("receipt".to_owned()));
        }
        assert_eq!(done.load(Ordering::SeqCst), 1);
        let failed = AsyncOnce::new(client.once("bad")).run(async |_, _| Err("no".to_owned())).await.unwrap();
        assert_eq!(failed, Ending::Failed("no".to_owned()));
    });
}

#[test]
fn a_task_that_does_not_wait_is_told_who_has_the_work() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let once = AsyncOnce::new(client.once("charge"));
    let begin = async || match once.try_begin().await.unwrap() {
        AsyncBegun::Yours(attempt) => attempt,
        other => panic!("{other:?}"),
    };
    runtime().block_on(async {
        let first = begin().await;
        assert!(matches!(once.try_begin().await.unwrap(), AsyncBegun::InProgress));
        let token = first.token();
        first.give_back().await.unwrap();
        // Given back in the background.
        drop(begin().await);
        wait_until(LONG, "it is given back", || {
            matches!(client.once("charge").try_begin().unwrap(), Begun::Yours(_))
        });
        let last = begin().await;
        assert!(last.token() > token && !last.lost().is_cancelled());
        last.done("receipt").await.unwrap();
        assert!(matches!(once.try_begin().await.unwrap(), AsyncBegun::Done(it) if it == "receipt"));
        assert!(once.blocking().forget().unwrap());
        begin().await.fail("no").await.unwrap();
        assert!(matches!(once.try_begin().await.unwrap(), AsyncBegun::Failed(why) if why == "no"));
    });
}

#[test]
fn a_task_leads_until_its_work_or_its_future_ends() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (Client::connect(&server.url()).unwrap(), Client::connect(&server.url()).unwrap());
    let election = AsyncElection::new(client.election("boss").value("a task"));
    runtime().block_on(async {
        let first = election
            .run(async |number, ending: CancellationToken| {
                assert_eq!(other.election("boss").leader().unwrap().unwrap().value, "a task");
                assert!(!ending.is_cancelled());
                number
            })
            .await
            .unwrap();
        assert!(other.election("boss").leader().unwrap().is_none());
        let (leads, led) = tokio::sync::oneshot::channel();
        let second = tokio::spawn({
            let election = election.clone();
            async move {
                let work = async |number, _| {
                    leads.send(number).unwrap();
                    std::future::pending::<()>().await;
                };
                election.run(work).await
            }
        });
        assert!(led.await.unwrap() > first);
        second.abort();
        assert!(second.await.unwrap_err().is_cancelled());
    });
    other.election("boss").campaign_with(LONG).unwrap().expect("the term is resigned").resign().unwrap();
}

/// Notes on which threads holds were given back.
#[derive(Clone, Default)]
struct GivenBack(Arc<Mutex<Vec<String>>>);

impl Observer for GivenBack {
    fn released(&self, _: LockInfo<'_>, _: Duration) {
        let thread = std::thread::current();
        self.0.lock().unwrap().push(thread.name().unwrap_or_default().to_owned());
    }
}

struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls a future once, before the server has answered, and drops it when it could go on.
fn dropped_when_ready(proxy: &Proxy, future: impl Future) {
    let woken = Arc::new(Woken(AtomicBool::new(false)));
    let waker = Waker::from(woken.clone());
    let mut future = pin!(future);
    proxy.hold_requests(true);
    assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    proxy.hold_requests(false);
    wait_until(LONG, "it has an outcome", || woken.0.load(Ordering::SeqCst));
}

/// As by a timeout that is up in the same moment.
#[test]
fn what_a_dropped_future_was_just_granted_is_given_back_by_another_thread() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let given_back = GivenBack::default();
    let client = Client::builder().url(&proxy.url()).drop_waits(true).observer(given_back.clone());
    let client = client.command_timeout(LONG).connect().unwrap();
    client.semaphore("permits").set_permits(1).unwrap();
    let (lock, permits) =
        (AsyncLock::new(client.reentrant_lock("x")), AsyncSemaphore::new(client.semaphore("permits")));
    let any = AsyncAnyLock::new(Arc::new(client.simple_lock("any")));
    let (once, election) =
        (AsyncOnce::new(client.once("charge")), AsyncElection::new(client.election("boss")));
    dropped_when_ready(&proxy, lock.lock());
    dropped_when_ready(&proxy, permits.acquire(1));
    dropped_when_ready(&proxy, any.lock());
    dropped_when_ready(&proxy, once.run(async |_, _| Ok("receipt".to_owned())));
    wait_until(LONG, "the attempt is given back", || given_back.0.lock().unwrap().len() == 4);
    dropped_when_ready(&proxy, once.try_begin());
    dropped_when_ready(&proxy, election.run(async |_, _| ()));
    wait_until(LONG, "all is given back", || given_back.0.lock().unwrap().len() == 6);
    let threads = given_back.0.lock().unwrap();
    assert!(threads.iter().all(|name| name == "rc-async-end"), "{threads:?}");
}

#[test]
fn tasks_wait_for_a_rate_without_a_thread() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let limiter = AsyncRateLimiter::new(client.rate_limiter("api", Rate::fixed_window(2, ms(300))));
    runtime().block_on(async {
        let began = Instant::now();
        let mut tasks = JoinSet::new();
        for _ in 0..7 {
            let limiter = limiter.clone();
            tasks.spawn(async move { limiter.acquire(1).await });
        }
        while let Some(done) = tasks.join_next().await {
            done.unwrap().unwrap();
        }
        // The last one is in the fourth window.
        assert!(began.elapsed() >= ms(600), "{:?}", began.elapsed());
        let slow = AsyncRateLimiter::new(client.rate_limiter("slow", Rate::fixed_window(1, LONG)));
        assert!(slow.try_acquire(1).await.unwrap().allowed);
        assert!(!slow.try_acquire_for(1, ms(50)).await.unwrap().allowed);
    });
}

#[test]
fn tasks_that_wait_for_the_same_permits_ask_in_turn() {
    const TASKS: u32 = 20;
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let rate = Rate::smooth_with_burst(TASKS, ms(600), 1);
    let limiter = AsyncRateLimiter::new(client.rate_limiter("in turn", rate));
    let before = client.request_count();
    runtime().block_on(async {
        let mut tasks = JoinSet::new();
        for i in 0..TASKS {
            let limiter = limiter.clone();
            let timeout = if i % 2 == 0 { LONG } else { Duration::MAX };
            tasks.spawn(async move { limiter.try_acquire_for(1, timeout).await.map(|it| it.allowed) });
        }
        while let Some(allowed) = tasks.join_next().await {
            assert!(allowed.unwrap().unwrap());
        }
    });
    // When they come, when their turn comes, and when there is room: not whenever there is room for one of them.
    let requests = client.request_count() - before;
    assert!(requests <= u64::from(4 * TASKS), "{requests}");
}

/// The time for which it would wait may be hours.
#[test]
fn a_task_that_waits_for_a_rate_learns_that_its_client_is_closed() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let limiter = AsyncRateLimiter::new(client.rate_limiter("slow", Rate::fixed_window(1, 10 * LONG)));
    runtime().block_on(async {
        limiter.acquire(1).await.unwrap();
        let closes = async {
            // By then those that wait have been told for how long.
            for _ in 0..3 {
                assert!(!limiter.try_acquire(1).await.unwrap().allowed);
            }
            std::thread::spawn(move || client.close()).join().unwrap()
        };
        let began = Instant::now();
        let waits = (limiter.acquire(1), limiter.try_acquire_for(1, 20 * LONG));
        let (first, second, closed) = tokio::join!(waits.0, waits.1, closes);
        closed.unwrap();
        assert_eq!(first.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(second.unwrap_err().kind(), ErrorKind::Closed);
        assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    });
}

/// Always lost.
#[derive(Debug)]
struct Lossy;

impl LockGuard for Lossy {
    fn name(&self) -> &str {
        "fake"
    }

    fn remaining(&self) -> Duration {
        Duration::ZERO
    }

    fn lost(&self) -> CancellationToken {
        let token = CancellationToken::new();
        token.cancel();
        token
    }

    fn unlock(self: Box<Self>) -> Result<(), Error> {
        Err(Error::new(ErrorKind::LeaseLost, "fake"))
    }
}

struct Fake;

impl Lock for Fake {
    fn name(&self) -> &str {
        "fake"
    }

    fn lock_with(&self, _: Wait<'_>) -> Result<Option<Box<dyn LockGuard>>, Error> {
        Ok(Some(Box::new(Lossy)))
    }

    fn lock_owned_with(&self, _: Wait<'_>) -> Result<Option<Box<dyn LockGuard + Send>>, Error> {
        Ok(Some(Box::new(Lossy)))
    }
}

#[test]
fn a_service_takes_any_lock_also_a_fake() {
    async fn service(lock: &AsyncAnyLock) -> Result<bool, Error> {
        let Some(guard) = lock.try_lock_for(ms(100)).await? else { return Ok(false) };
        guard
            .lost()
            .is_cancelled()
            .then_some(())
            .map_or(Ok(()), |()| Err(Error::new(ErrorKind::LeaseLost, "noticed")))?;
        guard.unlock().await.map(|()| true)
    }
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let (one, two) = (client.simple_lock("one"), client.simple_lock("two"));
    let both = AsyncAnyLock::new(Arc::new(MultiLock::new(&[&one, &two])));
    runtime().block_on(async {
        assert_eq!(service(&AsyncAnyLock::new(Arc::new(Fake))).await.unwrap_err().name(), "noticed");
        assert!(service(&both).await.unwrap());
        let held = one.lock_owned().unwrap();
        assert!(!service(&both).await.unwrap());
        assert!(both.try_lock().await.unwrap().is_none());
        held.unlock().unwrap();
        drop(both.lock().await.unwrap());
    });
    // It is released in the background.
    wait_until(LONG, "it is released", || !two.is_locked().unwrap());
}
