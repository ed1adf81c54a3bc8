//! Cancellation: a flag that wakes the waiters on it.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Tells waiting calls to stop. Clones share one flag; once cancelled it stays cancelled.
///
/// ```
/// use std::time::Duration;
/// use redis_concurrent::CancellationToken;
///
/// let token = CancellationToken::new();
/// let child = token.child();
/// assert!(!child.wait_timeout(Duration::from_millis(1)));
/// token.cancel();
/// assert!(child.is_cancelled() && child.wait_timeout(Duration::from_secs(60)));
/// ```
///
/// In async code, [`cancelled`](CancellationToken::cancelled) is a future that ends when the token is cancelled. In a
/// `select!` of [`crossbeam_channel`](crate::crossbeam_channel), [`receiver`](CancellationToken::receiver) becomes
/// ready (disconnected) then.
#[derive(Clone, Default)]
pub struct CancellationToken(Arc<Inner>);

#[derive(Default)]
struct Inner {
    cancelled: AtomicBool,
    state: Mutex<State>,
}

/// Called once, when the token is cancelled, on the cancelling thread.
type Waker = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    wakers: Vec<(u64, Waker)>,
    next: u64,
    children: Vec<Weak<Inner>>,
    /// Those that cancel it, until it is cancelled: they live for as long as it does. (They know it only weakly.)
    parents: Vec<Arc<Inner>>,
    // Created on first use. No message is ever sent: dropping the sender is the message.
    channel: Option<(Option<Sender<()>>, Receiver<()>)>,
}

impl State {
    /// The waker of this number, which is not called any more; those that are left stay in their order.
    fn take_waker(&mut self, id: u64) -> Option<Waker> {
        let at = self.wakers.iter().position(|(other, _)| *other == id)?;
        Some(self.wakers.remove(at).1)
    }
}

impl CancellationToken {
    /// A token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels this token and its children, and wakes every call that waits with one of them. Does not block;
    /// calling it again has no effect.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// A token that is cancelled with this one, and can be cancelled alone. This one lives for as long as the child does,
    /// until it is cancelled.
    #[must_use]
    pub fn child(&self) -> CancellationToken {
        let child = CancellationToken::new();
        self.cancels(&child);
        child
    }

    /// From now on `other`, which must not cancel this token, is cancelled with it, at once if it is already cancelled.
    pub(crate) fn cancels(&self, other: &CancellationToken) {
        let mut state = self.0.state.lock();
        if self.is_cancelled() {
            drop(state);
            other.cancel();
            return;
        }
        state.children.retain(|c| c.strong_count() > 0);
        state.children.push(Arc::downgrade(&other.0));
        drop(state);
        let mut state = other.0.state.lock();
        if !other.is_cancelled() {
            state.parents.push(self.0.clone());
        }
    }

    /// Waits until the token is cancelled, for at most `timeout`. Returns whether it is.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        // No message is ever sent, so this ends by the timeout or by the cancellation.
        let _ = self.receiver().recv_timeout(timeout);
        self.is_cancelled()
    }

    /// A channel for `select!` that is disconnected when the token is cancelled, and never
    /// carries a message.
    ///
    /// It does not keep the token alive, and is disconnected when the last clone of the token, and of every child of it
    /// that is not cancelled, is gone, too: keep the token for as long as you use the channel
    /// (`token.child().receiver()` does not). What a guard's `lost` returns lives with the hold.
    pub fn receiver(&self) -> Receiver<()> {
        let mut state = self.0.state.lock();
        let cancelled = self.is_cancelled();
        let (_, receiver) = state.channel.get_or_insert_with(|| {
            let (sender, receiver) = bounded(0);
            ((!cancelled).then_some(sender), receiver)
        });
        receiver.clone()
    }

    /// A future that ends when the token is cancelled, in any async runtime; dropped before, it leaves nothing
    /// behind. With it `tokio::select!` ends work whose lock is lost: `_ = guard.lost().cancelled() => …`.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        Cancelled { token: self.clone(), id: None }
    }

    /// Calls `then` once when the token is cancelled, on the thread that cancels it; at once, and on this one, if it was
    /// cancelled before. Not any more when the registration is dropped (but a call that has begun goes on). `then` must
    /// be quick: others that wait with the token are woken after it.
    ///
    /// A loss cancels [`lost`](crate::Guard::lost) on a thread that keeps other holds alive: start there what takes
    /// time, and wait for nothing. A panic in `then` ends there: nobody is told of it but the panic hook, the others that
    /// wait are woken, and `cancel` returns. (Called at once, it panics to its caller.)
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use redis_concurrent::CancellationToken;
    ///
    /// let (sender, receiver) = channel();
    /// let token = CancellationToken::new();
    /// let registered = token.on_cancel(move || drop(sender.send("stop")));
    /// token.cancel();
    /// assert_eq!(receiver.recv(), Ok("stop"));
    /// drop(registered);
    /// ```
    pub fn on_cancel(&self, then: impl Fn() + Send + Sync + 'static) -> OnCancel<'_> {
        let mut state = self.0.state.lock();
        if self.is_cancelled() {
            drop(state);
            then();
            return OnCancel { token: self, id: None };
        }
        let id = state.next;
        state.next += 1;
        state.wakers.push((id, Arc::new(then)));
        OnCancel { token: self, id: Some(id) }
    }

    /// Calls `waker` once when the token is cancelled (at once if it is already), as long as the token lives.
    pub(crate) fn when_cancelled(&self, waker: impl Fn() + Send + Sync + 'static) {
        self.on_cancel(waker).keep();
    }
}

