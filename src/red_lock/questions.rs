//! What a lock over several servers is asked, and a majority of them can answer.

use std::sync::Arc;

use super::lock::QuorumLock;
use super::node::Node;
use super::post::to_all;
use crate::clock::Moment;
use crate::engine;
use crate::engine::entry::LockEntry;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::inspect::is_held;
use crate::engine::redis::packed::pack_inspect;
use crate::error::{Error, ErrorKind};
use crate::lock::this_thread;

impl QuorumLock {
    /// Whether an attempt would find it busy now: a majority of the servers has a holder, of any process. (Which
    /// process it is, the servers do not say.) One request to each server, all at once; blocks for the node
    /// timeout at most.
    ///
    /// # Errors
    /// `Unavailable` if too few servers replied to tell: neither does a majority have a holder, nor is a
    /// majority free. `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    pub fn is_locked(&self) -> Result<bool, Error> {
        let replies = self.ask()?;
        let count =
            |held: bool| replies.iter().filter(|reply| reply.as_ref().is_ok_and(|it| *it == held)).count();
        let (held, free) = (count(true), count(false));
        if held.max(free) >= self.servers.majority() {
            return Ok(held > free);
        }
        let why = format!("{} of {} servers replied: too few to tell", held + free, replies.len());
        let error = Error::new(ErrorKind::Unavailable, self.name()).because(why);
        Err(match replies.into_iter().find_map(Result::err) {
            Some(first) => error.caused_by(first),
            None => error,
        })
    }

    /// How often this thread holds it: 0 or 1. No request; 0 in a forked child.
    pub fn hold_count(&self) -> usize {
        let Ok(entries) = self.entries() else { return 0 };
        let (me, now) = (this_thread(), Moment::now());
        let holds = |entry: &&Arc<LockEntry>| {
            entry.shared.same_process().is_ok()
                && engine::lock(entry).is_ok_and(|core| core.lock_state.hold_count(me, now) > 0)
        };
        usize::from(entries.iter().filter(holds).count() >= self.servers.majority())
    }

    /// Whether this thread holds it. No request.
    pub fn is_held_by_current_thread(&self) -> bool {
        self.hold_count() > 0
    }

    /// Whether it is held on each server, as far as they say.
    fn ask(&self) -> Result<Vec<Result<bool, Error>>, Error> {
        let entries = self.entries()?;
        let began = Moment::now();
        let deadline = began.after(self.limit());
        let mut replies = Vec::with_capacity(entries.len());
        let mut asked: Vec<(&Arc<Node>, &Arc<LockEntry>)> = Vec::with_capacity(entries.len());
        for (node, entry) in self.servers.nodes.iter().zip(&**entries) {
            node.shared.usable().map_err(|e| e.about(self.name()))?;
            match node.away() {
                Some(error) => replies.push(Err(error)),
                None => asked.push((node, entry)),
            }
        }
        let pack = |entry: &LockEntry, eval| {
            let mut request = Vec::new();
            pack_inspect(&mut request, entry, eval);
            request
        };
        let post = |(node, entry): &(&Arc<Node>, &Arc<LockEntry>), limit| {
            node.server.backend.post(&pack(entry, false), limit)
        };
        for ((node, entry), posted) in to_all(asked, began, deadline, post) {
            let backend = &node.server.backend;
            let awaited = Moment::now();
            match posted.and_then(|p| p.told(backend, deadline, || pack(entry, true)).answer) {
                Ok(answer) => {
                    node.answered(began, awaited);
                    replies.push(Ok(is_held(&answer)));
                }
                Err(failure) if failure.is_wrong_kind() => return Err(entry.error(failure.error())),
                Err(failure) => {
                    if let Failure::Unsent(e) | Failure::Unanswered(e) = &failure {
                        node.failed(e.clone());
                    }
                    replies.push(Err(failure.error()));
                }
            }
        }
        Ok(replies)
    }
}
