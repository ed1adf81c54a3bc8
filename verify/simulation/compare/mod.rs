//! Checks the Redis in memory against a real server (`REDIS_SERVER_BIN` names another one): random commands, and the
//! deployed scripts with random arguments, on both. After each step the replies, the messages and what is stored must
//! be equal, expiries included.
//!
//! So that both see one time, each step runs on the server within a script that also tells its time: to the microsecond
//! for `TIME`, to the millisecond for expiries. A step during which that passed on to another millisecond, or near
//! which a key expired, is not compared: the memory takes over what the server has.

mod both;
mod draw;

use std::collections::BTreeMap;

use self::both::Both;
use self::draw::Draw;
use crate::engine::random::{Rng, first_seed};

/// How many steps are compared in each walk, and how many walks there are.
const STEPS: usize = 150;
const WALKS: u64 = 22;

fn variable(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn commands_and_scripts_do_what_they_do_on_a_server() {
    let (seed, walks) = (first_seed(), variable("WALKS", WALKS));
    println!("SEED={seed}");
    let mut both = Both::new();
    let mut seen: BTreeMap<&'static str, [usize; 2]> = BTreeMap::new();
    for walk in 0..walks {
        let mut rng = Rng(seed + walk);
        both.begin();
        let draw = Draw::new(&mut rng, walk as usize);
        for step in 0..STEPS {
            if rng.below(10) == 0 {
                let (sharded, channel) = draw::channel(&mut rng);
                // A server before 7.0 has none.
                both.listen(sharded && !both.old, &channel);
            }
            // What was put at a key by hand makes most requests fail.
            let play = if both.failed && rng.below(3) == 0 { Draw::clear() } else { draw.step(&mut rng) };
            both.run(&play, &format!("SEED={} WALKS=1, step {step}", seed + walk));
            let [all, failed] = seen.entry(play.what).or_default();
            *all += 1;
            *failed += usize::from(both.failed);
        }
    }
    println!("{} steps compared, {} not, for time passed in them", both.compared, both.blurred);
    println!("{:.1?} each in memory on average", both.took / both.compared.max(1) as u32);
    println!("{seen:?}: how many, and how many of these failed");
    // Even beside others, most steps take less than a millisecond.
    assert!(both.compared > both.blurred / 10, "hardly anything was compared");
}
