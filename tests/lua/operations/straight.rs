//! The straight paths of the operations end as the loop does; and what the loop must decide, it decides. Each scene is
//! played twice from the same keys, the second time past the straight path.

use redis::{Commands, RedisResult, pipe};
use redis_concurrent::kinds::{Kind, Reentrant, Simple};
use redis_concurrent_testkit::{RedisServer, eventually, scripts};

use crate::rig::{
    Ask, EPOCH, OVERDUE, PREFIX, RECORD, Rig, USUAL, WAITER_TIMEOUT, int, received, server_that_fills,
};
use crate::support::LONG;

/// What it is, and what makes it of a lock that `a` is inside.
type Scene = (&'static str, fn(&mut Rig));
/// The commands that a script has run, each with how often.
type Calls = Vec<(String, u64)>;

fn both_wait(rig: &mut Rig, b: Ask<'_>) {
    let (first, second) = (rig.b(), rig.c());
    rig.acquire("wait", &first, b).unwrap();
    rig.wait(&second);
}

/// Changes the queue position of `b`: `change` sees it as `p`.
fn edited(rig: &mut Rig, change: &str) {
    both_wait(rig, USUAL);
    edits(rig, change);
}

fn edits(rig: &mut Rig, change: &str) {
    let b = rig.b();
    let source = format!(
        "local p = cmsgpack.unpack(redis.call('HGET', KEYS[3], ARGV[1]))
        {change}
        redis.call('HSET', KEYS[3], ARGV[1], cmsgpack.pack(p))
        return {{}}"
    );
    rig.eval(&source, &[&b]).unwrap();
}

fn last_signalled(rig: &mut Rig, owner: &str) {
    let source = "redis.call('HSET', KEYS[3], 'signalled', cmsgpack.pack({ARGV[1], 'room', 9e15})) return {}";
    rig.eval(source, &[owner]).unwrap();
}

fn member_waits(rig: &mut Rig, owner: &str, since: u64) {
    let member = format!("room|{since:016}|{owner}");
    pipe().zadd(&rig.keys[5], member, 0).pexpire(&rig.keys[5], 600_000).exec(&mut rig.con).unwrap();
}

fn fence_is(rig: &mut Rig, value: &str) {
    both_wait(rig, USUAL);
    let _: () = rig.con.set(&rig.keys[3], value).unwrap();
}

fn is_a_list(rig: &mut Rig, key: usize) {
    both_wait(rig, USUAL);
    pipe().del(&rig.keys[key]).rpush(&rig.keys[key], "something").exec(&mut rig.con).unwrap();
}

/// What the straight path runs, and `del`, with which the loop begins.
const OF_SCRIPTS: [&str; 13] = [
    "get",
    "hget",
    "zrange",
    "time",
    "pubsub",
    "pubsub|numsub",
    "set",
    "hset",
    "pexpire",
    "zrem",
    "hdel",
    "publish",
    "del",
];

/// How long the machine may stand still in a scene, in ms: less than makes a difference to it.
const STALL: i64 = 300;
const FULL: &str = "the memory is full";

/// Here the straight path hands over. Unless a scene says otherwise, `b` and, behind it, `c` wait and listen.
const HAND_OVERS: &[Scene] = &[
    ("both wait", |rig| both_wait(rig, USUAL)),
    ("one waits", |rig| drop(rig.wait(&rig.b()))),
    ("its lease is shorter than a first lease", |rig| both_wait(rig, Ask { lease: 2_500, ..USUAL })),
    ("its waiter timeout is shorter than a first lease", |rig| {
        both_wait(rig, Ask { waiter_timeout: 900, lease: 10_000, ..USUAL })
    }),
    ("it came back without a signal", |rig| edited(rig, "p[6], p[7] = false, false")),
    ("it was signalled, and nobody else waits", |rig| edited(rig, "p[6], p[7] = 'room', '0000000000000001'")),
    ("there is no fence", |rig| {
        both_wait(rig, USUAL);
        let _: () = rig.con.del(&rig.keys[3]).unwrap();
    }),
];

/// And here it leaves all to the loop.
const LEFT_TO_THE_LOOP: &[Scene] = &[
    ("nobody waits", |_| {}),
    ("it comes by a signal, for which others wait", |rig| {
        edited(rig, "p[6], p[7] = 'room', '0000000000000001'");
        let w = rig.id("w", 1);
        member_waits(rig, &w, 2);
    }),
    ("it was signalled, and another may not know that it was", |rig| {
        edited(rig, "p[6], p[7] = 'room', '0000000000000001'");
        let w = rig.id("w", 1);
        last_signalled(rig, &w);
    }),
    ("it is kept", |rig| {
        let (kept, c) = (format!("{}~", rig.b()), rig.c());
        rig.wait(&kept);
        rig.wait(&c);
    }),
    ("it is silent, and another was heard", |rig| {
        both_wait(rig, USUAL);
        let (b, c) = (rig.b(), rig.c());
        rig.stand_still(&[&b], WAITER_TIMEOUT + 1);
        rig.steady(&[&c], 2 * WAITER_TIMEOUT);
    }),
    ("all are silent", |rig| {
        both_wait(rig, USUAL);
        let (b, c) = (rig.b(), rig.c());
        rig.stand_still(&[&b, &c], 2 * WAITER_TIMEOUT);
    }),
    ("it has its waiter timeout once more", |rig| edited(rig, "p[8] = false")),
    ("its inbox broke", |rig| {
        let (deaf, c) = (rig.id("deaf", 1), rig.c());
        rig.wait(&deaf);
        rig.wait(&c);
    }),
    ("nobody listens, and its heartbeat is overdue", |rig| {
        let (deaf, c) = (rig.id("deaf", 1), rig.c());
        rig.wait(&deaf);
        rig.wait(&c);
        rig.age_position(&deaf, OVERDUE);
    }),
    ("it has lost its position", |rig| {
        both_wait(rig, USUAL);
        let _: () = rig.con.hdel(&rig.keys[2], rig.b()).unwrap();
    }),
    ("another is inside", |rig| {
        both_wait(rig, USUAL);
        let (a, d) = (rig.a(), rig.id("d", 1));
        rig.leave(&a);
        let (b, e) = (rig.b(), rig.id("b", 2));
        rig.leave(&b);
        rig.wait(&d);
        rig.wait(&e);
    }),
    ("its lease is over", |rig| {
        both_wait(rig, USUAL);
        let _: () = rig.con.del(&rig.keys[0]).unwrap();
    }),
    ("the clock is behind", |rig| {
        let later = rig.now() + 3_600_000_000;
        fence_is(rig, &later.to_string());
    }),
    ("no token can have the number", |rig| fence_is(rig, "4503599627370495")),
    ("the fence is no number", |rig| fence_is(rig, "a word")),
    ("the fence is a list", |rig| is_a_list(rig, 3)),
    ("the queue is a list", |rig| is_a_list(rig, 1)),
    ("the positions are a list", |rig| is_a_list(rig, 2)),
    ("the state is a list", |rig| is_a_list(rig, 0)),
    ("its position cannot be read", |rig| {
        both_wait(rig, USUAL);
        let _: () = rig.con.hset(&rig.keys[2], rig.b(), "text").unwrap();
    }),
    (FULL, |rig| both_wait(rig, USUAL)),
];

/// So it does for the sake of a next owner, the second one of `c`.
const LEFT_FOR_THE_NEXT: &[Scene] = &[
    ("the next owner has a tombstone", |rig| {
        both_wait(rig, USUAL);
        let next = rig.id("c", 2);
        rig.leave_unsettled(&next).unwrap();
    }),
    ("the next owner has a position", |rig| {
        both_wait(rig, USUAL);
        let next = rig.id("c", 2);
        rig.wait(&next);
    }),
    ("the last waiter ranks after now", |rig| {
        both_wait(rig, USUAL);
        let (d, later) = (rig.id("d", 1), rig.now() + 3_600_000_000);
        rig.acquire("wait", &d, Ask { arrival: &later.to_string(), ..USUAL }).unwrap();
    }),
];

/// Waits for the condition `room` with the hold of `a`, which then is inside again.
fn waits_for_room(rig: &mut Rig, owner: &str) {
    let (source, a) = (rig.scripts.wait_for.clone(), rig.a());
    rig.eval(&source, &[owner, "30000", PREFIX, "3000", "wait", "1", RECORD, &a, "", "room"]).unwrap();
    rig.try_(&a);
}

fn two_wait_for_room(rig: &mut Rig) {
    let (b, c) = (rig.b(), rig.c());
    waits_for_room(rig, &b);
    waits_for_room(rig, &c);
}

/// Here a wait for a condition, for which `a` gives up the lock, takes the straight path, as it does where a release does.
const WAITS: &[Scene] = &[
    ("nobody waits", |_| {}),
    (FULL, |_| {}),
    ("it comes by a signal, for which others wait", |rig| {
        edited(rig, "p[6], p[7] = 'room', '0000000000000001'");
        let d = rig.id("d", 1);
        member_waits(rig, &d, 2);
    }),
    ("both come by a signal", |rig| {
        edited(rig, "p[6], p[7] = 'room', '0000000000000001'");
        let a = rig.a();
        last_signalled(rig, &a);
    }),
    ("others wait for the signal", two_wait_for_room),
    ("the clock is behind that of others that wait for the signal", |rig| {
        let w = rig.id("w", 1);
        member_waits(rig, &w, 999_999_999_999_999);
    }),
];

const WAITS_BY_THE_LOOP: &[Scene] = &[
    ("the hold came by a signal, and the next does not", |rig| {
        both_wait(rig, USUAL);
        let a = rig.a();
        last_signalled(rig, &a);
    }),
    ("the hold came by a signal, and nobody waits", |rig| {
        let a = rig.a();
        last_signalled(rig, &a);
    }),
    ("the conditions are a list", |rig| is_a_list(rig, 5)),
];

/// `a` signals `room`.
const SIGNALS: &[Scene] = &[
    ("one waits for it", |rig| {
        let b = rig.b();
        waits_for_room(rig, &b);
    }),
    ("two wait for it", two_wait_for_room),
    ("another waits for the lock", |rig| {
        two_wait_for_room(rig);
        rig.wait(&rig.id("d", 1));
    }),
    ("the last waiter ranks after now", |rig| {
        two_wait_for_room(rig);
        let (d, later) = (rig.id("d", 1), rig.now() + 3_600_000_000);
        rig.acquire("wait", &d, Ask { arrival: &later.to_string(), ..USUAL }).unwrap();
    }),
    ("nobody waits for it", |rig| both_wait(rig, USUAL)),
    ("it came back", |rig| {
        two_wait_for_room(rig);
        edits(rig, "p[6] = false");
    }),
    ("it is more urgent than another that waits for the lock", |rig| {
        two_wait_for_room(rig);
        rig.wait(&rig.id("d", 1));
        edits(rig, "p[9] = 1");
    }),
    ("it is silent, and another was heard", |rig| {
        two_wait_for_room(rig);
        let (b, c) = (rig.b(), rig.c());
        rig.stand_still(&[&b], WAITER_TIMEOUT + 1);
        rig.steady(&[&c], 2 * WAITER_TIMEOUT);
    }),
    ("nobody hears for it", |rig| {
        let deaf = rig.id("deaf", 1);
        waits_for_room(rig, &deaf);
        two_wait_for_room(rig);
    }),
    ("it has lost its position", |rig| {
        two_wait_for_room(rig);
        let _: () = rig.con.hdel(&rig.keys[2], rig.b()).unwrap();
    }),
    ("nobody is inside", |rig| {
        two_wait_for_room(rig);
        let _: () = rig.con.del(&rig.keys[0]).unwrap();
    }),
    ("the queue is a list", |rig| {
        two_wait_for_room(rig);
        let _: () = rig.con.rpush(&rig.keys[1], "something").unwrap();
    }),
    ("the conditions are a list", |rig| is_a_list(rig, 5)),
    ("the state is a list", |rig| is_a_list(rig, 0)),
    (FULL, two_wait_for_room),
];

/// `b` is new, unless a scene says otherwise, and listens.
const NEWCOMERS: &[Scene] = &[
    ("nobody waits", |_| {}),
    ("another waits", |rig| drop(rig.wait(&rig.c()))),
    ("others wait for longer", |rig| {
        let (c, d) = (rig.c(), rig.id("d", 1));
        rig.acquire("wait", &c, Ask { waiter_timeout: 60_000, ..USUAL }).unwrap();
        rig.wait(&d);
    }),
    ("the clock is behind", |rig| {
        let (c, later) = (rig.c(), rig.now() + 3_600_000_000);
        rig.acquire("wait", &c, Ask { arrival: &later.to_string(), ..USUAL }).unwrap();
    }),
    ("others wait for a signal", |rig| {
        let _: () = rig.con.hset(&rig.keys[2], rig.c(), "text").unwrap();
        let _: () = rig.con.pexpire(&rig.keys[2], 600_000).unwrap();
    }),
    ("it has a position", |rig| drop(rig.wait(&rig.b()))),
    ("it has a tombstone", |rig| drop(rig.leave_unsettled(&rig.b()))),
    ("it is inside", |rig| {
        let (a, b) = (rig.a(), rig.b());
        rig.leave(&a);
        rig.try_(&b);
    }),
    ("nobody is inside", |rig| drop(rig.leave(&rig.a()))),
    ("the holder is kept", |rig| {
        let a = rig.a();
        rig.leave(&a);
        rig.try_(&rig.id("c", 1));
        let (c, kept) = (rig.c(), format!("{}~", rig.c()));
        rig.leave(&c);
        rig.try_(&kept);
    }),
    ("the queue is a list", |rig| is_a_list(rig, 1)),
    ("the positions are a list", |rig| is_a_list(rig, 2)),
    ("the state is a list", |rig| is_a_list(rig, 0)),
    (FULL, |_| {}),
];

/// What each key contains, without times of heartbeats, and when it expires, in ms since 1970.
const EVERYTHING: &str = "
    local t = redis.call('TIME')
    local ms, all = t[1] * 1000 + math.floor(t[2] / 1000), {}
    local function add(...) all[#all + 1] = table.concat({...}, ' ') end
    for i, key in ipairs(KEYS) do
        local kind = redis.call('TYPE', key).ok
        if kind == 'string' then add(i, redis.call('GET', key)) end
        if kind == 'list' then add(i, unpack(redis.call('LRANGE', key, 0, -1))) end
        if kind == 'zset' then add(i, unpack(redis.call('ZRANGE', key, 0, -1, 'WITHSCORES'))) end
        local fields = kind == 'hash' and redis.call('HKEYS', key) or {}
        table.sort(fields)
        for _, field in ipairs(fields) do
            local value = redis.call('HGET', key, field)
            if i ~= 3 or value == 'text' then
                add(i, field, value)
            else
                local p = cmsgpack.unpack(value)
                if field == 'signalled' then p = {p[1], 0, p[2]} end
                add(i, field, tostring(p[1]), tostring(p[3]), tostring(p[4]), tostring(p[5]), tostring(p[6]),
                    tostring(p[7]), type(p[8]))
            end
        end
        local left = redis.call('PTTL', key)
        if left ~= -2 then add('ends', left == -1 and left or string.format('%.0f', ms + left)) end
    end
    return all";

/// Makes every heartbeat look as much later as the second argument says, in us.
const LATER: &str = "
    for _, owner in ipairs(redis.call('TYPE', KEYS[3]).ok == 'hash' and redis.call('HKEYS', KEYS[3]) or {}) do
        local text = redis.call('HGET', KEYS[3], owner)
        local p = text ~= 'text' and cmsgpack.unpack(text)
        for _, at in ipairs(p and owner ~= 'signalled' and {2, 8} or {}) do p[at] = p[at] and p[at] + ARGV[1] end
        if p then redis.call('HSET', KEYS[3], owner, cmsgpack.pack(p)) end
    end
    return {}";

/// The keys of a lock, each with its remaining time in ms and its content, and when that was.
struct Saved {
    keys: Vec<(String, i64, Vec<u8>)>,
    at: i64,
}

/// What a release has left behind, with `N` for the number of its grant.
#[derive(Debug, PartialEq)]
struct Seen {
    /// An error without its place in the script.
    answer: Result<Vec<String>, String>,
    all: Vec<String>,
    messages: Vec<String>,
}

/// What else there is to see: when each key expires, in ms since just before, also
/// the ms of a reply, and which commands were run.
struct Aside {
    expire: Vec<i64>,
    calls: Calls,
}

fn save(rig: &mut Rig) -> Saved {
    let at = rig.now();
    let mut keys = Vec::new();
    for key in rig.keys.clone() {
        let (left, dump): (i64, Option<Vec<u8>>) =
            pipe().pttl(&key).cmd("DUMP").arg(&key).query(&mut rig.con).unwrap();
        keys.extend(dump.map(|dump| (key, left.max(0), dump)));
    }
    Saved { keys, at }
}

/// Releases, with these keys; nothing if the machine stood still meanwhile.
fn plays(
    server: &RedisServer,
    rig: &mut Rig,
    saved: &Saved,
    full: bool,
    (source, args): (&str, &[&str]),
) -> Option<(Seen, Aside)> {
    let mut inboxes = ["b", "c"].map(|who| rig.inbox(server, who));
    let began = rig.now();
    let mut restore = pipe();
    restore.cmd("FLUSHALL").ignore();
    for (key, left, dump) in &saved.keys {
        restore.cmd("RESTORE").arg(key).arg(left).arg(dump).ignore();
    }
    restore.exec(&mut rig.con).unwrap();
    rig.eval(LATER, &[&(began - saved.at).to_string()]).unwrap();
    let before: RedisResult<String> = rig.con.get(&rig.keys[3]);
    rig.full(full);
    server.reset_stats().unwrap();
    let mut answer = rig.eval(source, args);
    let calls = server.command_calls().unwrap().into_iter();
    let calls = calls.filter(|(name, _)| OF_SCRIPTS.contains(&&**name)).collect();
    rig.full(false);
    let (mut expire, mut all) = (Vec::new(), Vec::new());
    for line in rig.eval(EVERYTHING, &[]).unwrap() {
        match line.strip_prefix("ends ") {
            Some("-1") => expire.push(-1),
            Some(at) => expire.push(at.parse::<i64>().unwrap() - (began + EPOCH) / 1000),
            None => all.push(line),
        }
    }
    if rig.now() - began > STALL * 1000 {
        return None;
    }
    let mut messages = Vec::new();
    for (who, inbox) in ["b", "c"].iter().zip(&mut inboxes) {
        messages.extend(received(server, inbox, &format!("{PREFIX}{}-{who}", rig.name)));
    }
    let after: RedisResult<String> = rig.con.get(&rig.keys[3]);
    let mut new: Vec<_> = after.iter().filter(|_| before != after).cloned().collect();
    // The reply to an acquire, or to that of a next owner, behind what the leave says.
    let behind = usize::from(args.get(4) == Some(&""));
    if let Ok(Some([_, _, ms, arrival @ ..])) = answer.as_deref_mut().map(|all| all.get_mut(behind..)) {
        expire.push(int(&std::mem::take(ms)));
        new.extend(arrival.first().cloned());
    }
    let times = all.iter().flat_map(|line| line.split([' ', '|']));
    // Also that of a waiter whose priority is 1.
    let is_new = |at: i64| [at, at + 30_000_000].iter().any(|at| (began..=began + STALL * 1000).contains(at));
    new.extend(times.filter(|at| at.parse().is_ok_and(is_new)).map(str::to_owned));
    for text in all.iter_mut().chain(&mut messages).chain(answer.iter_mut().flatten()) {
        new.iter().for_each(|number| *text = text.replace(number, "N"));
    }
    let answer = answer.map_err(|error| {
        let message = error.to_string();
        // Servers put it before the words, or after them.
        let words = message.split(" script:").next().and_then(|it| it.rsplit("user_script:").next()).unwrap();
        words.trim_start_matches(|c: char| c.is_ascii_digit() || ": ".contains(c)).to_owned()
    });
    Some((Seen { answer, all, messages }, Aside { expire, calls }))
}

/// Sets each scene, and plays it by either of the scripts, which must agree. Returns the commands of both.
fn both<'a>(
    kind: &'static str,
    rule: &str,
    scenes: &'a [Scene],
    scripts: impl Fn(&Rig) -> [(String, Vec<String>); 2],
) -> Vec<(&'a Scene, [Calls; 2])> {
    let server = server_that_fills();
    let mut rig = Rig::of(&server, kind, rule, "straight");
    // So that its owner ids have the form of ours, which says how long a simple lock's waiters may sleep.
    rig.name = "67e5504410b1-426f-9247-bb680e5fe0c".to_owned();
    let scripts = scripts(&rig);
    let play = |scene: &'a Scene| {
        let (what, set) = scene;
        let ((seen, aside), (by_loop, other)) = eventually(LONG, || {
            let _: () = redis::cmd("FLUSHALL").query(&mut rig.con).unwrap();
            let began = rig.now();
            let a = rig.a();
            rig.try_(&a);
            set(&mut rig);
            let saved = save(&mut rig);
            (saved.at - began <= STALL * 1000).then_some(())?;
            let mut plays = |(source, args): &(String, Vec<String>)| {
                let args: Vec<_> = args.iter().map(String::as_str).collect();
                plays(&server, &mut rig, &saved, *what == FULL, (source, &args))
            };
            Some((plays(&scripts[0])?, plays(&scripts[1])?))
        });
        assert_eq!(seen, by_loop, "{kind}, {what}");
        let same = |(one, other): (&i64, &i64)| (one - other).abs() <= STALL;
        let (one, Aside { expire: other, calls: by_loop_calls }) = (&aside.expire, other);
        assert!(one.iter().zip(&other).all(same), "{kind}, {what}: {one:?}, {other:?}");
        (scene, [aside.calls, by_loop_calls])
    };
    scenes.iter().map(play).collect()
}

