//! Partitions: shards of work, shared out over the members.

use std::fmt;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis_concurrent::crossbeam_channel::{Receiver, select, unbounded};
use redis_concurrent::kinds::Reentrant;
use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, RedisLock, Wait};

use crate::keeper::Keeper;
use crate::members::{Member, Members, Membership};
use crate::place::Place;
use crate::plan::Plan;

/// The largest number of partitions: each may need a thread, and all are named in one reply of Redis.
const MOST: u32 = 1024;

/// A number of partitions of work under a name, shared out over the processes that have [joined](Partitions::join):
/// a handle, cheap to clone and to create. See [the crate](crate).
///
/// # Errors of all forms
///
/// Those of [`Members`](Members#errors-of-all-forms), with names of at most 1,006 bytes. `InvalidInput` if there are
/// no partitions, or more than 1,024. `Conflict` if the members share another number of partitions: the error names
/// one of them, this one, and both numbers. The number can only change while there are no members.
#[derive(Clone)]
pub struct Partitions {
    client: Client,
    name: String,
    count: u32,
    grace: Option<Duration>,
    members: Members,
}

/// Who owns a partition, as others see it: see [`Partitions::owners`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Owner {
    /// The number of the partition.
    pub partition: u32,
    /// The member that is to own it; `None` if there are no members.
    pub member: Option<Member>,
    /// The process that owns it now: `client name pid@host`. `None` while it is on its way to its member.
    pub held_by: Option<String>,
}

impl Partitions {
    /// The partitions 0 to `count - 1` of `name`; at most 1,024. Sends no request.
    pub fn new(client: &Client, name: &str, count: u32) -> Partitions {
        let members = Members::new(client, &format!("{name}:partition:members"));
        Partitions { client: client.clone(), name: name.to_owned(), count, grace: None, members }
    }

    /// The partitions of `name`, as many as its members share; `None` if it has none. One request.
    ///
    /// # Errors
    /// See [the type](Partitions#errors-of-all-forms).
    pub fn of(client: &Client, name: &str) -> Result<Option<Partitions>, Error> {
        let it = Partitions::new(client, name, 0);
        let agreed = it.members.state("", Wait::forever())?.agreed;
        Ok(agreed.split('-').next().and_then(|n| n.parse().ok()).map(|count| Partitions { count, ..it }))
    }

