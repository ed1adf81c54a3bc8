//! The inventory's rule, straight against a server, below the client.
//!
//! Time is played by editing what the scripts stored, never by sleeping.

use redis::{Commands, RedisResult, cmd};
use redis_concurrent::inventory::Units;
use redis_concurrent::kinds::Kind;
use redis_concurrent_testkit::RedisServer;

use crate::rig::{Ask, Rig, USUAL, int, next_message, server_that_fills, subscribe};

/// For how long an id is remembered here, in ms.
const MEMORY: i64 = 600_000;

/// One inventory on a server of its own, which counts what it runs, and is full at times.
type Fixture = crate::rig::Fixture<RedisServer, Units>;

/// What a reservation asks for, without an id and a customer.
fn some(units: &str) -> String {
    of("", "", units)
}

/// By this id, for a customer and its limit (`alice|2`).
fn of(id: &str, customer: &str, units: &str) -> String {
    let customer = if customer.is_empty() { "|9" } else { customer };
    format!("take|{id}|{MEMORY}|{customer}|{units}")
}

impl Fixture {
    /// With so much of each SKU in stock.
    fn with(stock: &[(&str, i64)]) -> Fixture {
        let props = server_that_fills();
        let rig = Rig::of(&props, Units::NAME, Units::RULE, "it");
        let mut fixture = Fixture::new(rig, props);
        for (sku, n) in stage_names(stock) {
            assert_eq!(fixture.update(&format!("stock:{sku}"), &["add_stock", &n, sku]).unwrap(), ["1"]);
        }
        fixture
    }

    fn ask(&mut self, how: &str, owner: &str, args: &str) -> RedisResult<Vec<String>> {
        self.rig.acquire(how, owner, Ask { args, ..USUAL })
    }

    fn try_(&mut self, owner: &str, args: &str) -> Vec<String> {
        self.ask("try", owner, args).unwrap()
    }

    #[track_caller]
    fn takes(&mut self, owner: &str, args: &str) -> String {
        let answer = self.try_(owner, args);
        assert_eq!((&*answer[0], answer.len()), ("1", 3), "{answer:?}");
        answer[1].clone()
    }

    #[track_caller]
    fn refuses(&mut self, owner: &str, args: &str, why: &str) {
        let before = self.everything();
        assert_eq!(self.try_(owner, args), ["-1", why]);
        assert_eq!(self.everything(), before, "it has changed something");
    }

    #[track_caller]
    fn has_not_so_much(&mut self, owner: &str, args: &str) {
        let before = self.everything();
        assert_eq!(self.try_(owner, args)[0], "0");
        assert_eq!(self.everything(), before, "it has changed something");
    }

    fn commit(&mut self, owner: &str) -> String {
        self.update(owner, &["commit"]).unwrap().remove(0)
    }

    /// {stocked, available, reserved, sold}, which is the sum of the others at all times.
    #[track_caller]
    fn counts(&mut self, sku: &str) -> [i64; 4] {
        let state = self.inspect_as(&format!("sku|{sku}")).unwrap().swap_remove(3);
        let counts: Vec<i64> = state.iter().map(|count| int(count)).collect();
        let counts: [i64; 4] = counts.try_into().unwrap();
        assert_eq!(counts[0], counts[1..].iter().sum::<i64>(), "{sku}: {counts:?}");
        assert!(counts.iter().all(|count| *count >= 0), "{sku}: {counts:?}");
        counts
    }

    /// The owner's reservation, or its hold of the lock, ended so many ms ago.
    fn lapse(&mut self, owner: &str, ago: i64) {
        let source = "local ends = math.floor(ARGV[2] / 1000) - ARGV[3]
            local field = redis.call('HEXISTS', KEYS[1], ARGV[1]) == 1 and ARGV[1] or 'lock'
            local entry = cmsgpack.unpack(redis.call('HGET', KEYS[1], field))
            entry[field == 'lock' and 2 or 1] = ends
            redis.call('HSET', KEYS[1], field, cmsgpack.pack(entry))
            if field ~= 'lock' then redis.call('ZADD', KEYS[6], ends, ARGV[1]) end
            return {}";
        let now = self.now().to_string();
        self.eval(source, &[owner, &now, &ago.to_string()]).unwrap();
    }
}

