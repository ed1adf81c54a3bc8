//! The rule of the read/write lock straight against a server, below the client.
//!
//! Time is played by editing what the scripts stored, never by sleeping.

mod beside;
mod entering;
mod leases;
mod numbers;
mod order;
mod refusals;
mod resent;
mod share;

use redis::{Commands, Connection};
use redis_concurrent::kinds::{Kind, Read};

use crate::rig::{Ask, LEASE, Rig, USUAL, assert_busy, assert_in, int, messages, server};

const WRITE: Ask<'_> = Ask { args: "write", ..USUAL };
const READ: Ask<'_> = Ask { args: "read", ..USUAL };
const IN_ORDER: Ask<'_> = Ask { args: "read-in-order", ..USUAL };

fn rig(name: &str) -> Rig {
    Rig::of(server(), "read-write", Read::RULE, name)
}

impl Rig {
    #[track_caller]
    fn writes(&mut self, owner: &str) -> i64 {
        let answer = self.acquire("try", owner, WRITE).unwrap();
        assert_in(self.kind, &answer, LEASE)
    }

    #[track_caller]
    fn reads(&mut self, owner: &str) -> i64 {
        reading(&self.acquire("try", owner, READ).unwrap()).0
    }

    /// Takes a queue position.
    #[track_caller]
    fn queues(&mut self, owner: &str, ask: Ask<'_>) {
        let answer = self.acquire("wait", owner, ask).unwrap();
        assert!(!assert_busy(self.kind, &answer).2.is_empty(), "{answer:?}");
    }

    fn share(&mut self, owner: &str) -> Vec<String> {
        self.acquire("share", owner, READ).unwrap()
    }

    /// The holders, by the state's fields.
    fn inside(&mut self) -> Vec<String> {
        let mut fields: Vec<String> = self.con.hkeys(&self.keys[0]).unwrap();
        fields.retain(|field| field.contains(':'));
        fields.sort();
        fields
    }

    fn writer(&mut self) -> Option<String> {
        self.con.hget(&self.keys[0], "writer").unwrap()
    }

    fn received(&self, inbox: &mut Connection, who: &str) -> Vec<String> {
        messages(self, inbox, who)
    }
}

/// A read lock: {1, number, remaining ms, the last write's number}.
#[track_caller]
fn reading(answer: &[String]) -> (i64, i64, i64) {
    assert_eq!((answer.len(), answer[0].as_str()), (4, "1"), "{answer:?}");
    (int(&answer[1]), int(&answer[2]), int(&answer[3]))
}

impl Rig {
    /// Lets the owner's hold have ended, where only what cannot grow is written first.
    fn set_lease_in_full(&mut self, owner: &str) {
        self.full(false);
        self.set_lease(owner, -1);
        self.full(true);
    }
}