    /// The same partitions for an owner that needs up to `grace` to finish when its partition is
    /// [revoked](Partition::revoked): then its hold ends, whether it has finished or not. Default: a sixth of the
    /// lease. From 1 ms to a third of the lease, so that the owner can also finish before a lease ends that cannot
    /// be renewed.
    #[must_use]
    pub fn grace(&self, grace: Duration) -> Self {
        Partitions { grace: Some(grace), ..self.clone() }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many partitions there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Those that share the partitions, under the name `orders:partition:members`. To be one of them, join the
    /// partitions instead.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The lock of a partition: `orders:partition:17`, a reentrant lock as any other. Whoever holds it, owns the
    /// partition.
    pub fn lock(&self, partition: u32) -> RedisLock<Reentrant> {
        self.client.reentrant_lock(&format!("{}:partition:{partition}", self.name))
    }

    /// Who owns which partition, and who is to. One request, and one for each partition.
    ///
    /// # Errors
    /// See [the type](Partitions#errors-of-all-forms).
    pub fn owners(&self) -> Result<Vec<Owner>, Error> {
        let state = self.members.state("plan", Wait::forever())?;
        let plan = Plan::read(&state.plan);
        let owner = |(partition, k)| {
            let number = plan.0.get::<usize>(k);
            let member = state.members.iter().find(|member| Some(&member.number) == number).cloned();
            let held_by = self.lock(partition).holder()?.map(|holder| holder.to_string());
            Ok(Owner { partition, member, held_by })
        };
        (0..self.count).zip(0..).map(owner).collect()
    }

    /// Joins those that share the partitions, as a member that others see as `value`: an address, say; at most 1,024
    /// bytes. The partitions of this process then arrive one after the other: see [`Share`]. Blocks for two
    /// requests; while Redis cannot be reached, for the [unreachable
    /// timeout](redis_concurrent::ClientBuilder::unreachable_timeout).
    ///
    /// # Errors
    /// `InvalidInput` for a longer value, and for a grace that is out of range; `Refused` if there are 512 members.
    /// See also [the type](Partitions#errors-of-all-forms).
    pub fn join(&self, value: &str) -> Result<Share, Error> {
        let invalid = |why: String| self.members.error(ErrorKind::InvalidInput, &why);
        if !(1..=MOST).contains(&self.count) {
            let why = format!("the number of partitions must be between 1 and {MOST}, got {}", self.count);
            return Err(invalid(why));
        }
        if self.name.is_empty() {
            return Err(invalid("a name must not be empty".to_owned()));
        }
        let membership = self.enter(value, Wait::forever())?;
        let state = self.members.state("", Wait::forever())?;
        let me = state.members.iter().find(|member| member.number == membership.number());
        let lease = me.map_or(membership.remaining(), |me| me.lease);
        let grace = self.grace.unwrap_or(lease / 6);
        if !(Duration::from_millis(1)..=lease / 3).contains(&grace) {
            let most = lease / 3;
            return Err(invalid(format!(
                "the grace must be between 1ms and a third of the lease ({most:?}), got {grace:?}"
            )));
        }
        let (deliver, partitions) = unbounded();
        let stop = CancellationToken::new();
        let keeper = Keeper::new(self.clone(), value.to_owned(), grace, deliver, stop.clone());
        let thread = thread::Builder::new()
            .name(format!("partitions of {}", self.name))
            .spawn(move || keeper.go_on(membership))
            .map_err(|e| {
                self.members.error(ErrorKind::Unavailable, "no thread can be started").caused_by(e)
            })?;
        Ok(Share { name: self.name.clone(), partitions, stop, thread: Some(thread) })
    }

    /// Joins the members, which must agree on the number.
    pub(crate) fn enter(&self, value: &str, wait: Wait<'_>) -> Result<Membership, Error> {
        let joined = self.members.join_agreeing(&format!("{}-partitions", self.count), value, wait);
        joined.map_err(|error| {
            let of_others = || self.members.state("", wait).ok()?.disagreement();
            let others = Some(&error).filter(|it| it.kind() == ErrorKind::Conflict).and_then(|_| of_others());
            let both = |others| format!("{others}, and {value:?} would share {}", self.count);
            others.map_or(error.clone(), |others| error.because(both(others)))
        })
    }
}

impl fmt::Debug for Partitions {
    /// Shows the name and the number. The owners would take requests: see [`owners`](Partitions::owners).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Partitions")
            .field("name", &self.name)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

/// The share of this process, until it is [left](Share::leave) or dropped: its partitions arrive at
/// [`partitions`](Share::partitions), or are worked on by [`run`](Share::run).
///
/// A thread (`partitions of orders`) keeps it: it waits for members that come and go, revokes what is to move,
/// and takes what is to come. It sleeps meanwhile, in a queue position in Redis. A partition that is still owned by
/// another process is waited for by a thread of its own (`orders:partition:17`), which ends when it is there. If its
/// membership is lost, because the process was stopped or could not reach Redis, it joins again.
///
/// Dropping it does what [`leave`](Share::leave) does, in the background.
#[derive(Debug)]
pub struct Share {
    name: String,
    partitions: Receiver<Partition>,
    stop: CancellationToken,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Share {
    /// Where the partitions of this process arrive, as soon as it owns them. One that was given back without being
    /// revoked arrives again after a second. Disconnected when the share has ended by an error, which
    /// [`leave`](Share::leave) then returns.
    pub fn partitions(&self) -> &Receiver<Partition> {
        &self.partitions
    }

    /// Leaves: the others get the partitions of this process, each when it is given back, and at the latest when
    /// the grace has ended. Blocks until then, and for a request for each.
    ///
    /// # Errors
    /// The error by which the share had ended before, one that would not have passed: `Closed`, `Forked`,
    /// `WrongType`, `Conflict`, `Refused`, `Protocol`, `InvalidInput`. Those that may pass are waited out.
    pub fn leave(mut self) -> Result<(), Error> {
        self.stop.cancel();
        // What nobody has received is given back.
        self.partitions = unbounded().1;
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => {
                Err(Error::new(ErrorKind::Protocol, &self.name).because("its thread has panicked"))
            }
            Some(Ok(ended)) => ended,
            None => Ok(()),
        }
    }

