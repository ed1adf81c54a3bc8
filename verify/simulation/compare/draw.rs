//! Random commands, and random requests of the scripts.

use super::both::{COMMAND, KEYS, Play};
use crate::engine::random::Rng;
use crate::recipes::fenced;
use crate::recipes::rate_limiter;
use crate::script::{Script, Scripts};

/// Two processes.
const CLIENTS: [&str; 2] = ["11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"];
const CONDITION: &str = "it";

/// A kind, its arguments in an acquire, and the changes of its state.
struct Rule {
    source: &'static str,
    args: &'static [&'static str],
    changes: &'static [&'static [&'static str]],
}

macro_rules! rules {
    ($($name:literal, $args:expr, $changes:expr;)*) => {
        const RULES: &[Rule] = &[$(Rule {
            source: include_str!(concat!("../../../lua/", $name, ".lua")),
            args: &$args,
            changes: &$changes,
        }),*];
    };
}

rules! {
    "simple", [""], [];
    "reentrant", [""], [];
    "read_write", ["read", "read", "write"], [];
    "semaphore", ["1", "1", "2", "all", "9"],
        [&["first", "3"], &["set", "3"], &["set", "1"], &["add", "2"], &["expire", "3000"], &["keep", "1"], &["delete"]];
    "latch", [""], [&["set", "2"], &["down"], &["expire", "2000"], &["reset", "3"], &["delete"]];
    "barrier", ["2", "3", "2|then", "3 then"], [&["reset"], &["open", "2"], &["other"]];
    "election", ["lead|a", "lead|b", "watch|0|0|0", "watch|1|1|1"], [&["set", "c"]];
    "once", ["", "1"], [&["done", "3000", "answer"], &["failed", "50", "why"], &["forget"]];
    "inventory", ["take||0|||1|a", "take|x|5000|me|2|1|a|2|b", "take|y|0|me|1|1|b", "watch|1|a"],
        [&["add_stock", "3", "a"], &["add_stock", "2", "b"], &["commit"], &["delete"]];
    "redisson", ["", "fenced"], [];
    "spring", ["registry-channel"], [];
}

/// What one walk draws from.
pub(super) struct Draw {
    rule: &'static Rule,
    scripts: Scripts,
    conditions: Option<Scripts>,
    prefix: &'static str,
    leases: [&'static str; 4],
}

fn of<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[rng.below(all.len())]
}

impl Draw {
    /// Begins a walk: the kinds take turns.
    pub(super) fn new(rng: &mut Rng, walk: usize) -> Draw {
        let rule = &RULES[walk % RULES.len()];
        Draw {
            rule,
            scripts: Scripts::of(rule.source).unwrap(),
            conditions: Scripts::of_conditions(rule.source).ok(),
            prefix: of(rng, &["rc:inbox:", "rc:{it}:inbox:"]),
            leases: of(rng, &[["30000", "30000", "5000", "1000"], ["30000", "20", "5", "100"]]),
        }
    }

    /// Removes everything.
    pub(super) fn clear() -> Play {
        let args = ["DEL"].into_iter().chain(KEYS.into_iter().take(6)).map(str::to_owned).collect();
        Play { what: "DEL K...", script: COMMAND.to_owned(), args, any_order: false }
    }

    /// Draws the next step.
    pub(super) fn step(&self, rng: &mut Rng) -> Play {
        match rng.below(20) {
            0 | 1 => command(rng),
            2 => other(rng),
            _ => self.request(rng),
        }
    }

    fn owner(&self, rng: &mut Rng) -> String {
        format!("{}:{}{}", of(rng, &CLIENTS), 1 + rng.below(3), of(rng, &["", "", "~"]))
    }