fn stage_names<'a>(stock: &[(&'a str, i64)]) -> Vec<(&'a str, String)> {
    stock.iter().map(|(sku, n)| (*sku, n.to_string())).collect()
}

// ---- counting ------------------------------------------------------------------------------

#[test]
fn units_go_from_one_count_to_another() {
    let mut inventory = Fixture::with(&[("tee", 5)]);
    let number = inventory.takes("a:1", &some("2|tee"));
    assert_eq!(inventory.takes("a:1", &some("2|tee")), number, "the same reservation");
    inventory.takes("b:1", &some("3|tee"));
    assert_eq!(inventory.counts("tee"), [5, 0, 5, 0]);
    inventory.has_not_so_much("c:1", &some("1|tee"));
    assert_eq!(inventory.leave("a:1"), ["1"]);
    assert_eq!(inventory.leave("a:1"), ["0"]);
    assert_eq!(inventory.counts("tee"), [5, 2, 3, 0]);
    assert_eq!(inventory.commit("b:1"), "1");
    assert_eq!(inventory.leave("b:1"), ["0"], "what is sold does not come back");
    assert_eq!(inventory.counts("tee"), [5, 2, 0, 3]);
    assert_eq!(inventory.update("r:1", &["add_stock", "4", "tee"]).unwrap(), ["1"]);
    assert_eq!(inventory.counts("tee"), [9, 6, 0, 3]);
    assert_eq!(inventory.fields(), ["available|tee", "kind", "reserved|tee", "sold|tee", "stocked|tee"]);
    assert!(!inventory.exists(5), "nothing of a reservation is left");
    assert_eq!(inventory.pttl(0), -1, "it is its users' state");
}

#[test]
fn several_skus_are_all_or_nothing() {
    let mut inventory = Fixture::with(&[("tee", 5), ("mug", 1), ("cap", 9)]);
    inventory.takes("a:1", &some("2|tee|1|mug|9|cap"));
    inventory.has_not_so_much("b:1", &some("1|tee|1|mug"));
    inventory.has_not_so_much("b:1", &some("1|mug|1|tee"));
    inventory.refuses("b:1", &some("1|tee|1|hat"), "unknown-SKU-%22hat%22:-add_stock-comes-first");
    assert_eq!((inventory.counts("tee"), inventory.counts("mug")), ([5, 3, 2, 0], [1, 0, 1, 0]));
    inventory.leave("a:1");
    inventory.takes("b:1", &some("1|tee|1|mug"));
    assert_eq!(inventory.commit("b:1"), "1");
    assert_eq!((inventory.counts("tee"), inventory.counts("mug")), ([5, 4, 0, 1], [1, 0, 0, 1]));
    assert_eq!(inventory.counts("cap"), [9, 9, 0, 0]);
}

#[test]
fn what_can_never_be_is_refused_with_its_names() {
    let mut inventory = Fixture::with(&[]);
    inventory.refuses("a:1", &some("1|tee"), "unknown-SKU-%22tee%22:-add_stock-comes-first");
    inventory.refuses("a:1", "lock|1|tee", "unknown-SKU-%22tee%22:-add_stock-comes-first");
    assert_eq!(inventory.our_keys(), Vec::<usize>::new());
    inventory.update("r:1", &["add_stock", "3", "a-b %7C é"]).unwrap();
    let name = "%22a%2Db%20%7C%20%C3%A9%22";
    inventory.refuses("a:1", &some("4|a-b %7C é"), &format!("only-3-of-{name}-were-ever-stocked"));
    inventory.refuses("a:1", "lock|4|a-b %7C é", &format!("only-3-of-{name}-were-ever-stocked"));
    inventory.takes("a:1", &some("3|a-b %7C é"));
    inventory.refuses("b:1", &some("4|a-b %7C é"), &format!("only-3-of-{name}-were-ever-stocked"));
    inventory.refuses("b:1", "lock|1|a-b %7C é", &format!("only-0-of-{name}-are-left"));
}

