//! shuttle's threads and mutexes, with the names and behavior of parking_lot.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use shuttle::rand::Rng as _;
use shuttle::sync as inner;

use super::time::{self, Sleeper};
use crate::clock::Moment;

/// uuids that the scheduler draws.
pub(crate) struct Random;

impl Random {
    pub(crate) fn new_v4() -> uuid::Uuid {
        uuid::Builder::from_random_bytes(shuttle::rand::thread_rng().r#gen()).into_uuid()
    }
}

// ---- mutex -----------------------------------------------------------------------------------

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(inner::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    /// `None` while it is unlocked.
    held: Option<inner::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Mutex(inner::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, held: Some(self.take()) }
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> inner::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> MutexGuard<'_, T> {
    /// Calls `f` while the mutex is unlocked.
    pub(crate) fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        guard.held = None;
        let result = f();
        guard.held = Some(guard.mutex.take());
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("locked again before anybody looks")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("locked again before anybody looks")
    }
}

/// The mutex of a static. All tests of this OS process share it, and each of them is a process of its own to the library:
/// those of each OS thread have one of their own.
pub(crate) struct Global<T: 'static>(std::sync::Mutex<Vec<(ThreadId, &'static Mutex<T>)>>);

impl<T: Default> Global<T> {
    /// Each begins with the default.
    pub(crate) const fn new(first: T) -> Self {
        std::mem::forget(first);
        Global(std::sync::Mutex::new(Vec::new()))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        let here = std::thread::current().id();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = all.iter().find(|(thread, _)| *thread == here).map(|(_, mutex)| *mutex);
        let mutex = known.unwrap_or_else(|| {
            let new: &'static Mutex<T> = Box::leak(Box::default());
            all.push((here, new));
            new
        });
        drop(all);
        mutex.lock()
    }
}

#[derive(Default)]
pub(crate) struct RwLock<T>(inner::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) fn new(value: T) -> Self {
        RwLock(inner::RwLock::new(value))
    }

    pub(crate) fn read(&self) -> inner::RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> inner::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

// ---- condvar ---------------------------------------------------------------------------------

#[derive(Default)]
pub(crate) struct Condvar(std::sync::Mutex<VecDeque<Arc<Sleeper>>>);

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn sleepers(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Sleeper>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn notify_one(&self) {
        step();
        while let Some(sleeper) = self.next() {
            if sleeper.wake(false) {
                return;
            }
        }
    }

    pub(crate) fn notify_all(&self) {
        step();
        while let Some(sleeper) = self.next() {
            sleeper.wake(false);
        }
    }

    fn next(&self) -> Option<Arc<Sleeper>> {
        self.sleepers().pop_front()
    }

    pub(crate) fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        self.sleep(guard, None);
    }

    /// Returns whether the deadline had passed.
    pub(crate) fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Moment) -> bool {
        self.sleep(guard, Some(deadline))
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> bool {
        self.sleep(guard, Some(time::now().after(limit)))
    }

    fn sleep<T>(&self, guard: &mut MutexGuard<'_, T>, deadline: Option<Moment>) -> bool {
        // Registered before the mutex is free, so that a notification by a thread that then takes it is not
        // missed.
        let sleeper = Sleeper::until(deadline);
        self.sleepers().push_back(sleeper.clone());
        let by_time = MutexGuard::unlocked(guard, || sleeper.clone().sleep());
        self.sleepers().retain(|other| !Arc::ptr_eq(other, &sleeper));
        by_time
    }
}

/// A step at which another thread may run.
fn step() {
    shuttle::thread::sleep(Duration::ZERO);
}

// ---- thread ----------------------------------------------------------------------------------

pub(crate) mod thread {
    //! Threads that are counted: time passes only when all of them wait.

    use std::io;

    use super::time;

    /// A pause is a step where time does not pass by itself.
    pub(crate) fn sleep(pause: std::time::Duration) {
        if time::passes() { time::sleep(pause) } else { shuttle::thread::sleep(pause) }
    }

    #[derive(Default)]
    pub(crate) struct Builder(String);

    impl Builder {
        pub(crate) fn new() -> Self {
            Self::default()
        }

        pub(crate) fn name(self, name: String) -> Self {
            Builder(name)
        }

        pub(crate) fn spawn(self, f: impl FnOnce() + Send + 'static) -> io::Result<()> {
            let Builder(name) = self;
            time::thread_begins(&name);
            let process = time::process();
            shuttle::thread::Builder::new().name(name.clone()).spawn(move || {
                time::belongs_to(process);
                f();
                time::thread_ends(&name);
            })?;
            Ok(())
        }

        pub(crate) fn spawn_scoped<T>(self, _: &Scope, f: impl FnOnce() -> T) -> io::Result<Ended<T>> {
            Ok(Ended(f()))
        }
    }

    /// No schedule has a client with several servers, which would have such threads: they run as soon as they
    /// are started.
    pub(crate) struct Scope;

    pub(crate) fn scope<T>(f: impl FnOnce(&Scope) -> T) -> T {
        f(&Scope)
    }

    pub(crate) struct Ended<T>(T);

    impl<T> Ended<T> {
        pub(crate) fn join(self) -> std::thread::Result<T> {
            Ok(self.0)
        }
    }
}