const KINDS: [(&str, &str, u64); 2] = [("simple", Simple::RULE, 10), ("reentrant", Reentrant::RULE, 11)];

/// A release with these further arguments, which takes the loop with an empty one behind them. Two more commands put the
/// next owner into the queue.
fn hands_over(more: impl Fn(&Rig) -> Vec<String>, scenes: &[(&[Scene], bool)]) {
    for (kind, rule, commands) in KINDS {
        let leaves = |rig: &Rig| {
            let args = [vec![rig.a(), "30000".into(), PREFIX.into(), "3000".into()], more(rig)].concat();
            let by_loop = [args.clone(), vec![String::new()]].concat();
            [args, by_loop].map(|args| (rig.scripts.leave.clone(), args))
        };
        for (scenes, straight) in scenes {
            for ((what, _), [calls, _]) in both(kind, rule, scenes, leaves) {
                let deletes = calls.iter().any(|(name, _)| name == "del");
                let all: u64 = calls.iter().map(|(_, n)| n).sum();
                let most =
                    commands + 2 * u64::from(calls.iter().any(|(name, n)| name == "zrange" && *n == 2));
                assert_eq!(!deletes && all == most, *straight, "{kind}, {what}: {calls:?}");
            }
        }
    }
}

#[test]
fn a_hand_over_ends_as_the_loop_ends_it() {
    hands_over(|_| vec![], &[(HAND_OVERS, true), (LEFT_TO_THE_LOOP, false)]);
}

