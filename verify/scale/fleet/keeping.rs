//! How simulated processes keep their holds and receive messages: renewals, and the inboxes' pings.

use std::time::Duration;

use super::event::Event;
use super::{Fleet, at, nanos};
use crate::clock::Moment;
use crate::engine::scale::primary::{By, Sent};
use crate::engine::small_redis::{Op, Reply, millis};
use crate::engine::state::lock_state::Renewal;

/// For how long an inbox is silent before it is pinged.
const PING_AFTER: u64 = 1_000_000_000;

impl Fleet {
    /// The entry's process begins to listen, unless it already does.
    pub(super) fn listens(&mut self, e: usize) {
        let client = self.entries[e].client;
        if self.clients[client].last_reply.is_none() {
            self.clients[client].last_reply = Some(self.now);
            self.plan(self.now + PING_AFTER, Event::Pings(client));
        }
    }

    pub(super) fn pings(&mut self, client: usize) {
        let last_reply = self.clients[client].last_reply.unwrap_or(self.now);
        if self.now - last_reply >= PING_AFTER {
            self.primary.ping(self.now, &mut self.seen);
            self.clients[client].last_reply = Some(self.now);
            self.plan(self.now + PING_AFTER, Event::Pings(client));
        } else {
            self.plan(last_reply + PING_AFTER, Event::Pings(client));
        }
    }

    /// Plans the next renewal of this owner's grant for `due`.
    pub(super) fn renewed_at(&mut self, e: usize, owner: u64, due: Moment) {
        let client = self.entries[e].client;
        if let Some(before) = self.entries[e].due.replace(due) {
            self.clients[client].line.forget(before, owner);
        }
        if self.clients[client].line.plan(due, owner) {
            let due = self.now + nanos(due.since(at(self.now)));
            self.plan(due, Event::Due(client));
        }
    }

    /// Sends the renewals that are due.
    pub(super) fn renews(&mut self, client: usize) {
        let now = at(self.now);
        while let Some(owners) = self.clients[client].line.take_due(now, self.scene.renew_every()) {
            let mut requests = Vec::with_capacity(owners.len());
            for owner in owners {
                let e = self.entry_of(owner);
                self.entries[e].due = None;
                let then = self.entries[e].state.expire(owner, now);
                self.carry_out(e, then);
                let grant = self.entries[e].state.grant(owner).filter(|grant| grant.lost().is_none());
                if let Some(grant) = grant {
                    let op = Op::Renew { owner, lease: millis(grant.renewal(now)) };
                    requests.push(Sent {
                        by: By::Line(client),
                        lock: self.entries[e].lock,
                        op,
                        at: self.now,
                    });
                    self.listens(e);
                }
            }
            self.clients[client].line.sends(requests.len());
            self.send(requests);
        }
        if let Some(next) = self.clients[client].line.next() {
            let due = self.now + nanos(next.since(now));
            self.plan(due, Event::Due(client));
        }
    }

    pub(super) fn renewed(&mut self, client: usize, sent: &Sent, reply: &Reply) {
        let (owner, now) = (sent.op.owner(), at(self.now));
        let timeout = Duration::from_secs(2).min(self.scene.lease / 6);
        let line = &mut self.clients[client].line;
        let in_time = line.hears(sent.at, self.now, timeout);
        if line.goes_on(now) {
            self.plan(self.now, Event::Due(client));
        }
        let (Reply::Renewed(renewal), Op::Renew { lease, .. }) = (reply, &sent.op) else { return };
        let renewal = if in_time { *renewal } else { Renewal::Unanswered };
        let e = self.entry_of(owner);
        let state = &mut self.entries[e].state;
        let then = state.renewed(owner, at(sent.at), renewal, now);
        if !in_time {
            state.doubt(owner, at(sent.at), Duration::from_millis(*lease));
        }
        let grant = state.grant(owner).filter(|grant| grant.lost().is_none());
        let soon = now.after(Duration::from_millis(5));
        let due = grant.map(|grant| if in_time { grant.due(now, self.scene.renew_every()) } else { soon });
        self.carry_out(e, then);
        if let Some(due) = due {
            self.renewed_at(e, owner, due);
        }
    }
}
