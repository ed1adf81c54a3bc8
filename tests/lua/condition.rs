//! The Lua of conditions straight against a server, below the client. Time is played by editing what the
//! scripts stored, never by sleeping.

use redis::{Commands, Connection};
use redis_concurrent::kinds::{Kind, Reentrant, Simple};

use crate::rig::{OVERDUE, PREFIX, RECORD, Rig, is_deaf, server};
use crate::support::LONG;

/// One lock with clients `a` to `d`, which are there to be told; others are not. Each has one owner id.
type Fixture = crate::rig::Fixture<Vec<Connection>>;

/// The clients that there are inboxes of.
const LISTENING: [&str; 4] = ["a", "b", "c", "d"];

/// The lock of either kind.
fn rigs(test: &str) -> [Fixture; 2] {
    [("simple", Simple::RULE), ("reentrant", Reentrant::RULE)].map(|(kind, rule)| {
        let rig = Rig::of(server(), kind, rule, test);
        let props = LISTENING.map(|who| rig.inbox(server(), who)).into();
        Fixture::new(rig, props)
    })
}

impl Fixture {
    fn id(&self, who: &str) -> String {
        self.rig.id(who, 1)
    }

    fn eval(&mut self, source: &str, args: &[&str]) -> Vec<String> {
        self.rig.eval(source, args).unwrap()
    }

    /// Takes the lock, or a queue position.
    fn lock(&mut self, who: &str) {
        let id = self.id(who);
        self.rig.wait(&id);
    }

    fn leave(&mut self, who: &str) {
        let id = self.id(who);
        self.rig.leave(&id);
    }

    fn ask(&mut self, how: &str, who: &str, from: &str) -> Vec<String> {
        let (source, id) = (self.scripts.wait_for.clone(), self.id(who));
        let from = if from.is_empty() { String::new() } else { self.id(from) };
        let mut answer =
            self.eval(&source, &[&id, "30000", PREFIX, "3000", how, "", RECORD, &from, "", "full"]);
        let from = usize::from(answer[0] == "2");
        let deaf = is_deaf(&mut answer, from);
        let listens = LISTENING.contains(&who);
        assert!(
            answer[from] != "0" || deaf != listens,
            "{who} is told whether it is heard: {answer:?}, {deaf}"
        );
        answer
    }

    /// Gives the lock up for a queue position in the condition `full`; the hold has another id than that.
    #[track_caller]
    fn wait(&mut self, who: &str) {
        let held = format!("{who}-held");
        self.lock(&held);
        let answer = self.ask("wait", who, &held);
        assert_eq!((&*answer[0], answer.len()), ("0", 4), "{answer:?}");
    }

    fn quit(&mut self, who: &str, unsettled: &str) -> Vec<String> {
        let (source, id) = (self.scripts.quit.clone(), self.id(who));
        self.eval(&source, &[&id, "0", PREFIX, "3000", unsettled])
    }

    fn signal(&mut self, by: &str, what: &str) -> String {
        let (source, id) = (self.scripts.signal.clone(), self.id(by));
        self.eval(&source, &[&id, "0", PREFIX, "3000", "full", what]).remove(0)
    }

    fn age(&mut self, who: &str, ms: i64) {
        let id = self.id(who);
        self.rig.age_position(&id, ms);
    }

    fn holder(&mut self) -> Option<String> {
        let rig = &mut self.rig;
        let owner: Option<String> = if rig.kind == "simple" {
            rig.con.get(&rig.keys[0]).unwrap()
        } else {
            rig.con.hget(&rig.keys[0], "owner").unwrap()
        };
        owner.map(|id| self.short(&id))
    }

    fn short(&self, id: &str) -> String {
        let id = id.strip_prefix(&format!("{}-", self.name)).unwrap_or(id);
        id.strip_suffix(":1").unwrap_or(id).to_owned()
    }

    fn queue(&mut self) -> Vec<String> {
        let ids = self.rig.queue();
        ids.iter().map(|id| self.short(id)).collect()
    }

    /// The condition's waiters, in order.
    fn waiting(&mut self) -> Vec<String> {
        let members: Vec<String> = self.rig.con.zrange(&self.rig.keys[5], 0, -1).unwrap();
        members.iter().map(|m| self.short(m.rsplit('|').next().unwrap())).collect()
    }

    /// All keys but the fence and the tombstones are gone, and those have an end.
    #[track_caller]
    fn is_clean(&mut self) {
        for i in 0..6 {
            let ttl = self.pttl(i);
            assert!(if i == 3 || i == 4 { ttl != -1 } else { ttl == -2 }, "key {i}: {ttl}");
        }
    }

    #[track_caller]
    fn all_keys_end(&mut self) {
        for i in 0..6 {
            assert_ne!(self.pttl(i), -1, "key {i}");
        }
    }
}