#[test]
fn a_hand_over_with_a_next_owner_ends_as_the_loop_ends_it() {
    let next = |rig: &Rig, who| ["", "1", RECORD, &*rig.id(who, 2)].map(str::to_owned).to_vec();
    let scenes = [(HAND_OVERS, true), (LEFT_TO_THE_LOOP, false), (LEFT_FOR_THE_NEXT, false)];
    hands_over(|rig| next(rig, "c"), &scenes);
    // Nobody hears for it.
    hands_over(|rig| next(rig, "e"), &scenes[..1]);
}

/// A rule that may reject takes the loop.
#[test]
fn a_newcomer_waits_as_the_loop_has_it_wait() {
    for (kind, rule, _) in KINDS {
        let by_loop = scripts(&format!("{rule}\nfunction kind.reject() end")).unwrap().acquire;
        let waits = |rig: &Rig| {
            let args = [&*rig.b(), "30000", PREFIX, "3000", "wait", "1", RECORD].map(str::to_owned).to_vec();
            [(rig.scripts.acquire.clone(), args.clone()), (by_loop.clone(), args)]
        };
        both(kind, rule, NEWCOMERS, waits);
    }
}

/// The same for conditions. The straight path of a wait takes fewer commands, and that of a signal as many.
#[test]
fn a_wait_for_a_signal_and_a_signal_end_as_the_loop_ends_them() {
    for (kind, rule, _) in KINDS {
        let by_loop = scripts(&format!("{rule}\nfunction kind.reject() end")).unwrap();
        let waits = |rig: &Rig| {
            let (c, a) = (rig.id("c", 2), rig.a());
            let args = [&*c, "30000", PREFIX, "3000", "wait", "1", RECORD, &*a, "", "room"];
            let args = args.map(str::to_owned).to_vec();
            [(rig.scripts.wait_for.clone(), args.clone()), (by_loop.wait_for.clone(), args)]
        };
        for scenes in [HAND_OVERS, WAITS, WAITS_BY_THE_LOOP, &LEFT_FOR_THE_NEXT[..2], LEFT_TO_THE_LOOP] {
            for ((what, _), calls) in both(kind, rule, scenes, waits) {
                let [all, of_loop] = calls.map(|calls| calls.iter().map(|(_, n)| n).sum::<u64>());
                let straight = [HAND_OVERS, WAITS].concat().iter().any(|(name, _)| name == what);
                assert!(*what == FULL || (all < of_loop) == straight, "{kind}, {what}: {all}, {of_loop}");
            }
        }
        let signals = |rig: &Rig| {
            let args = [&*rig.a(), "0", PREFIX, "3000", "room", "one"].map(str::to_owned).to_vec();
            [(rig.scripts.signal.clone(), args.clone()), (by_loop.signal.clone(), args)]
        };
        both(kind, rule, SIGNALS, signals);
    }
}
