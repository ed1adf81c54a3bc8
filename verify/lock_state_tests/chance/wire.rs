//! The requests of the locks' threads, on their way to a small Redis and back.

use super::*;

#[derive(Clone, Debug)]
pub(super) enum Op {
    Acquire(Asking),
    /// With the request for the next head; `counted` if the lock state counts the leave.
    Leave {
        leaving: PendingRelease,
        next: Option<Asking>,
        counted: bool,
    },
    Confirm(u64, Duration),
    Renew(u64, Duration),
}

/// A request: first in flight, then with a reply that is on its way back.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    pub(super) lock_state: usize,
    pub(super) thread: Option<usize>,
    pub(super) op: Op,
    pub(super) sent: u64,
    pub(super) reply: Option<Reply>,
}

impl World {
    pub(super) fn run(&mut self, packet: &Packet) -> Reply {
        let op = match &packet.op {
            Op::Acquire(asking) => small_redis::Op::Acquire(asking.into()),
            Op::Leave { leaving, next, .. } => small_redis::Op::Leave {
                owner: leaving.owner,
                maybe_in_flight: leaving.maybe_in_flight,
                next: next.as_ref().map(Into::into),
            },
            Op::Confirm(owner, lease) | Op::Renew(owner, lease) => {
                small_redis::Op::Renew { owner: *owner, lease: millis(*lease) }
            }
        };
        let (rng, messages, deaf) = (&mut self.rng, &mut self.messages, self.deaf);
        self.redis.run(&op, self.now, &mut (|_| !rng.percent(deaf), |message| messages.push(message)))
    }

    /// A request reaches Redis, or its reply comes back; or one of them gets lost.
    pub(super) fn move_packet(&mut self, i: usize) {
        if self.wire[i].reply.is_none() {
            if self.fault(6) {
                // It is lost for its sender, and may still run.
                let packet = self.wire.swap_remove(i);
                if self.rng.percent(70) {
                    self.late.push(packet.clone());
                }
                return self.unanswered(packet);
            }
            let packet = self.wire[i].clone();
            self.wire[i].reply = Some(self.run(&packet));
            return;
        }
        let mut packet = self.wire.swap_remove(i);
        let reply = packet.reply.take();
        match reply {
            Some(reply) if !self.fault(6) => self.answered(packet, reply),
            _ => self.unanswered(packet),
        }
    }

    fn back_in_the_loop(&mut self, thread: Option<usize>) {
        if let Some(i) = thread {
            self.threads[i] = match self.threads[i] {
                Thread::Busy { ticket, over } => Thread::Parked { ticket, wakes: self.now, over },
                _ => Thread::Idle,
            };
        }
    }

    fn answered(&mut self, packet: Packet, reply: Reply) {
        let (lock_state, now) = (packet.lock_state, at(self.now));
        match (packet.op, reply) {
            (Op::Acquire(asking), Reply::Acquired(answer)) => {
                let then = self.lock_states[lock_state].lock_state.answered(asking.owner, answer, now);
                self.back_in_the_loop(packet.thread);
                self.carry_out(lock_state, then);
            }
            (Op::Confirm(owner, _), Reply::Renewed(renewal)) => {
                let then = self.lock_states[lock_state].lock_state.confirmed(owner, renewal, now);
                self.back_in_the_loop(packet.thread);
                self.carry_out(lock_state, then);
            }
            (Op::Renew(owner, _), Reply::Renewed(renewal)) => {
                let then =
                    self.lock_states[lock_state].lock_state.renewed(owner, at(packet.sent), renewal, now);
                self.carry_out(lock_state, then);
            }
            (Op::Leave { next, counted, .. }, Reply::Left { next: answer, .. }) => {
                self.back_in_the_loop(packet.thread);
                if let (Some(next), Some(answer)) = (next, answer) {
                    let then = self.lock_states[lock_state].lock_state.answered(next.owner, answer, now);
                    self.carry_out(lock_state, then);
                }
                if counted {
                    let then = self.lock_states[lock_state].lock_state.left();
                    self.carry_out(lock_state, then);
                }
            }
            (op, reply) => panic!("{op:?} was answered {reply:?}"),
        }
    }

    fn unanswered(&mut self, packet: Packet) {
        match packet.op.clone() {
            Op::Acquire(_) => self.answered(packet, Reply::Acquired(Answer::Unanswered)),
            Op::Confirm(..) => self.answered(packet, Reply::Renewed(Renewal::Unanswered)),
            Op::Renew(owner, lease) => {
                let (lock_state, sent) = (packet.lock_state, at(packet.sent));
                self.answered(packet, Reply::Renewed(Renewal::Unanswered));
                // As the renewal thread does.
                self.lock_states[lock_state].lock_state.doubt(owner, sent, lease);
            }
            Op::Leave { leaving, next, .. } => {
                let lock_state = packet.lock_state;
                let next = next.map(|_| Answer::Unanswered);
                self.answered(packet, Reply::Left { inside: false, next });
                // The renewal thread takes it over.
                let leaving = PendingRelease { maybe_in_flight: true, ..leaving };
                self.send(lock_state, None, Op::Leave { leaving, next: None, counted: false });
            }
        }
    }
}