    fn request(&self, rng: &mut Rng) -> Play {
        let owner = self.owner(rng);
        let patience = of(rng, &["10000", "10000", "3", "40"]);
        let mut args =
            vec![owner, of(rng, &self.leases).to_owned(), self.prefix.to_owned(), patience.to_owned()];
        let mut more = |all: &[&str]| args.extend(all.iter().map(|it| (*it).to_owned()));
        let of_conditions = self.conditions.as_ref().filter(|_| rng.below(3) == 0);
        let kind = of(rng, self.rule.args);
        let (other, arrival) = (self.owner(rng), ["", "", "1", "3"][rng.below(4)]);
        let from = if rng.below(3) == 0 { &*other } else { "" };
        let (what, script) = match (rng.below(10), of_conditions) {
            (0..4, None) => {
                more(&[
                    of(rng, &["try", "wait", "wait", "keep", "share"]),
                    kind,
                    "1 1 h c",
                    from,
                    arrival,
                    "1",
                ]);
                ("acquire", &self.scripts.acquire)
            }
            (4..6, None) => {
                let next = if rng.below(3) == 0 { &*other } else { "" };
                more(&[of(rng, &["0", "1"]), kind, "1 1 h c", next, arrival, of(rng, &["", "1"])]);
                ("leave", &self.scripts.leave)
            }
            (6, None) => {
                more(&[of(rng, &["", "", "1", "2"])]);
                ("renew", &self.scripts.renew)
            }
            (7, None) => {
                more(&["", kind, of(rng, &["", "1"])]);
                ("inspect", &self.scripts.inspect)
            }
            (8 | 9, None) => match (&self.scripts.update, &self.scripts.adopt) {
                (Some(update), _) if !self.rule.changes.is_empty() => {
                    more(of(rng, self.rule.changes));
                    ("update", update)
                }
                (_, Some(adopt)) => {
                    more(&[&other, "", "1 1 h c"]);
                    ("adopt", adopt)
                }
                _ => ("renew", &self.scripts.renew),
            },
            (0..5, Some(scripts)) => {
                more(&[of(rng, &["wait", "wait", "keep", "back"]), kind, "1 1 h c", &other, "", CONDITION]);
                ("await", &scripts.acquire)
            }
            (5, Some(scripts)) => {
                more(&[of(rng, &["0", "1"])]);
                ("quit", &scripts.leave)
            }
            (_, Some(scripts)) => {
                more(&[CONDITION, of(rng, &["one", "all", "count"])]);
                ("signal", scripts.update.as_ref().expect("a signal"))
            }
            (_, None) => unreachable!("below ten"),
        };
        let mut play = Play { what, script: script.source.clone(), args, any_order: what == "inspect" };
        if matches!(what, "acquire" | "leave") && rng.below(8) == 0 {
            play = self.all(play);
        }
        play
    }

    /// The same request, as one of several locks.
    fn all(&self, play: Play) -> Play {
        let mut args = vec![play.what.to_owned(), play.args.len().to_string()];
        args.extend(play.args);
        Play { what: "all", script: self.scripts.all().source.clone(), args, any_order: false }
    }
}

/// Steps of what is no lock.
fn other(rng: &mut Rng) -> Play {
    let plain = |what, script: &Script, args: &[&str]| Play {
        what,
        script: script.source.clone(),
        args: args.iter().map(|it| (*it).to_owned()).collect(),
        any_order: false,
    };
    match rng.below(3) {
        0 => {
            let limiter = rate_limiter::script(include_str!("../../../lua/rate_limiter/acquire.lua"));
            let burst = ["", "3"][rng.below(2)];
            plain(
                "limiter",
                &limiter,
                &[of(rng, &["0", "1", "2"]), "3", of(rng, &["3000", "50000000"]), burst],
            )
        }
        1 => {
            let limiter = rate_limiter::script(include_str!("../../../lua/rate_limiter/delete.lua"));
            plain("limiter's delete", &limiter, &[])
        }
        _ => {
            let token = of(rng, &["0000000000000000001", "0000000000000000002"]);
            plain("fenced", &fenced::admitting("redis.call('SET', 'rc:{it}:queue', '1')"), &[token])
        }
    }
}

