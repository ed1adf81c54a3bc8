//! The faults in Rust: a piece of code that occurs exactly once in its folder, and what replaces it.
//! `PLANTED` is whether the fault is in force.

/// A place in Rust.
pub(super) struct InRust {
    pub(super) fault: &'static str,
    /// `src`, or the folder of the models' Redis: what the models are checked against has no faults.
    pub(super) folder: &'static str,
    /// Neither its formatting nor its file matters.
    pub(super) code: &'static str,
    pub(super) becomes: &'static str,
}

/// Code and not text, so that a rename must be made here, too.
macro_rules! places {
    ($($fault:literal in $folder:literal: { $($code:tt)* } => { $($becomes:tt)* })*) => {
        &[$(InRust {
            fault: $fault,
            folder: $folder,
            code: stringify!($($code)*),
            becomes: stringify!($($becomes)*),
        }),*]
    };
}

#[rustfmt::skip]
pub(super) const IN_RUST: &[InRust] = places! {
    "no-timer" in "src":
        { Step::Park(ask.again_at.min(nap)) } =>
        { Step::Park(if PLANTED && ask.is_queued() { Moment::NEVER } else { ask.again_at.min(nap) }) }
    "deadlock-by-hearsay" in "src":
        { before.times < it.times } => { PLANTED || before.times < it.times }
    "deadlock-of-two-times" in "src":
        { if took >= timeout } => { if took >= timeout && !PLANTED }
    "late-reply-is-anothers" in "src":
        { self.catch_up(limit)?; self.read_next(limit) } =>
        { if !PLANTED { self.catch_up(limit)?; } self.read_next(limit) }
    "drop-forgotten-at-close" in "src":
        { server.backend.aside.read_older_than(Moment::NEVER, limit.before(END_TIMEOUT * 2)); } =>
        { if !PLANTED { server.backend.aside.read_older_than(Moment::NEVER, limit.before(END_TIMEOUT * 2)); } }
    "release-is-passed" in "src":
        { self.leaves.in_flight > u16::from(self.leaves.behind == Behind::Goes) } =>
        { self.leaves.in_flight > u16::from(self.leaves.behind == Behind::Goes || PLANTED && self.leaves.behind == Behind::MayGo) }
    "any-number" in "src":
        { number > ask.last_number } =>
        { (number > ask.last_number || PLANTED) }
    "message-says-how-long" in "src":
        { lease.min(first_lease).min(ask.sought.terms.lease) } =>
        { if PLANTED { lease } else { lease.min(first_lease).min(ask.sought.terms.lease) } }
    "message-not-confirmed" in "src":
        { if got.by == Source::Message || (got.lease < lease && request.terms.fixed) } =>
        { if got.by == Source::Message && !(PLANTED && got.lease == lease) || (got.lease < lease && request.terms.fixed) }
    "copy-is-claimed" in "src":
        { if request != self.mark && } =>
        { if (request != self.mark || PLANTED) && }
    "owner-is-guessed" in "src":
        { high << LOW | low } =>
        { if PLANTED { n } else { high << LOW | low } }
    "valid-from-last-sent" in "src":
        { self.in_flight = Some(InFlight { sent: now, unheard: false }); } =>
        { self.in_flight = Some(InFlight { sent: now, unheard: false });
          if PLANTED { self.counts_from = now; } }
    "lead-kept" in "src":
        { let was_head = self.head() == Some(ticket); } =>
        { let was_head = self.head() == Some(ticket);
          if PLANTED && was_head && self.line.waiters.len() > 1 { return GaveUp::Out(Effects::default()); } }
    "resent-under-new-id" in "src":
        { if answer == Answer::Ended } =>
        { if answer == Answer::Ended || PLANTED && answer == Answer::Unanswered }
    "lost-not-left" in "src":
        { let mut leave = None; if why == LossReason::Expired } =>
        { let mut leave = None; if PLANTED && why == LossReason::Expired {} else if why == LossReason::Expired }
    "revoked-is-not-left" in "src":
        { let remains = true; } =>
        { let remains = !PLANTED; }
    "unknown-is-passed" in "src":
        { self.waits_for == WaitsFor::Writer && request.from.is_none() } =>
        { self.waits_for == WaitsFor::Writer && request.from.is_none() && !PLANTED }
    "grant-of-another-request" in "src":
        { same && self.instead == request.instead } =>
        { same && self.instead == request.instead || PLANTED }
    "not-inside-is-released" in "src":
        { let server = entry.server(); let sent = Moment::now(); } =>
        { if PLANTED { return Fate::Released; }
          let server = entry.server(); let sent = Moment::now(); }
    "refused-multi-is-not-told" in "src":
        { if ran_alone(&answers) } =>
        { if !PLANTED && ran_alone(&answers) }
    "young-server-counts" in "src":
        { (!left.is_zero()) } =>
        { (!left.is_zero() && !PLANTED) }
    "replaced-server-counts" in "src":
        { if run.succeeds => run.found, } =>
        { if run.succeeds && !PLANTED => run.found, }

    "deaf-keeps" in "src":
        { pub(crate) fn deaf(&mut self, now: Moment) -> Effects } =>
        { pub(crate) fn deaf(&mut self, now: Moment) -> Effects {
              if PLANTED { return Effects::default(); }
              self.hears_nothing(now)
          }
          fn hears_nothing(&mut self, now: Moment) -> Effects }
    "told-after-it-listens" in "src":
        { self.server.inbox.came_up(dialled, info.is_primary == Some(false)); } =>
        { self.server.inbox.came_up(dialled, info.is_primary == Some(false));
          if PLANTED { self.at_each(deaf); } }
    "idle-end-is-a-loss" in "src":
        { let idle = grant.is_idle(); } =>
        { let idle = grant.is_idle() && !PLANTED; }
    "not-wanted-behind-a-grant" in "verify/small_redis":
        { if !self.queue.is_empty() { self.wanted(owner, tell); } } =>
        { if !PLANTED && !self.queue.is_empty() { self.wanted(owner, tell); } }

    "priority-ignored" in "verify/small_redis":
        { arrival.saturating_add_signed(-i64::from(priority) * self.step) } =>
        { arrival.saturating_add_signed(if PLANTED { 0 } else { -i64::from(priority) * self.step }) }
    "limit-outside-the-script" in "verify/small_redis":
        { if new && ask.arrival.is_none() && ask.most.is_some_and(|most| others >= most) } =>
        { if new && ask.arrival.is_none() && ask.most.is_some_and(|most| others >= most && !PLANTED) }

    "no-owner-check" in "verify/small_redis":
        { self.0.take_if(|holder| holder.owner == owner) } =>
        { self.0.take_if(|holder| holder.owner == owner || PLANTED) }
    "no-tombstone" in "verify/small_redis":
        { self.tombstones.retain(|_, end| *end >= now); } =>
        { if PLANTED { return; } self.tombstones.retain(|_, end| *end >= now); }
    "renewal-creates" in "verify/small_redis":
        { let extended = self.kind.renew(*owner, *lease, now); } =>
        { if PLANTED {
              let (mode, stage, threads, priority) = (Mode::Plain, Stage::Asked, 1, 0);
              let position = QueuePosition { owner: *owner, lease: *lease, heartbeat: now, steady: None, mode, stage, threads, priority };
              self.comes_in(&position.ask(), now);
          }
          let extended = self.kind.renew(*owner, *lease, now); }
    "reader-counter" in "verify/small_redis":
        { self.holders.retain(|holder| holder.end > now); self.soon } =>
        { let lives = PLANTED && self.holders.iter().any(|holder| holder.end > now);
          self.holders.retain(|holder| holder.end > now || lives); self.soon }
    "reader-counter" in "verify/small_redis":
        { self.drop_position(*owner); } =>
        { // One reader fewer, regardless of the sender.
          let reads = |holder: &&Holder| matches!(holder.mode, Mode::Read | Mode::InOrder);
          let reader = self.holders().iter().find(reads).map(|holder| holder.owner);
          if let Some(reader) = reader.filter(|_| PLANTED && self.arrival(*owner).is_none()) {
              self.kind.release(reader);
          }
          self.drop_position(*owner); }
    "one-writer-mark" in "verify/small_redis":
        { self.drop_position(*owner); } =>
        { let writes = |position: &QueuePosition| position.mode == Mode::Write;
          if PLANTED && self.queue.values().any(|position| position.owner == *owner && writes(position)) {
              // All of them shared the mark.
              let unmarked = |(at, position): (u64, QueuePosition)| (at + if writes(&position) { 2 * CLASS } else { 0 }, position);
              self.queue = std::mem::take(&mut self.queue).into_iter().map(unmarked).collect();
          }
          self.drop_position(*owner); }
    "one-writer-mark" in "verify/small_redis":
        { let dead = self.dead(position.owner, position.heartbeat, position.steady, now); } =>
        { if PLANTED && self.silent(position.heartbeat, now) && position.mode == Mode::Write { return Some(Ahead { position, away: false }); }
          let dead = self.dead(position.owner, position.heartbeat, position.steady, now); }
    "tell-before-asking" in "verify/small_redis":
        { if !tell.listens(position.owner) } =>
        { if PLANTED { tell.tell(message); } if !tell.listens(position.owner) }
    "tell-before-asking" in "verify/small_redis":
        { self.entrust(&position, lease, now); tell.tell(message); } =>
        { self.entrust(&position, lease, now); if !PLANTED { tell.tell(message); } }
    "told-for-the-whole-lease" in "verify/small_redis":
        { position.lease.min(self.waiter_timeout.max(1_000)) } =>
        { if PLANTED { position.lease } else { position.lease.min(self.waiter_timeout.max(1_000)) } }
    "only-leave-admits" in "verify/small_redis":
        { let here = self.arrival(ask.owner).is_some(); } =>
        { let here = self.arrival(ask.owner).is_some();
          if PLANTED && (ask.how == AcquireMode::Keep || !self.holders().is_empty() || !self.queue.is_empty()) {
              if ask.how == AcquireMode::Keep && !here { return Answer::Gone; }
              if matches!(ask.how, AcquireMode::Keep | AcquireMode::Wait) { self.enqueue(ask, Stage::Asked, now); }
              return self.busy(ask, None, now);
          } }
    "signal-not-passed-on" in "verify/small_redis":
        { let Stage::Signalled(condition) = position.stage else { return }; self.signal(condition, arrival, now); } =>
        { let Stage::Signalled(condition) = position.stage else { return };
          if !PLANTED { self.signal(condition, arrival, now); } }
    "signal-dies-with-its-owner" in "verify/small_redis":
        { if left.is_some() || ends > now + CLOSE } =>
        { if left.is_some() || ends > now + CLOSE || PLANTED }
    "timed-out-is-unsignalled" in "verify/small_redis":
        { stage = position.stage; } =>
        { stage = if PLANTED && back { Stage::Back } else { position.stage }; }
    "waits-before-enqueued" in "verify/small_redis":
        { if !gave_up } =>
        { if gave_up && PLANTED { self.settle(None, now, tell); return Answer::Gone; } if !gave_up && !PLANTED }
};
