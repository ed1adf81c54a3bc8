//! The times at which tasks are woken. The crate knows no runtime, so it cannot use a runtime's clock.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;

use crate::workers::Workers;

/// One thread, as long as tasks wait for a time.
static CLOCK: std::sync::LazyLock<Workers> = std::sync::LazyLock::new(|| Workers::new("rc-async-clock", 1));
static TIMES: Mutex<Times> = Mutex::new(Times { woken: BTreeMap::new(), last: 0, runs: false });
static EARLIER: Condvar = Condvar::new();

struct Times {
    /// By the time, and a number of each.
    woken: BTreeMap<(Instant, u64), oneshot::Sender<()>>,
    last: u64,
    /// Whether the thread waits for the earliest.
    runs: bool,
}

/// Takes a time out if its task does not wait for it any more.
struct Entry((Instant, u64));

impl Drop for Entry {
    fn drop(&mut self) {
        TIMES.lock().woken.remove(&self.0);
    }
}

/// Waits until then; longer if no thread can be started.
async fn until(time: Instant) {
    let (sender, woken) = oneshot::channel();
    let (entry, starts) = {
        let mut times = TIMES.lock();
        times.last += 1;
        let key = (time, times.last);
        times.woken.insert(key, sender);
        let starts = !std::mem::replace(&mut times.runs, true);
        (Entry(key), starts)
    };
    if starts {
        let runs = Runs;
        CLOCK.run(move || work(runs));
    } else {
        EARLIER.notify_one();
    }
    if woken.await.is_err() {
        std::future::pending::<()>().await;
    }
    drop(entry);
}

/// If no thread can be started, the next caller tries it again.
struct Runs;

impl Drop for Runs {
    fn drop(&mut self) {
        TIMES.lock().runs = false;
    }
}

fn work(runs: Runs) {
    let mut times = TIMES.lock();
    while let Some((&(first, _), _)) = times.woken.first_key_value() {
        if first > Instant::now() {
            let _ = EARLIER.wait_until(&mut times, first);
        } else if let Some((_, sender)) = times.woken.pop_first() {
            let _ = sender.send(());
        }
    }
    // Together with the look that found nothing to wait for.
    times.runs = false;
    std::mem::forget(runs);
}

/// Returns the future's output; `None` if it is not ready by then.
pub(crate) async fn by<T>(time: Option<Instant>, future: impl Future<Output = T>) -> Option<T> {
    let Some(time) = time else { return Some(future.await) };
    let (mut future, mut late) = (pin!(future), pin!(until(time)));
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(it) => Poll::Ready(Some(it)),
        Poll::Pending => late.as_mut().poll(context).map(|()| None),
    })
    .await
}

/// Returns when so much time is over; `None` if that is never.
pub(crate) fn after(time: Duration) -> Option<Instant> {
    Instant::now().checked_add(time)
}
