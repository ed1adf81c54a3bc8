//! *one-owner*: never two holds that are valid at once; tokens rise in the order of the grants.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use redis_concurrent::Guard;
use redis_concurrent_testkit::*;

use crate::support::*;

/// How many holds of a name tell something.
const ENOUGH: usize = 100;

const ROLE: &str = "invariants::one_owner::role_contender";

/// Writes down a hold that is still valid now: since when, until when.
fn log(file: &File, guard: &Guard<redis_concurrent::kinds::Reentrant>, since: u64) {
    let until = clock();
    if !guard.is_lost() {
        let line = format!("{} {} {since} {until}\n", guard.name(), guard.token());
        // In one write, at the end of the file, so that lines of many processes stay whole.
        (&mut &*file).write_all(line.as_bytes()).unwrap();
    }
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_contender() {
    if !is_role(ROLE) {
        return;
    }
    let mut random = Random::new(ROLE);
    let file = File::options().append(true).open(env("LOG")).unwrap();
    // The first request too has 300 ms.
    let client = connected(|| builder(&env("URL")).lease(ms(500)).waiter_timeout(ms(300)));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..4 {
            let (mut random, file, client, stop) = (random.fork(), &file, &client, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let lock = client.reentrant_lock(["a", "b"][random.below(2) as usize]);
                    let fair = lock.fair();
                    let guard = match random.below(5) {
                        // A request has 300 ms.
                        0 => in_brief(lock.try_lock()),
                        1 => in_brief(lock.try_lock_for(random.micros(20_000))),
                        2 => Some(fair.lock().unwrap()),
                        _ => Some(lock.lock().unwrap()),
                    };
                    let Some(guard) = guard else { continue };
                    let since = clock();
                    log(file, &guard, since);
                    thread::sleep(random.micros(1500));
                    log(file, &guard, since);
                }
            });
        }
        let _stop = SetOnDrop(&stop);
        tell_parent("ready").unwrap();
        let _ = hear_parent();
    });
}

/// Whether so many holds of both names are written down that they tell something.
fn are_enough(path: &Path) -> bool {
    let log = std::fs::read_to_string(path).unwrap();
    ["a", "b"].into_iter().all(|name| {
        let holds = log.lines().filter_map(|line| line.split_once(' ')).filter(|(of, _)| *of == name);
        let tokens: BTreeSet<_> = holds.map(|(_, rest)| rest.split(' ').next()).collect();
        tokens.len() > ENOUGH + 1
    })
}

#[test]
fn one_owner() {
    let mut random = Random::new("one_owner");
    let server = RedisServer::start().unwrap();
    let path = server.folder().join("holds");
    File::create(&path).unwrap();
    let start = |random: &mut Random| {
        let log = path.to_str().unwrap();
        let env = [("URL", server.url()), ("LOG", log.to_owned()), ("SEED", random.seed())];
        let child = Child::spawn(ROLE, &env.each_ref().map(|(k, v)| (*k, v.as_str()))).unwrap();
        child.read_line_within(LONG).unwrap();
        child
    };
    let mut children: Vec<Child> = (0..3).map(|_| start(&mut random)).collect();
    let began = Instant::now();
    let mut kills = 0;
    // Longer on a machine that stands still: it starts processes rather than holds.
    while began.elapsed() < ms(6000) || !are_enough(&path) && began.elapsed() < 3 * LONG {
        thread::sleep(ms(150) + random.micros(200_000));
        let victim = random.below(3) as usize;
        children[victim].kill9().unwrap();
        children[victim] = start(&mut random);
        kills += 1;
    }
    for child in &mut children {
        child.say("stop").unwrap();
    }
    for child in &mut children {
        assert!(child.wait_within(LONG).unwrap().success());
    }

    // name → token → since, until
    let mut holds: BTreeMap<String, BTreeMap<u64, (u64, u64)>> = BTreeMap::new();
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |i: usize| words[i].parse::<u64>().unwrap();
        let hold = holds.entry(words[0].to_owned()).or_default().entry(number(1));
        let hold = hold.or_insert((number(2), number(3)));
        assert_eq!(hold.0, number(2), "token {} was given twice", words[1]);
        hold.1 = hold.1.max(number(3));
    }
    assert_eq!(holds.len(), 2);
    for (name, holds) in holds {
        println!("{name}: {} holds, {kills} kills", holds.len());
        assert!(holds.len() > ENOUGH, "too few holds to tell anything: {}", holds.len());
        let in_order: Vec<_> = holds.into_iter().collect();
        for pair in in_order.windows(2) {
            let ((earlier, (_, until)), (later, (since, _))) = (pair[0], pair[1]);
            assert!(until <= since, "{name}: {later} was held {} µs before {earlier} ended", until - since);
        }
    }
}
