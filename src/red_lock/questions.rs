//! Queries about a lock over several servers, answered by a majority of them.

use std::sync::Arc;

use super::lock::RedLock;
use super::members::{Query, ask_all, caused_by};
use crate::clock::Moment;
use crate::engine;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::error::{Error, ErrorKind};
use crate::lock::holder::{Holder, busy, held_by};
use crate::lock::inspect::{Inspection, read};
use crate::lock::this_thread;

/// The address of a server, and the holder there, if there is one.
type Reply = (String, Result<Option<Holder>, Error>);

impl RedLock {
    /// Returns whether an attempt would find the lock busy now: a majority of the servers has a holder, of
    /// any process. (The servers do not say which process it is.) One request to each server, all at once;
    /// blocks for at most the node timeout.
    ///
    /// # Errors
    /// `Unavailable` if too few servers replied to tell: neither does a majority have a holder, nor is a
    /// majority free. `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    pub fn is_locked(&self) -> Result<bool, Error> {
        let replies: Vec<_> = self.ask()?.into_iter().map(|(_, reply)| reply).collect();
        let count = |held: bool| {
            replies.iter().filter(|reply| reply.as_ref().is_ok_and(|it| it.is_some() == held)).count()
        };
        let (held, free) = (count(true), count(false));
        if held.max(free) >= self.servers.majority() {
            return Ok(held > free);
        }
        let why = format!("{} of {} servers replied: too few to tell", held + free, replies.len());
        let error = Error::new(ErrorKind::Unavailable, self.name()).because(why);
        Err(caused_by(error, replies.into_iter().find_map(Result::err)))
    }

    /// Returns the error of a caller that did not get the lock in time: a [`Timeout`](ErrorKind::Timeout)
    /// with the owner on each server and for how long it has held the lock, as
    /// [`RedisLock::busy_error`](crate::RedisLock::busy_error) returns it for a lock on one server. One request to each
    /// server, all at once, when this is called; blocks for at most the node timeout.
    ///
    /// An owner is the id of a client, which differs from server to server: the servers have no record of its
    /// process. If several callers compete and none gets a majority, each may hold some of the servers for a
    /// moment.
    ///
    /// ```no_run
    /// # fn sell(red: &redis_concurrent::RedLockClient) -> Result<(), redis_concurrent::Error> {
    /// let lock = red.lock("stock:42");
    /// // "stock:42": timed out: on 3 of 3 servers, 10.0.0.1:6379: held by 7f3b…:1 for 12.3 s,
    /// // 10.0.0.2:6379: held by …
    /// let guard = lock.try_lock()?.ok_or_else(|| lock.busy_error())?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "or_who")]
    pub fn busy_error(&self) -> Error {
        let replies = match self.ask() {
            Ok(replies) => replies,
            Err(why) => return busy(self.name(), Err(why)),
        };
        let (mut held, mut unknown) = (Vec::new(), None);
        let all = replies.len();
        for (address, reply) in replies {
            match reply {
                Ok(Some(holder)) => held.push(format!("{address}: {}", held_by(&[holder]))),
                Ok(None) => {}
                Err(why) => unknown = unknown.or(Some(why)),
            }
        }
        let text = match held.len() {
            0 => held_by(&[]),
            n => format!("on {n} of {all} servers, {}", held.join(", ")),
        };
        match unknown {
            Some(why) if held.is_empty() => busy(self.name(), Err(why)),
            unknown => caused_by(busy(self.name(), Ok(text)), unknown),
        }
    }

    /// Returns whether this thread holds the lock. No request; false in a forked child.
    pub fn is_held_by_current_thread(&self) -> bool {
        let Ok(entries) = self.entries() else { return false };
        let (me, now) = (this_thread(), Moment::now());
        let holds = |entry: &&Arc<LockEntry>| {
            entry.shared.same_process().is_ok()
                && engine::operations::effects::lock(entry)
                    .is_ok_and(|core| core.lock_state.hold_count(me, now) > 0)
        };
        entries.iter().filter(holds).count() >= self.servers.majority()
    }

    /// Asks each server for its holder.
    fn ask(&self) -> Result<Vec<Reply>, Error> {
        let entries = self.entries()?;
        let began = Moment::now();
        let deadline = began.after(self.limit());
        let (mut replies, mut queries) = (Vec::new(), Vec::with_capacity(entries.len()));
        for (node, entry) in self.servers.nodes.iter().zip(&**entries) {
            node.shared.usable().map_err(|e| e.about(self.name()))?;
            queries.push(Query::new((node, entry), node, commands::inspect(entry, "", "")));
        }
        for ((node, entry), reply) in ask_all(queries, began, deadline) {
            match reply {
                Ok(reply) => {
                    let Inspection { holders, number, .. } = read(&reply.value).inspection;
                    let holder = holders.into_iter().next().map(|held| Holder::new(held, number));
                    replies.push((node.address.clone(), Ok(holder)));
                }
                Err(failure) if failure.is_wrong_kind() => return Err(entry.error(failure.error())),
                Err(failure) => replies.push((node.address.clone(), Err(failure.error()))),
            }
        }
        Ok(replies)
    }
}