#[test]
fn a_wait_gives_the_lock_up_for_a_position_and_lets_the_next_one_in() {
    for mut rig in rigs("gives") {
        rig.lock("h");
        rig.lock("b");
        let answer = rig.ask("wait", "a", "h");
        assert_eq!((&*answer[0], answer[2].parse::<u64>().unwrap()), ("0", 1000), "its own heartbeat");
        assert_eq!(rig.holder().as_deref(), Some("b"));
        assert_eq!(answer[1], rig.fence().to_string(), "and the number of the one let in");
        assert_eq!((rig.queue(), rig.waiting()), (vec![], vec!["a".to_owned()]));
        // Sent twice.
        assert_eq!(rig.ask("wait", "a", "h")[3], answer[3]);
        assert_eq!(rig.waiting(), ["a"]);
        rig.all_keys_end();
        assert_eq!(rig.quit("a", "0"), ["0"]);
        rig.leave("b");
        rig.is_clean();
    }
}

#[test]
fn only_the_holder_gives_up_and_signals() {
    for mut rig in rigs("inside") {
        rig.lock("b");
        assert_eq!(rig.ask("wait", "a", "c"), ["-1", "not-inside"]);
        assert_eq!(rig.signal("c", "one"), "-1");
        assert_eq!(rig.signal("c", "count"), "-1");
        assert_eq!((rig.waiting(), rig.holder().as_deref()), (vec![], Some("b")));
        rig.leave("b");
        rig.is_clean();
    }
}

#[test]
fn a_signal_moves_the_oldest_to_the_end_of_the_queue() {
    for mut rig in rigs("moves") {
        for who in ["a", "b", "c"] {
            rig.wait(who);
        }
        rig.lock("h");
        rig.lock("d");
        assert_eq!(rig.signal("h", "count"), "3");
        assert_eq!(rig.signal("h", "one"), "1");
        assert_eq!(
            (rig.queue(), rig.waiting()),
            (vec!["d".into(), "a".into()], vec!["b".into(), "c".into()])
        );
        assert_eq!((rig.signal("h", "count"), rig.signal("h", "all")), ("2".into(), "2".into()));
        assert_eq!((rig.queue(), rig.waiting()), (["d", "a", "b", "c"].map(String::from).into(), vec![]));
        assert_eq!(rig.signal("h", "one"), "0");
        rig.all_keys_end();
        // A heartbeat leaves it there.
        assert_eq!(rig.ask("keep", "a", "")[0], "0");
        for next in ["h", "d", "a", "b", "c"] {
            assert_eq!(rig.holder().as_deref(), Some(next));
            rig.leave(next);
        }
        rig.is_clean();
    }
}

#[test]
fn a_queue_that_begins_with_a_signal_ends() {
    for mut rig in rigs("ends") {
        rig.wait("a");
        rig.lock("h");
        rig.signal("h", "one");
        assert_eq!(rig.queue(), ["a"]);
        rig.all_keys_end();
    }
}

#[test]
fn the_silent_and_the_unheard_are_passed_over() {
    for mut rig in rigs("over") {
        for who in ["a", "e", "b", "c"] {
            rig.wait(who);
        }
        rig.age("a", 3_001);
        rig.lock("h");
        assert_eq!(rig.signal("h", "count"), "3");
        assert_eq!(rig.signal("h", "one"), "1", "nobody hears for e");
        assert_eq!((rig.queue(), rig.waiting()), (vec!["b".into()], vec!["c".into()]));
        let Rig { con, keys, .. } = &mut rig.rig;
        let positions: Vec<String> = con.hkeys(&keys[2]).unwrap();
        assert_eq!(positions.len(), 2, "{positions:?}");
        // Whose queue position is lost comes in as anybody does.
        assert_eq!(rig.ask("keep", "a", "")[0], "0");
        assert_eq!(rig.queue(), ["b", "a"]);
    }
}

#[test]
fn a_signal_goes_on_where_its_owner_is_silent_unheard_or_leaves() {
    for how in ["silent", "unheard", "quits"] {
        for mut rig in rigs(&format!("on-{how}")) {
            rig.wait("a");
            rig.wait("b");
            rig.lock("h");
            rig.lock("d");
            assert_eq!(rig.signal("h", "one"), "1");
            assert_eq!(rig.queue(), ["d", "a"]);
            match how {
                "silent" => rig.age("a", 3_001),
                "unheard" => drop(rig.props.remove(0)),
                _ => assert_eq!(rig.quit("a", "1"), ["0"]),
            }
            if how == "unheard" {
                rig.age("a", OVERDUE);
                // The server has seen that it is gone.
                let channel = format!("{PREFIX}{}-a", rig.name);
                redis_concurrent_testkit::wait_until(LONG, "it is gone", || {
                    rig.con.publish::<_, _, i64>(&channel, "?").unwrap() == 0
                });
            }
            rig.leave("h");
            rig.leave("d");
            assert_eq!(rig.holder().as_deref(), Some("b"), "{how}");
            rig.leave("b");
            rig.is_clean();
        }
    }
}

