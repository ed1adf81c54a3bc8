//! The script with a clock that the test plays, beside a plain reference, in worlds of chance.

use std::sync::OnceLock;

use redis::cmd;

use crate::rate_limiter::reference::{Rate, Reference};
use crate::rate_limiter::{ACQUIRE, Limiter};
use crate::support::Random;

/// How many worlds, and how many requests in each.
const WORLDS: u64 = 60;
const STEPS: usize = 250;

/// The script, told the time; and keys last a thousand times longer, as the test's clock is not the server's.
fn played() -> &'static str {
    static SCRIPT: OnceLock<String> = OnceLock::new();
    SCRIPT.get_or_init(|| {
        assert_eq!(ACQUIRE.matches("call('TIME')").count(), 1);
        assert_eq!(ACQUIRE.matches("call('PEXPIRE'").count(), 2);
        ACQUIRE.replace("call('TIME')", "{0, ARGV[5]}").replace("call('PEXPIRE'", "call('EXPIRE'")
    })
}

#[test]
fn by_any_rate_it_does_as_the_reference_and_lets_in_no_more() {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let first: u64 = given.unwrap_or_else(|| u64::from(std::process::id()) << 16);
    let [mut allowed, mut refused] = [0, 0];
    for seed in first..first + if given.is_some() { 1 } else { WORLDS } {
        println!("SEED={seed}");
        let came_in = world(seed);
        allowed += came_in;
        refused += STEPS - came_in;
    }
    // Of one world alone: a rate of hundreds lets in all of its requests.
    assert!(given.is_some() || allowed > STEPS && refused > STEPS, "{allowed} came in and {refused} did not");
}

/// Plays the world of this seed, and returns how many of its requests came in.
fn world(seed: u64) -> usize {
    let mut dice = Random::of(seed);
    let rate = Rate {
        limit: 1 + i128::from([dice.below(3), dice.below(20), dice.below(1_000_000)][dice.below(3) as usize]),
        window: 100_000 + i128::from(dice.below(3_600_000_000)),
        burst: (dice.below(4) > 0).then(|| 1 + i128::from(dice.below(30))),
    };
    let mut it = Limiter::new(&format!("played {seed}"));
    let mut reference = Reference::default();
    let mut now = 1_800_000_000_000_000 + i128::from(dice.below(1_000_000_000_000));
    let mut came_in: Vec<(i128, i128)> = Vec::new();
    // What was refused last, and for how long.
    let mut advice = (0, 0);
    for step in 0..STEPS {
        let waits_as_advised = advice.0 > 0 && dice.below(3) == 0;
        let n = if waits_as_advised {
            advice.0
        } else {
            1 + i128::from(dice.below(rate.at_once().min(6) as u64))
        };
        now += match dice.below(4) {
            _ if waits_as_advised => advice.1,
            0 => 0,
            1 => (advice.1 - 1).max(0),
            // About as long as one takes, or far longer.
            2 => i128::from(dice.below((2 * rate.window / rate.limit) as u64 + 2)),
            _ => i128::from(dice.below(2 * rate.window as u64)) / 16,
        };
        let mut eval = cmd("EVALSHA");
        eval.arg(sha(&mut it)).arg(1).arg(&it.key);
        for arg in [n, rate.limit, rate.window] {
            eval.arg(arg.to_string());
        }
        let burst = rate.burst.map_or_else(String::new, |burst| burst.to_string());
        let [yes, remaining, retry, reset]: [i64; 4] =
            eval.arg(burst).arg(now.to_string()).query(&mut it.con).unwrap();
        let what =
            format!("seed {seed}, step {step}, {rate:?}: {n} at {now}: {yes} {remaining} {retry} {reset}");

        let margin = reference.margin(n, rate, now);
        // A millionth is nothing to the script.
        if 1_000_000 * margin.abs() > 2 * rate.window || yes == 1 {
            assert_eq!(yes == 1, 1_000_000 * margin >= -2 * rate.window, "{what}: margin {margin}");
        }
        assert!(!waits_as_advised || yes == 1, "{what}: as long as it was told");
        advice = if yes == 1 { (0, 0) } else { (n, i128::from(retry)) };
        if yes == 1 {
            reference.add(n, rate);
            came_in.push((now, n));
            assert_eq!(retry, 0, "{what}");
        } else {
            assert!(0 < retry && retry <= reset + 1, "{what}");
        }
        // What is left, and that a caller that waits as told gets in while an earlier one does not; what is rounded
        // may make it a microsecond more.
        let left = i128::from(remaining);
        let near = |parts: i128| 1_000_000 * parts >= -2 * rate.window;
        let now_left = margin + if yes == 1 { 0 } else { n * rate.window };
        assert!(left == 0 || near(now_left - left * rate.window), "{what}");
        assert!(!near(now_left - (left + 1) * rate.window - rate.window / 100_000), "{what}");
        if yes == 0 {
            let at = |time| { reference }.margin(n, rate, time);
            assert!(near(at(now + advice.1)) && at(now + advice.1 - 2) < 0, "{what}");
        }
    }
    no_window_has_more_than(&came_in, rate, seed);
    came_in.len()
}

/// In no time as long as a window more came in than the rate says: its limit and its burst; of a fixed
/// window two limits, and in the window itself one.
fn no_window_has_more_than(came_in: &[(i128, i128)], rate: Rate, seed: u64) {
    let most = rate.limit + rate.at_once();
    for (i, (begin, _)) in came_in.iter().enumerate() {
        let window = came_in[i..].iter().take_while(|(at, _)| *at < begin + rate.window);
        let sum: i128 = window.map(|(_, n)| n).sum();
        assert!(sum <= most, "seed {seed}, {rate:?}: {sum} from {begin} on");
    }
    if rate.burst.is_none() {
        let mut rest = came_in;
        while let Some((begin, _)) = rest.first() {
            let end = rest.iter().position(|(at, _)| *at >= begin + rate.window).unwrap_or(rest.len());
            let sum: i128 = rest[..end].iter().map(|(_, n)| n).sum();
            assert!(sum <= rate.limit, "seed {seed}, {rate:?}: {sum} in the window from {begin} on");
            rest = &rest[end..];
        }
    }
}

fn sha(it: &mut Limiter) -> &'static str {
    static SHA: OnceLock<String> = OnceLock::new();
    SHA.get_or_init(|| cmd("SCRIPT").arg("LOAD").arg(played()).query(&mut it.con).unwrap())
}