#[test]
fn numbers_are_exact_to_the_last_unit() {
    let most = (1_i64 << 53) - 1;
    let mut inventory = Fixture::with(&[("tee", most)]);
    assert_eq!(inventory.update("r:1", &["add_stock", "1", "tee"]).unwrap(), ["0"], "one too many");
    assert_eq!(inventory.update("r:1", &["add_stock", "1", "tee"]).unwrap(), ["0"], "sent twice");
    inventory.takes("a:1", &some(&format!("{}|tee", most - 1)));
    inventory.takes("b:1", &some("1|tee"));
    assert_eq!(inventory.counts("tee"), [most, 0, most, 0]);
    inventory.has_not_so_much("c:1", &some("1|tee"));
    inventory.leave("b:1");
    assert_eq!(inventory.commit("a:1"), "1");
    assert_eq!(inventory.counts("tee"), [most, 1, 0, most - 1]);
}

#[test]
fn a_change_that_is_sent_twice_is_done_once() {
    let mut inventory = Fixture::with(&[("tee", 5)]);
    for _ in 0..2 {
        assert_eq!(inventory.update("r:1", &["add_stock", "2", "tee"]).unwrap(), ["1"]);
    }
    assert_eq!(inventory.counts("tee"), [7, 7, 0, 0]);
    inventory.takes("a:1", &some("2|tee"));
    for _ in 0..2 {
        assert_eq!(inventory.commit("a:1"), "1");
    }
    assert_eq!(inventory.counts("tee"), [7, 5, 0, 2]);
    // A late copy of the ask does not bring it back, and one of the release gives nothing back.
    assert_eq!(inventory.try_("a:1", &some("2|tee")), ["-1", "over"]);
    assert_eq!(inventory.leave("a:1"), ["0"]);
    assert_eq!(inventory.counts("tee"), [7, 5, 0, 2]);
    for _ in 0..2 {
        assert_eq!(inventory.update("d:1", &["delete"]).unwrap(), ["1"]);
        assert_eq!(inventory.update("d:2", &["delete"]).unwrap(), ["0"]);
    }
}

#[test]
fn what_was_given_back_is_not_sold_by_a_late_commit() {
    let mut inventory = Fixture::with(&[("tee", 5)]);
    inventory.takes("a:1", &some("2|tee"));
    assert_eq!(inventory.leave_unsettled("a:1").unwrap(), ["1"]);
    assert_eq!(inventory.commit("a:1"), "0");
    inventory.takes("b:1", &some("2|tee"));
    inventory.lapse("b:1", 1);
    assert_eq!((inventory.commit("b:1"), inventory.commit("b:1")), ("0".into(), "0".into()));
    assert_eq!(inventory.commit("nobody:1"), "0");
    assert_eq!(inventory.counts("tee"), [5, 5, 0, 0]);
}

// ---- leases --------------------------------------------------------------------------------

#[test]
fn what_lapsed_is_back_whatever_is_asked() {
    type Inspection = fn(&mut Fixture);
    let looks: [Inspection; 5] = [
        |inventory| assert_eq!(inventory.inspect_as("take").unwrap()[1][0], "b:1"),
        |inventory| drop(inventory.try_("x:1", &some("9|tee"))),
        |inventory| drop(inventory.update("x:2", &["add_stock", "1", "mug"])),
        |inventory| drop(inventory.leave_unsettled("x:3")),
        |inventory| drop(inventory.ask("wait", "x:4", "lock|9|tee")),
    ];
    for look in looks {
        let mut inventory = Fixture::with(&[("tee", 9)]);
        inventory.takes("a:1", &of("one", "alice|4", "4|tee"));
        inventory.takes("b:1", &some("2|tee"));
        inventory.lapse("a:1", 1);
        look(&mut inventory);
        let available: i64 = inventory.rig.con.hget(&inventory.rig.keys[0], "available|tee").unwrap();
        assert_eq!(available, 7);
        assert_eq!(inventory.renew("a:1", 30_000).unwrap(), ["-1"]);
        assert!(!inventory.fields().iter().any(|it| it.starts_with("customer|") || it.starts_with("id|")));
        inventory.takes("c:1", &of("one", "alice|4", "4|tee"));
    }
}

