//! In a forked child a call fails, and does not hang: the threads that would serve it are the parent's.

#[path = "../../tests/fork/child.rs"]
mod child;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use redis_concurrent::{Client, Error, ErrorKind};
use redis_concurrent_testkit::{RedisServer, wait_until};
use redis_concurrent_tokio::{AsyncLock, AsyncSemaphore};

use child::in_child;

/// Long enough for anything that is sure to happen.
const LONG: Duration = Duration::from_secs(30);

/// Returns the outcome of a future that must be ready at once: in the child nothing would wake it.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(outcome) => outcome,
        Poll::Pending => panic!("it waits"),
    }
}

fn forked<T>(future: impl Future<Output = Result<T, Error>>) {
    assert!(at_once(future).is_err_and(|error| error.kind() == ErrorKind::Forked));
}

#[test]
fn a_forked_child_is_refused_at_once() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let (lock, semaphore) =
        (AsyncLock::new(client.reentrant_lock("x")), AsyncSemaphore::new(client.semaphore("permits")));
    semaphore.blocking().set_permits(2).unwrap();
    // The threads exist, one task holds the lock, and one has its turn.
    let mut held = Some(runtime.block_on(lock.lock()).unwrap());
    let mut permit = Some(runtime.block_on(semaphore.acquire(1)).unwrap());
    drop(runtime.block_on(semaphore.try_acquire(1)).unwrap());
    let waits = runtime.spawn({
        let lock = lock.clone();
        async move { lock.lock().await.map(drop) }
    });
    wait_until(LONG, "it waits", || lock.blocking().local_queue_length() == 1);
    in_child(|| {
        forked(lock.lock());
        forked(lock.try_lock());
        forked(AsyncLock::new(client.reentrant_lock("made in the child")).lock());
        forked(semaphore.acquire(1));
        forked(semaphore.try_acquire(1));
        forked(held.take().unwrap().unlock());
        drop(permit.take());
    });
    // The parent is unharmed.
    runtime.block_on(held.take().unwrap().unlock()).unwrap();
    runtime.block_on(waits).unwrap().unwrap();
    runtime.block_on(permit.take().unwrap().release()).unwrap();
    wait_until(LONG, "all is released", || semaphore.blocking().available().unwrap() == 2);
}
