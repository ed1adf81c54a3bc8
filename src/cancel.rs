//! Cancellation: a flag that wakes its waiters when it is set.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Cancels waiting calls. Clones share one flag; once cancelled, a token stays cancelled.
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
/// In async code, [`cancelled`](CancellationToken::cancelled) is a future that completes when the token is
/// cancelled. In a `select!` of [`crossbeam_channel`],
/// [`receiver`](CancellationToken::receiver) becomes ready (disconnected) then.
#[derive(Clone, Default)]
pub struct CancellationToken(Arc<Inner>);

#[derive(Default)]
struct Inner {
    cancelled: AtomicBool,
    state: Mutex<State>,
}

/// Called once, when the token is cancelled, on the cancelling thread.
pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

#[derive(Default)]
struct State {
    /// By their numbers, which are in the order in which they came.
    wakers: BTreeMap<u64, Waker>,
    next: u64,
    children: Vec<WeakToken>,
    /// The tokens that cancel this one, kept alive until it is cancelled. (They refer to it only weakly.)
    parents: Vec<Arc<Inner>>,
    // Created on first use. No message is ever sent: dropping the sender is the message.
    channel: Option<(Option<Sender<()>>, Receiver<()>)>,
}

/// A token that does not keep it alive.
#[derive(Clone)]
pub(crate) struct WeakToken(Weak<Inner>);

impl WeakToken {
    pub(crate) fn upgrade(&self) -> Option<CancellationToken> {
        self.0.upgrade().map(CancellationToken)
    }

    /// Whether anything keeps the token alive.
    pub(crate) fn is_kept(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// Appends to a list that may contain what is no longer needed. That is removed when the list would grow: at
/// most as much of it stays as is needed, and an insertion costs the same however long the list is.
pub(crate) fn push_swept<T>(list: &mut Vec<T>, item: T, is_needed: impl FnMut(&T) -> bool) {
    if list.len() == list.capacity() {
        list.retain(is_needed);
        list.reserve(list.len().max(4));
    }
    list.push(item);
}

impl CancellationToken {
    /// Creates a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels this token and its children, and wakes every call that waits with one of them. Does not block.
    /// Calling it again has no effect.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Whether it has been cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    /// Returns a token that is cancelled with this one, and can be cancelled alone. Until it is cancelled,
    /// the child keeps this token alive.
    #[must_use]
    pub fn child(&self) -> CancellationToken {
        let child = CancellationToken::new();
        self.cancels(&child);
        child
    }

    /// Cancels `other` when this token is cancelled; at once if it already is. `other` must not in turn
    /// cancel this token.
    pub(crate) fn cancels(&self, other: &CancellationToken) {
        let mut state = self.0.state.lock();
        if self.is_cancelled() {
            drop(state);
            other.cancel();
            return;
        }
        push_swept(&mut state.children, other.downgrade(), WeakToken::is_kept);
        drop(state);
        let mut state = other.0.state.lock();
        if !other.is_cancelled() {
            state.parents.push(self.0.clone());
        }
    }

    pub(crate) fn downgrade(&self) -> WeakToken {
        WeakToken(Arc::downgrade(&self.0))
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
    /// The channel does not keep the token alive. It is also disconnected when the last clone of the token,
    /// and of each of its children that is not cancelled, is dropped: keep the token for as long as you use
    /// the channel (`token.child().receiver()` does not). The token that a guard's `lost` returns lives as
    /// long as the hold.
    pub fn receiver(&self) -> Receiver<()> {
        let mut state = self.0.state.lock();
        let cancelled = self.is_cancelled();
        let (_, receiver) = state.channel.get_or_insert_with(|| {
            let (sender, receiver) = bounded(0);
            ((!cancelled).then_some(sender), receiver)
        });
        receiver.clone()
    }

    /// A future that completes when the token is cancelled, in any async runtime. Dropped earlier, it leaves
    /// nothing behind. With it, `tokio::select!` ends work whose lock is lost:
    /// `_ = guard.lost().cancelled() => …`.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        let (token, mut registered) = (self.clone(), None::<OnCancel>);
        poll_fn(move |context| {
            // Each poll replaces the waker of the last one.
            drop(registered.take());
            let waker = context.waker().clone();
            registered = Some(token.on_cancel(Arc::new(move || waker.wake_by_ref())));
            // If the token was already cancelled, the waker was called at once; no further poll is needed.
            if token.is_cancelled() { Poll::Ready(()) } else { Poll::Pending }
        })
    }

    /// Calls `then` once when the token is cancelled, on the thread that cancels it; if it already is, at
    /// once, on the calling thread. Dropping the registration revokes it, but does not stop a call that has
    /// begun. `then` must be quick: the token's other waiters are woken after it. A panic in it is caught.
    pub(crate) fn on_cancel(&self, then: Waker) -> OnCancel {
        let mut state = self.0.state.lock();
        if self.is_cancelled() {
            drop(state);
            then();
            return OnCancel { token: self.clone(), id: None };
        }
        let id = state.next;
        state.next += 1;
        state.wakers.insert(id, then);
        OnCancel { token: self.clone(), id: Some(id) }
    }

    /// Calls `waker` once when the token is cancelled (at once if it already is), as long as the token lives.
    pub(crate) fn when_cancelled(&self, waker: Waker) {
        self.on_cancel(waker).id = None;
    }
}

impl Inner {
    /// Cancels this token, then its descendants in order. Not recursively: a chain of tokens may be too long
    /// for a thread's stack.
    fn cancel(&self) {
        let mut next = self.cancel_alone();
        next.reverse();
        while let Some(child) = next.pop() {
            if let Some(child) = child.0.upgrade() {
                next.extend(child.cancel_alone().into_iter().rev());
            }
        }
    }

    /// Cancels this token alone and wakes its waiters. Returns its children.
    fn cancel_alone(&self) -> Vec<WeakToken> {
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
        // Outside the mutex: a waker locks the mutex of what it wakes.
        for wake in wakers.into_values() {
            // A panicking waker must not keep the others asleep, nor end a thread that keeps locks alive.
            let _ = catch_unwind(AssertUnwindSafe(move || wake()));
        }
        children
    }

    fn take_parents(&mut self) -> Vec<Arc<Inner>> {
        std::mem::take(&mut self.state.get_mut().parents)
    }
}

impl Drop for Inner {
    /// Drops the parents one by one, not recursively: a chain of them may be too long for a thread's stack.
    fn drop(&mut self) {
        let mut parents = self.take_parents();
        while let Some(parent) = parents.pop() {
            if let Some(mut last) = Arc::into_inner(parent) {
                parents.extend(last.take_parents());
            }
        }
    }
}

shows!(CancellationToken as "CancellationToken", |it| "cancelled": it.is_cancelled());

/// A callback that is called when its token is cancelled, unless this is dropped first: see
/// [`CancellationToken::on_cancel`].
#[must_use = "dropped at once, it is never called"]
pub(crate) struct OnCancel {
    token: CancellationToken,
    /// The callback's number; `None` if the token was already cancelled, or the callback stays.
    id: Option<u64>,
}

impl Drop for OnCancel {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let gone = self.token.0.state.lock().wakers.remove(&id);
            // Dropped outside the mutex: what the callback owns may use the token in its own `drop`.
            drop(gone);
        }
    }
}

#[cfg(test)]
#[path = "../verify/unit/cancel.rs"]
mod tests;