    /// Works on the partitions of this process until `stop` is cancelled, each in a thread of its own
    /// (`orders:partition:17`), and leaves. `work` must return soon after its partition is
    /// [revoked](Partition::revoked): nothing else can end it. The call returns once all of them have.
    ///
    /// If `work` returns earlier, or panics, its partition is given back, and comes again after a second, here or at
    /// another member. A panic is reported as any thread's, by the panic hook, with the thread's name.
    ///
    /// # Errors
    /// Those of [`leave`](Share::leave).
    pub fn run(mut self, stop: &CancellationToken, work: impl Fn(&Partition) + Sync) -> Result<(), Error> {
        let (stopped, work) = (stop.receiver(), &work);
        let arriving = mem::replace(&mut self.partitions, unbounded().1);
        thread::scope(|scope| {
            loop {
                let partition = select! {
                    recv(stopped) -> _ => break,
                    recv(arriving) -> partition => partition,
                };
                let Ok(partition) = partition else { break };
                let named = thread::Builder::new().name(partition.to_string());
                // A partition for which there is no thread is dropped with this, and so comes again.
                let _ = named.spawn_scoped(scope, move || {
                    let partition = partition;
                    // The panic hook has reported it.
                    let _ = catch_unwind(AssertUnwindSafe(|| work(&partition)));
                });
            }
            self.stop.cancel();
            drop(arriving);
        });
        self.leave()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A partition that this process owns, until it is [given back](Partition::give_back), dropped, or
/// [lost](Partition::lost). It may move to another thread.
#[derive(Debug)]
#[must_use = "a partition that is not kept is given back at once"]
pub struct Partition {
    pub(crate) place: Arc<Place>,
    pub(crate) token: u64,
    pub(crate) revoked: CancellationToken,
    pub(crate) lost: CancellationToken,
}

impl Partition {
    /// Which one: from 0.
    pub fn number(&self) -> u32 {
        self.place.number
    }

    /// The fencing token: greater than that of every earlier owner of this partition. Let what the owner writes
    /// [reject a lower one](redis_concurrent::Fenced).
    pub fn token(&self) -> u64 {
        self.token
    }

    /// A token that is cancelled when the owner must finish: because the partition is to move, this process leaves,
    /// or less than the [grace](Partitions::grace) is certain to remain of its hold. It then has the grace to
    /// [give it back](Partition::give_back). All calls return the same token.
    pub fn revoked(&self) -> CancellationToken {
        self.revoked.clone()
    }

    /// A token that is cancelled when the partition is no longer owned, although it was not given back: its lease
    /// could not be renewed, or the grace has ended. All calls return the same token.
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// How long this process is certain to own it if the hold is not renewed; zero once it is lost. No request.
    pub fn remaining(&self) -> Duration {
        self.place.remaining()
    }

    /// Gives the partition back: whoever is to own it, does at once. Blocks for one request, at most the command
    /// timeout. Dropping it does the same.
    ///
    /// # Errors
    /// `LeaseLost` if it was lost before. Otherwise those of [`unlock`](redis_concurrent::Guard::unlock).
    pub fn give_back(self) -> Result<(), Error> {
        self.place.give_back()
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        // Nobody is left to whom an error could be told; the hold then ends with its lease.
        let _ = self.place.give_back();
    }
}

impl fmt::Display for Partition {
    /// The name of its lock: `orders:partition:17`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.place.name)
    }
}