/// Each command, with arguments of every sort.
fn command(rng: &mut Rng) -> Play {
    const MEMBERS: [&str; 5] = ["a", "b", "it|1|a", "it|2|b", "lock"];
    const COMMANDS: &[&str] = &[
        "GET K",
        "SET K V",
        "SET K V PX T",
        "SET K V KEEPTTL",
        "SET K V GET",
        "SET K V NX",
        "SET K N PX T GET",
        "SET K V PX 0",
        "SET K",
        "INCR K",
        "DEL K",
        "DEL K K",
        "UNLINK K",
        "EXISTS K K",
        "TYPE K",
        "PTTL K",
        "PEXPIRE K T",
        "PEXPIRE K -1",
        "PEXPIRE K V",
        "PERSIST K",
        "HGET K M",
        "HMGET K M M",
        "HGETALL K",
        "HEXISTS K M",
        "HLEN K",
        "HSCAN K 0 COUNT 30",
        "HSCAN K 0 MATCH it* COUNT 30",
        "HSET K M V",
        "HSET K M N M V",
        "HSET K M",
        "HINCRBY K M N",
        "HDEL K M",
        "HDEL K M M",
        "ZADD K N M",
        "ZADD K NX N M",
        "ZADD K N M N M",
        "ZADD K V M",
        "ZINCRBY K N M",
        "ZCARD K",
        "ZCOUNT K -inf N",
        "ZCOUNT K (N +inf",
        "ZSCORE K M",
        "ZRANK K M",
        "ZRANGE K 0 -1",
        "ZRANGE K -2 -1 WITHSCORES",
        "ZRANGE K 1 0",
        "ZRANGE K -9 -7",
        "ZRANGE K 1 5",
        "ZRANGE K -inf N BYSCORE LIMIT 0 2",
        "ZRANGE K (N +inf BYSCORE LIMIT 1 1 WITHSCORES",
        "ZRANGE K N N BYSCORE WITHSCORES",
        "ZRANGEBYLEX K [a + LIMIT 0 1",
        "ZRANGEBYLEX K (a [it|2|b",
        "ZRANGEBYLEX K - (it}",
        "ZREVRANGEBYLEX K (it} [it LIMIT 0 1",
        "ZSCAN K 0 COUNT 20",
        "ZREM K M",
        "ZREM K M M",
        "ZREMRANGEBYSCORE K -inf (N",
        "ZREMRANGEBYSCORE K N N",
        "PUBLISH C V",
        "SPUBLISH C V",
        "PUBSUB NUMSUB C C",
        "PUBSUB SHARDNUMSUB C",
    ];
    let all = of(rng, COMMANDS);
    let mut word = |word: &str| {
        let (open, rest) = word.strip_prefix('(').map_or(("", word), |rest| ("(", rest));
        let it = match rest {
            "K" => of(rng, &KEYS[..6]).to_owned(),
            "V" => of(rng, &["some", "", "7"]).to_owned(),
            "N" => of(rng, &["0", "3", "-2", "1700000000000001"]).to_owned(),
            "T" => of(rng, &["3", "40", "60000"]).to_owned(),
            "M" => of(rng, &MEMBERS).to_owned(),
            "C" => format!("{}{}", of(rng, &["rc:inbox:", "rc:{it}:inbox:"]), of(rng, &CLIENTS)),
            other => other.to_owned(),
        };
        format!("{open}{it}")
    };
    let args: Vec<String> = all.split(' ').map(&mut word).collect();
    Play {
        what: all,
        script: COMMAND.to_owned(),
        args,
        any_order: all.contains("SCAN") || all == "HGETALL K",
    }
}

/// The channels to which the processes listen.
pub(super) fn channel(rng: &mut Rng) -> (bool, String) {
    let (sharded, prefix) =
        of(rng, &[(false, "rc:inbox:"), (true, "rc:{it}:inbox:"), (false, "rc:{it}:inbox:")]);
    (sharded, format!("{prefix}{}", of(rng, &CLIENTS)))
}