impl Inner {
    /// Cancels it, and then its children in their order, with theirs: one after the other, as a chain of them may be
    /// longer than a thread's stack.
    fn cancel(&self) {
        let mut next = self.cancel_alone();
        next.reverse();
        while let Some(child) = next.pop() {
            if let Some(child) = child.upgrade() {
                next.extend(child.cancel_alone().into_iter().rev());
            }
        }
    }

    /// Cancels it and wakes those that wait with it. Returns its children.
    fn cancel_alone(&self) -> Vec<Weak<Inner>> {
        let (wakers, children, _parents);
        {
            let mut state = self.state.lock();
            if self.cancelled.swap(true, Ordering::AcqRel) {
                return Vec::new();
            }
            wakers = std::mem::take(&mut state.wakers);
            children = std::mem::take(&mut state.children);
            _parents = std::mem::take(&mut state.parents);
            if let Some((sender, _)) = &mut state.channel {
                *sender = None;
            }
        }
        // Outside the mutex: a waker takes the mutex of what it wakes.
        for (_, wake) in wakers {
            // A panic in one stops here, because the others must wake, and locks must go on.
            let _ = catch_unwind(AssertUnwindSafe(move || wake()));
        }
        children
    }

    fn take_parents(&mut self) -> Vec<Arc<Inner>> {
        std::mem::take(&mut self.state.get_mut().parents)
    }
}

impl Drop for Inner {
    /// Its parents go one after the other, as a chain of them may be longer than a thread's stack.
    fn drop(&mut self) {
        let mut parents = self.take_parents();
        while let Some(parent) = parents.pop() {
            if let Some(mut last) = Arc::into_inner(parent) {
                parents.extend(last.take_parents());
            }
        }
    }
}

/// See [`CancellationToken::cancelled`].
struct Cancelled {
    token: CancellationToken,
    /// The number of its waker, which a task that polls it anew replaces.
    id: Option<u64>,
}

impl Cancelled {
    fn forget(&mut self) {
        if let Some(id) = self.id.take() {
            drop(OnCancel { token: &self.token, id: Some(id) });
        }
    }
}

impl Future for Cancelled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.forget();
        let waker = context.waker().clone();
        let id = self.token.on_cancel(move || waker.wake_by_ref()).keep();
        self.id = id;
        // It wakes at once where the token is cancelled by now, and then need not be polled again.
        if self.token.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Cancelled {
    fn drop(&mut self) {
        self.forget();
    }
}

impl fmt::Debug for CancellationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CancellationToken").field("cancelled", &self.is_cancelled()).finish()
    }
}

/// What is to be called when a token is cancelled, unless this is dropped before: see
/// [`CancellationToken::on_cancel`].
#[must_use = "dropped at once, it is never called"]
pub struct OnCancel<'a> {
    token: &'a CancellationToken,
    id: Option<u64>,
}

impl fmt::Debug for OnCancel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnCancel").field("token", self.token).finish()
    }
}

impl OnCancel<'_> {
    /// It stays when this is dropped; its number, unless the token is cancelled.
    fn keep(mut self) -> Option<u64> {
        self.id.take()
    }
}

impl Drop for OnCancel<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let gone = self.token.0.state.lock().take_waker(id);
            // Outside the mutex: what it owns may use the token when it goes.
            drop(gone);
        }
    }
}

#[cfg(test)]
#[path = "../verify/unit/cancel.rs"]
mod tests;