/// It may die before it hears of it: then the others' heartbeats find its signal.
#[test]
fn who_is_let_in_by_a_signal_is_remembered_while_others_wait() {
    for mut rig in rigs("let-in") {
        rig.wait("a");
        rig.wait("b");
        rig.lock("h");
        assert_eq!(rig.signal("h", "one"), "1");
        rig.leave("h");
        assert_eq!(rig.holder().as_deref(), Some("a"));
        let remembered: bool = rig.rig.con.hexists(&rig.rig.keys[2], "signalled").unwrap();
        assert!(remembered, "{}", rig.kind);
    }
}

/// With the last waiter that its signal could go on to: what is remembered would outlast all of them.
#[test]
fn who_is_let_in_by_a_signal_is_forgotten_once_nobody_waits() {
    for how in ["back", "quit", "silent"] {
        for mut rig in rigs(&format!("forgotten-{how}")) {
            rig.wait("a");
            rig.wait("b");
            rig.lock("h");
            assert_eq!(rig.signal("h", "one"), "1");
            rig.leave("h");
            match how {
                "back" => assert_eq!(rig.ask("back", "b", "")[..2], ["2", "0"]),
                "quit" => assert_eq!(rig.quit("b", ""), ["0"]),
                _ => {
                    assert_eq!(rig.signal("a", "one"), "1");
                    rig.age("b", 3_001);
                }
            }
            rig.leave("a");
            if how == "back" {
                rig.leave("b");
            }
            rig.is_clean();
        }
    }
}

#[test]
fn a_waiter_that_comes_back_without_a_signal_is_told_so_and_has_none_to_pass_on() {
    for mut rig in rigs("back") {
        rig.wait("a");
        rig.wait("b");
        rig.lock("h");
        for _ in 0..2 {
            let answer = rig.ask("back", "a", "");
            assert_eq!(answer[..2], ["2".to_owned(), "0".to_owned()]);
            assert_eq!((rig.queue(), rig.waiting()), (vec!["a".into()], vec!["b".into()]));
        }
        assert_eq!(rig.ask("keep", "a", "")[..2], ["2", "0"]);
        rig.age("a", 3_001);
        rig.leave("h");
        assert_eq!((rig.holder(), rig.waiting()), (None, vec!["b".into()]));
        // With nobody in the way it is in at once.
        let answer = rig.ask("back", "b", "");
        assert_eq!(answer[..2], ["2".to_owned(), "1".to_owned()]);
        assert_eq!(rig.ask("back", "b", "")[0], "1", "it is inside");
        rig.leave("b");
        rig.is_clean();
    }
}

#[test]
fn a_waiter_signalled_before_it_comes_back_was_signalled() {
    for mut rig in rigs("signalled") {
        rig.wait("a");
        rig.lock("h");
        rig.signal("h", "one");
        assert_eq!(rig.ask("back", "a", "")[0], "0");
        rig.leave("h");
        assert_eq!(rig.ask("back", "a", "")[0], "1");
    }
}

#[test]
fn its_time_over_before_it_began_it_gives_the_lock_up_for_the_end_of_the_queue() {
    for mut rig in rigs("late") {
        rig.lock("h");
        rig.lock("b");
        assert_eq!(rig.ask("back", "a", "h")[..2], ["2", "0"]);
        assert_eq!((rig.holder().as_deref(), rig.queue()), (Some("b"), vec!["a".to_owned()]));
    }
}

#[test]
fn an_owner_with_a_tombstone_neither_waits_nor_comes_back() {
    for mut rig in rigs("tombstone") {
        rig.wait("a");
        assert_eq!(rig.quit("a", "1"), ["0"]);
        rig.lock("h");
        assert_eq!(rig.ask("wait", "a", "h"), ["-1", "over"]);
        assert_eq!(rig.holder().as_deref(), Some("h"));
        rig.leave("h");
        rig.is_clean();
    }
}

#[test]
fn a_heartbeat_brings_back_a_member_that_was_lost() {
    for mut rig in rigs("member") {
        rig.wait("a");
        rig.wait("b");
        let Rig { con, keys, .. } = &mut rig.rig;
        let _: () = con.del(&keys[5]).unwrap();
        rig.ask("keep", "b", "");
        rig.ask("keep", "a", "");
        assert_eq!(rig.waiting(), ["a", "b"]);
        rig.all_keys_end();
    }
}
