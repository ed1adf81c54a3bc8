//! What a rule may define besides.

use redis::Commands;
use redis_concurrent::kinds::{Kind, Simple};

use crate::rig::{Ask, LEASE, Rig, USUAL, WAITER_TIMEOUT, assert_busy, assert_in, int, messages, server};

/// A simple lock with classes, refusals and a list of the waiters that left without a grant.
const EXTRAS: &str = "
function kind.class(w)
  return tonumber(w.args) or 0
end
function kind.reject(w)
  if w.args == 'never' or redis.call('EXISTS', K[1] .. ':shut') == 1 then return 'shut' end
end
function kind.can_barge(w)
  return w.args == 'pass'
end
function kind.on_leave(w, why)
  redis.call('RPUSH', K[1] .. ':left', w.owner .. ' ' .. why)
end
";

#[test]
fn classes_order_before_arrivals() {
    let mut rig = Rig::of(server(), "simple", &format!("{}\n{EXTRAS}", Simple::RULE), "class");
    let owner = rig.a();
    rig.try_(&owner);
    let ids: Vec<_> = (1..=4).map(|n| rig.id("w", n)).collect();
    for (id, args) in ids.iter().zip(["1", "0", "1", "0"]) {
        let answer = rig.acquire("wait", id, Ask { args, ..USUAL }).unwrap();
        let (_, _, arrival) = assert_busy("class", &answer);
        assert!(int(&arrival) < 1 << 50, "the arrival is told without its class");
    }
    assert_eq!(rig.queue(), [1, 3, 0, 2].map(|i: usize| ids[i].clone()));
}

/// A number that the rule adds to a grant, as large as a fencing token.
#[test]
fn a_value_is_the_same_by_reply_and_by_message() {
    let rule = super::BULKHEAD.replace("return true, n\n", "return true, n, n + 0.0\n");
    assert_ne!(rule, super::BULKHEAD);
    let mut rig = Rig::of(server(), "bulkhead", &rule, "value");
    let (a, b) = (rig.a(), rig.b());
    let mut inbox = rig.inbox(server(), "b");
    let reply = rig.try_(&a);
    assert!(reply[1].len() > 14 && reply[3] == reply[1], "{reply:?}");
    rig.wait(&b);
    rig.leave(&a);
    let number = rig.fence();
    assert!(messages(&rig, &mut inbox, "b")[0].ends_with(&format!(" {number}")), "as it is numbered");
}

#[test]
fn a_refusal_comes_before_queueing_and_at_the_head() {
    let mut rig = Rig::of(server(), "simple", &format!("{}\n{EXTRAS}", Simple::RULE), "refuse");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    for how in ["try", "wait"] {
        let never = Ask { args: "never", ..USUAL };
        assert_eq!(rig.acquire(how, &b, never).unwrap(), ["-1", "shut"], "{how} on a free lock");
    }
    assert!(rig.our_keys().is_empty());
    rig.try_(&a);
    for how in ["try", "wait"] {
        let never = Ask { args: "never", ..USUAL };
        let answer = rig.acquire(how, &b, never).unwrap();
        // A try on a lock that is held is simply busy.
        assert!(answer == ["-1", "shut"] || (how == "try" && answer[0] == "0"), "{how}: {answer:?}");
        assert!(rig.queue().is_empty(), "{how}");
    }
    // It waits, and then nobody may come in any more.
    let mut inbox = rig.inbox(server(), "b");
    rig.wait(&b);
    let shut = format!("{}:shut", rig.keys[0]);
    let _: () = rig.con.set(&shut, 1).unwrap();
    rig.leave(&a);
    let reply = messages(&rig, &mut inbox, "b");
    assert_eq!(reply.len(), 1, "{reply:?}");
    assert!(reply[0].starts_with(&format!("{b} no:shut 0 ")), "{reply:?}");
    assert!(!rig.exists(0) && !rig.exists(1) && !rig.exists(2));
    assert_eq!(rig.wait(&c), ["-1", "shut"]);
    let _: () = rig.con.del(shut).unwrap();
}

#[test]
fn a_caller_that_may_pass_does_not_queue_and_one_that_goes_without_is_told_to_the_rule() {
    let mut rig = Rig::of(server(), "simple", &format!("{}\n{EXTRAS}", Simple::RULE), "passes");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    rig.try_(&a);
    rig.wait(&b);
    let d = rig.id("d", 1);
    rig.wait(&d);
    rig.set_lease(&a, -1);
    // `b` waits alive: one that may pass goes first all the same.
    assert_in("passes", &rig.acquire("wait", &c, Ask { args: "pass", ..USUAL }).unwrap(), LEASE);
    rig.leave(&b);
    rig.age_position(&d, WAITER_TIMEOUT + 1_000);
    rig.leave(&c);
    let left: Vec<String> = rig.con.lrange(format!("{}:left", rig.keys[0]), 0, -1).unwrap();
    assert_eq!(left, [format!("{b} left"), format!("{d} silent")]);
}
