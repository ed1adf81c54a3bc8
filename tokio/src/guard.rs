//! The guards: a hold that is released without blocking the thread that drops it.

use std::fmt;
use std::ops::Deref;

use redis_concurrent::guard::Held;
use redis_concurrent::kinds::{Kind, Permits};
use redis_concurrent::{Error, OwnedGuard};

use crate::workers::{InBackground, RELEASES};

/// A hold of an [`AsyncLock`](crate::AsyncLock). Dropping it releases the hold in the background, without
/// blocking the thread that drops it, inside a runtime or not. It dereferences to its [`OwnedGuard`], which
/// has `token`, `remaining`, `lost` and `ends_within`. (`renew` and `renew_for` block for a request.)
///
/// A program that ends right after such a drop may end before the release. Then the lock is free only when
/// the lease has expired. So end with [`unlock`](AsyncGuard::unlock), or with
/// [`Client::close`](redis_concurrent::Client::close).
#[must_use = "a guard that is not kept releases at once"]
pub struct AsyncGuard<L: Held>
where
    OwnedGuard<L>: Send + 'static,
{
    guard: InBackground<OwnedGuard<L>>,
}

/// Permits of an [`AsyncSemaphore`](crate::AsyncSemaphore), returned in the way in which an [`AsyncGuard`]
/// releases its hold.
pub type AsyncPermit = AsyncGuard<Permits>;

impl<L: Held> AsyncGuard<L>
where
    OwnedGuard<L>: Send + 'static,
{
    pub(crate) fn new(guard: OwnedGuard<L>) -> Self {
        AsyncGuard { guard: InBackground::new(guard) }
    }

    /// Ends the hold. Once begun, this continues even if its future is dropped.
    async fn end(
        self,
        end: impl FnOnce(OwnedGuard<L>) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let guard = self.guard.into_inner();
        let name = guard.name().to_owned();
        RELEASES.outcome(&name, move || end(guard)).await
    }
}

impl<K: Kind> AsyncGuard<K>
where
    OwnedGuard<K>: Send + 'static,
{
    /// Releases the hold, with a request of at most the command timeout. The request is sent at once, unless
    /// 64 releases of this process are in progress; then it is sent when one of them ends. The hold is
    /// released even if the future is dropped, before or after it was first polled.
    ///
    /// # Errors
    /// Those of [`Guard::unlock`](redis_concurrent::Guard::unlock).
    pub async fn unlock(self) -> Result<(), Error> {
        self.end(OwnedGuard::unlock).await
    }
}

impl AsyncPermit {
    /// Returns all permits: see [`unlock`](AsyncGuard::unlock).
    ///
    /// # Errors
    /// Those of [`Guard::unlock`](redis_concurrent::Guard::unlock).
    pub async fn release(self) -> Result<(), Error> {
        self.end(OwnedGuard::release).await
    }
}

impl<L: Held> Deref for AsyncGuard<L>
where
    OwnedGuard<L>: Send + 'static,
{
    type Target = OwnedGuard<L>;

    fn deref(&self) -> &OwnedGuard<L> {
        self.guard.get()
    }
}

impl<L: Held> fmt::Debug for AsyncGuard<L>
where
    OwnedGuard<L>: Send + 'static,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncGuard").field(self.guard.get()).finish()
    }
}
