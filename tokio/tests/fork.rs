//! In a forked child a call is refused, and does not hang: the threads that would serve it are the parent's.

// There is no way to fork but the C library's.
#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use redis_concurrent::{Client, Error, ErrorKind};
use redis_concurrent_testkit::{RedisServer, wait_until};
use redis_concurrent_tokio::{AsyncLock, AsyncSemaphore};

/// Long enough for whatever is sure to come.
const LONG: Duration = Duration::from_secs(30);

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn _exit(status: i32) -> !;
}

const WNOHANG: i32 = 1;
const SIGKILL: i32 = 9;

/// Runs `body` in a forked child, which ends with it; waits for that end.
#[track_caller]
fn in_child(body: impl FnOnce()) {
    // SAFETY: the child has this thread only, takes no lock of the standard library that another thread of ours could
    // have held, and leaves by `_exit`, without a destructor of what is the parent's.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    if pid == 0 {
        let ended = catch_unwind(AssertUnwindSafe(body));
        // SAFETY: as above.
        unsafe { _exit(i32::from(ended.is_err())) }
    }
    let (mut status, began) = (0, Instant::now());
    // SAFETY: `pid` is a child of ours that was not waited for yet, `status` lives.
    while unsafe { waitpid(pid, &raw mut status, WNOHANG) } == 0 {
        if began.elapsed() > LONG {
            // SAFETY: as above.
            unsafe {
                kill(pid, SIGKILL);
                waitpid(pid, &raw mut status, 0);
            }
            panic!("the forked child hangs");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(status, 0, "the forked child failed");
}

/// What a future has come to at once: in the child nobody would wake it.
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
    // The threads are there, one task holds and one has its turn.
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