#[test]
fn renewing_extends_and_never_creates() {
    let mut inventory = Fixture::with(&[("tee", 5)]);
    inventory.takes("a:1", &some("2|tee"));
    assert_eq!(inventory.renew("a:1", 60_000).unwrap(), ["60000"]);
    let left = int(&inventory.inspect_as("take").unwrap()[1][1]);
    assert!((59_000..=60_000).contains(&left), "{left}");
    assert_eq!(inventory.renew("b:1", 60_000).unwrap(), ["-1"]);
    inventory.lapse("a:1", 1);
    assert_eq!(inventory.renew("a:1", 60_000).unwrap(), ["-1"]);
    assert_eq!(inventory.counts("tee"), [5, 5, 0, 0]);
    assert_eq!(inventory.ask("try", "l:1", "lock|1|tee").unwrap()[0], "1");
    assert_eq!(inventory.renew("l:1", 60_000).unwrap(), ["60000"]);
    inventory.lapse("l:1", 1);
    assert_eq!(inventory.renew("l:1", 60_000).unwrap(), ["-1"]);
}

#[test]
fn thousands_lapse_at_once_and_none_is_lost() {
    let mut inventory = Fixture::with(&[("tee", 2500)]);
    for i in 0..2500 {
        inventory.takes(&format!("a:{i}"), &some("1|tee"));
    }
    let source = "for _, owner in ipairs(redis.call('ZRANGE', KEYS[6], 0, -1)) do redis.call('ZADD', KEYS[6], 1, owner) end
        return {}";
    inventory.eval(source, &[]).unwrap();
    assert_eq!(inventory.counts("tee"), [2500, 2500, 0, 0]);
}

// ---- ids and customers ---------------------------------------------------------------------

#[test]
fn an_id_has_one_reservation_at_a_time_and_is_sold_once() {
    let mut inventory = Fixture::with(&[("tee", 5)]);
    let args = of("o-1", "", "2|tee");
    inventory.takes("a:1", &args);
    inventory.takes("a:1", &args);
    inventory.refuses("b:1", &args, "conflict-order-%22o%2D1%22-has-a-reservation");
    inventory.leave("a:1");
    inventory.takes("b:1", &args);
    assert_eq!(inventory.inspect_as("id|o-1").unwrap()[3], ["0"]);
    assert_eq!(inventory.commit("b:1"), "1");
    assert_eq!(inventory.inspect_as("id|o-1").unwrap()[3], ["1"]);
    inventory.refuses("c:1", &args, "conflict-order-%22o%2D1%22-was-sold");
    // Long after the request is forgotten; and an inventory that was deleted does not sell it anew either.
    let ttl = inventory.pttl(4);
    assert!((MEMORY - 5_000..=MEMORY).contains(&ttl), "{ttl}");
    inventory.leave_unsettled("x:1").unwrap();
    assert!(inventory.pttl(4) > MEMORY - 5_000, "a tombstone does not shorten it");
    inventory.update("d:1", &["delete"]).unwrap();
    inventory.update("r:1", &["add_stock", "5", "tee"]).unwrap();
    inventory.refuses("c:1", &args, "conflict-order-%22o%2D1%22-was-sold");
    let ms = inventory.now() / 1000;
    let _: () = inventory.rig.con.zadd(&inventory.rig.keys[4], "id|o-1", ms - 1).unwrap();
    inventory.takes("c:1", &args);
    assert_eq!(inventory.inspect_as("id|o-1").unwrap()[3], ["0"]);
}

