//! Random tokens by several processes at once: the highest seen never goes down, and a lower one is refused.
//!
//! What a process reads before and after its write are bounds of what the write met, as the highest only
//! rises; so no common clock is needed.

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::{Child, RedisServer, is_role, tell_parent};

use crate::support::*;

const ROLE: &str = "fenced::chance::role_writer";
const WRITERS: usize = 4;
const RESOURCES: u64 = 24;
const WRITES: u64 = 40;

/// Around where doubles get gaps of two and of four, where a digit comes in, and at both ends.
const BASES: [u64; 6] = [0, (1 << 53) - 8, (1 << 54) - 8, 999_999_999_999_992, 1 << 62, i64::MAX as u64 - 15];

fn token(resource: u64, chance: &mut Random) -> u64 {
    BASES[(resource % BASES.len() as u64) as usize] + chance.below(16)
}

#[test]
fn the_highest_never_goes_down_and_a_lower_one_is_always_refused() {
    let mut chance = Random::new("fenced");
    let server = RedisServer::start().unwrap();
    let children: Vec<_> = (0..WRITERS)
        .map(|_| Child::spawn(ROLE, &[("SERVER", &server.url()), ("SEED", &chance.seed())]).unwrap())
        .collect();
    // The highest token that each tried, resource by resource.
    let mut tried = [0; RESOURCES as usize];
    let (mut taken, mut refused) = (0, 0);
    for child in &children {
        let line = child.read_line_within(15 * LONG).unwrap();
        let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        taken += numbers[0];
        refused += numbers[1];
        for (highest, token) in tried.iter_mut().zip(&numbers[2..]) {
            *highest = token.max(highest).to_owned();
        }
    }
    assert!(taken > 100 && refused > 100, "{taken} taken and {refused} refused show nothing");
    let client = connect(&server);
    for (i, highest) in tried.into_iter().enumerate() {
        // Nothing can have refused the highest, and it was the last but for its equals.
        let (token, value) = client.fenced(&format!("it {i}")).get_with_token().unwrap();
        assert_eq!((token, value), (Some(highest), Some(highest)), "{i}");
    }
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_writer() {
    if !is_role(ROLE) {
        return;
    }
    let mut chance = Random::new(ROLE);
    let client = patiently(&env("SERVER"));
    let all: Vec<_> = (0..RESOURCES).map(|i| client.fenced(&format!("it {i}"))).collect();
    let mut counts = vec![0; 2 + all.len()];
    for turn in 0..RESOURCES * WRITES {
        let i = turn % RESOURCES;
        let it = &all[i as usize];
        let token = token(i, &mut chance);
        let seen = || it.get_with_token::<u64>().unwrap();
        let (before, _) = seen();
        // The value is the token under which it was written.
        let outcome = if chance.below(4) > 0 {
            it.set(token, token)
        } else {
            it.script("redis.call('HSET', KEYS[1], 'value', ARGV[1])").run(
                token,
                &[&format!("rc:{{it {i}}}:fenced")],
                token,
            )
        };
        let (after, value) = seen();
        assert!(before <= after, "{before:?}, then {after:?}");
        assert_eq!(after, value, "the value of another token");
        match outcome {
            Ok(()) => {
                assert!(before.is_none_or(|before| before <= token), "{token} was taken after {before:?}");
                assert!(after >= Some(token), "{token} was taken, and {after:?} seen then");
                counts[0] += 1;
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Conflict, "{e}");
                let text = e.to_string();
                let named: u64 =
                    text.split("lower than ").nth(1).unwrap().split(',').next().unwrap().parse().unwrap();
                assert!(
                    token < named && before <= Some(named) && Some(named) <= after,
                    "{text}: {before:?} {after:?}"
                );
                counts[1] += 1;
            }
        }
        let highest = &mut counts[2 + i as usize];
        *highest = token.max(*highest);
    }
    tell_parent(&counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" ")).unwrap();
}