#[test]
fn a_customer_has_at_most_its_limit_of_each() {
    let mut inventory = Fixture::with(&[("tee", 9), ("mug", 9)]);
    inventory.takes("a:1", &of("", "al-ice|3", "2|tee"));
    inventory.refuses(
        "b:1",
        &of("", "al-ice|3", "2|tee"),
        "customer-%22al%2Dice%22-has-2-of-%22tee%22-and-may-have-3",
    );
    inventory.takes("b:1", &of("", "al-ice|3", "1|tee|3|mug"));
    inventory.takes("c:1", &of("", "bob|3", "3|tee"));
    assert_eq!(inventory.commit("a:1"), "1");
    inventory.refuses(
        "d:1",
        &of("", "al-ice|3", "1|tee"),
        "customer-%22al%2Dice%22-has-3-of-%22tee%22-and-may-have-3",
    );
    inventory.leave("b:1");
    inventory.takes("d:1", &of("", "al-ice|3", "1|tee"));
    assert_eq!((inventory.counts("tee"), inventory.counts("mug")), ([9, 3, 4, 2], [9, 9, 0, 0]));
    let customers = |inventory: &mut Fixture| -> Vec<String> {
        inventory.fields().into_iter().filter(|it| it.starts_with("customer|")).collect()
    };
    assert_eq!(customers(&mut inventory), ["customer|al-ice|tee", "customer|bob|tee"]);
    inventory.leave("c:1");
    assert_eq!(
        customers(&mut inventory),
        ["customer|al-ice|tee"],
        "a customer without reservations is forgotten"
    );
}

// ---- the lock ------------------------------------------------------------------------------

#[test]
fn one_has_the_lock_and_reservations_pass_its_waiters() {
    let mut inventory = Fixture::with(&[("tee", 5)]);
    let number = int(&inventory.ask("wait", "a:1", "lock|1|tee").unwrap()[1]);
    assert_eq!(inventory.ask("try", "b:1", "lock|1|tee").unwrap()[0], "0");
    let _inbox = subscribe(&inventory.props, "b");
    assert_eq!(inventory.ask("wait", "b:1", "lock|2|tee").unwrap()[0], "0");
    inventory.takes("c:1", &some("2|tee"));
    assert_eq!(inventory.inspect_as("lock|1|tee").unwrap()[1][0], "a:1");
    assert_eq!(inventory.leave("a:1"), ["1"]);
    assert_eq!(inventory.inspect_as("lock|1|tee").unwrap()[1][0], "b:1");
    assert!(inventory.fence() > number);
    inventory.lapse("b:1", 1);
    assert_eq!(inventory.ask("try", "a:2", "lock|1|tee").unwrap()[0], "1");
    assert_eq!(inventory.leave("b:1"), ["0"]);
    assert_eq!(inventory.leave("a:2"), ["1"]);
    assert_eq!(inventory.queue(), Vec::<String>::new());
}

#[test]
fn a_waiter_for_the_lock_is_told_when_nothing_is_left() {
    let mut inventory = Fixture::with(&[("tee", 2), ("mug", 1)]);
    let [mut b, mut c, mut d] = ["b", "c", "d"].map(|who| subscribe(&inventory.props, who));
    inventory.ask("wait", "a:1", "lock|1|tee").unwrap();
    for (owner, args) in [("b:1", "lock|2|tee"), ("c:1", "lock|1|mug"), ("d:1", "lock|1|tee")] {
        assert_eq!(inventory.ask("wait", owner, args).unwrap()[0], "0");
    }
    // Less than the first one waits for: only that hears of it.
    inventory.takes("x:1", &some("1|tee"));
    assert_eq!(next_message(&mut b), "b:1 no:only-1-of-%22tee%22-are-left 0 0");
    assert_eq!(inventory.queue(), ["c:1", "d:1"]);
    // Zero: any waiter for it, also behind others.
    inventory.takes("x:2", &some("1|tee"));
    assert_eq!(next_message(&mut d), "d:1 no:only-0-of-%22tee%22-are-left 0 0");
    assert_eq!(inventory.queue(), ["c:1"]);
    assert_eq!(inventory.ask("wait", "e:1", "lock|1|tee").unwrap(), ["-1", "only-0-of-%22tee%22-are-left"]);
    inventory.update("k:1", &["delete"]).unwrap();
    assert_eq!(next_message(&mut c), "c:1 no:unknown-SKU-%22mug%22:-add_stock-comes-first 0 0");
    assert_eq!(inventory.leave("a:1"), ["0"]);
}

#[test]
fn a_caller_that_found_nothing_left_tells_nobody() {
    let mut inventory = Fixture::with(&[("tee", 1), ("mug", 1)]);
    let _inbox = subscribe(&inventory.props, "b");
    inventory.ask("wait", "a:1", "lock|1|tee").unwrap();
    inventory.ask("wait", "b:1", "lock|1|tee").unwrap();
    inventory.takes("m:1", &some("1|mug"));
    inventory.has_not_so_much("x:1", &some("1|tee|1|mug"));
    assert_eq!(inventory.queue(), ["b:1"]);
}

// ---- trouble -------------------------------------------------------------------------------

#[test]
fn a_key_of_another_kind_is_refused_and_kept() {
    for make in ["SET", "HSET", "ZADD"] {
        let mut inventory = Fixture::with(&[]);
        let key = inventory.rig.keys[0].clone();
        let args: &[&str] = match make {
            "SET" => &["x"],
            "HSET" => &["kind", "semaphore"],
            _ => &["1", "x"],
        };
        let _: () = cmd(make).arg(&key).arg(args).query(&mut inventory.rig.con).unwrap();
        let before = inventory.everything();
        let mut errors = vec![
            inventory.ask("try", "a:1", &some("1|tee")).unwrap_err(),
            inventory.ask("wait", "a:1", "lock|1|tee").unwrap_err(),
            inventory.update("r:1", &["add_stock", "1", "tee"]).unwrap_err(),
            inventory.update("r:1", &["delete"]).unwrap_err(),
            inventory.inspect_as("sku|tee").unwrap_err(),
        ];
        errors.extend(inventory.leave_unsettled("a:1").err());
        for error in errors {
            assert!(error.to_string().contains("WRONG"), "{make}: {error}");
        }
        assert_eq!(inventory.everything()[0], before[0], "{make}");
    }
}

#[test]
fn a_full_redis_takes_whatever_ends_or_keeps_something() {
    let mut inventory = Fixture::with(&[("tee", 9)]);
    for owner in ["a:1", "b:1", "c:1", "d:1"] {
        inventory.takes(owner, &of(owner, "alice|9", "1|tee"));
    }
    inventory.ask("wait", "l:1", "lock|1|tee").unwrap();
    inventory.full(true);
    let before = inventory.everything();
    assert!(inventory.ask("try", "x:1", &some("1|tee")).is_err());
    assert_eq!(inventory.everything(), before, "nothing half-written");
    assert_eq!(inventory.renew("a:1", 40_000).unwrap(), ["40000"]);
    assert_eq!(inventory.renew("l:1", 40_000).unwrap(), ["40000"]);
    assert_eq!(inventory.commit("a:1"), "1");
    assert_eq!(inventory.leave("b:1"), ["1"]);
    assert_eq!(inventory.leave("l:1"), ["1"]);
    inventory.full(false);
    inventory.lapse("c:1", 1);
    inventory.full(true);
    assert_eq!(inventory.counts("tee"), [9, 7, 1, 1]);
    assert_eq!(inventory.update("k:1", &["delete"]).unwrap(), ["1"]);
}

#[test]
fn nobody_is_walked_over_for_a_decision() {
    let mut inventory = Fixture::with(&[("tee", 500)]);
    for i in 0..400 {
        inventory.takes(&format!("a:{i}"), &of(&format!("o{i}"), "", "1|tee"));
    }
    let _: () = cmd("CONFIG").arg("RESETSTAT").query(&mut inventory.rig.con).unwrap();
    inventory.takes("b:1", &some("1|tee"));
    assert_eq!(inventory.try_("b:2", &some("200|tee"))[0], "0");
    inventory.leave("b:1");
    assert_eq!((inventory.calls("hgetall"), inventory.calls("hkeys"), inventory.calls("hget")), (0, 0, 0));
}

#[test]
fn what_somebody_deleted_by_hand_keeps_nobody_out_for_ever() {
    let mut inventory = Fixture::with(&[("tee", 3)]);
    inventory.takes("a:1", &some("2|tee"));
    let (state, ends) = (inventory.keys[0].clone(), inventory.keys[5].clone());
    let _: () = inventory.con.del(&state).unwrap();
    let _: () = inventory.con.zadd(&ends, "a:1", 1).unwrap();
    assert_eq!(inventory.update("r:9", &["add_stock", "5", "tee"]).unwrap(), ["1"]);
    assert_eq!(inventory.counts("tee"), [5, 5, 0, 0]);
}
