//! The first moment of a term that was waited for: its lease, which is short, is to be renewed then. If it cannot be, the
//! term has not begun, and the campaign goes on.

use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use redis::Commands;

use redis_concurrent::election::Term;
use redis_concurrent::{Election, Error, ErrorKind};
use redis_concurrent_testkit::{Proxy, RedisServer, released_all, wait_until};

use super::depose;
use crate::names::{LONG, key, ms};
use crate::support::{builder, connect, connected};

/// A server, a door, and the same election in front of that and behind it, where a reply may take so long.
fn with_a_door(command_timeout: Duration) -> (RedisServer, Proxy, Election, Election) {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    // A grant lasts so long at first, and so long a candidate may be silent.
    let window = command_timeout.max(ms(12_000));
    let behind = connected(|| builder(&door.url()).command_timeout(command_timeout).waiter_timeout(window));
    drop(behind.simple_lock("warm").lock().unwrap().lost());
    let direct = connect(&server);
    (server, door, direct.election("x"), behind.election("x").stop_before(ms(15_000)))
}

fn await_one(server: &RedisServer) {
    let mut redis = server.connection().unwrap();
    let mut positions = || redis.zcard::<_, usize>(key("x", ":queue")).unwrap();
    wait_until(LONG, "it waits", || positions() == 1);
}

/// Calls `campaign`, and `meanwhile` once it was told that it leads, and its renewal is kept from the server.
fn played<T: Send>(
    (server, door, direct): (&RedisServer, &Proxy, &Election),
    campaign: impl FnOnce() -> T + Send,
    meanwhile: impl FnOnce(),
) -> T {
    let leads = direct.campaign().unwrap();
    thread::scope(|scope| {
        let call = scope.spawn(campaign);
        await_one(server);
        door.only_matching(b"rc:{x}");
        door.hold_requests(true);
        leads.resign().unwrap();
        wait_until(LONG, "its next request is kept back", || door.held() > 0);
        meanwhile();
        call.join().unwrap()
    })
}

fn leads(direct: &Election, campaigned: Result<Option<Term>, Error>) {
    let term = campaigned.unwrap().expect("it leads");
    assert_eq!(direct.leader().unwrap().unwrap().term, term.token());
    assert!(!term.ending().is_cancelled());
    // Where a busy machine has no reply for it in its time, it is settled in the background.
    let _ = released_all(&term.resign());
}

#[test]
fn a_candidate_whose_renewal_had_no_reply_campaigns_again() {
    // Before the lease would be renewed in the background.
    let (server, door, direct, behind) = with_a_door(ms(1500));
    for timeout in [Duration::MAX, LONG] {
        let outcome = played(
            (&server, &door, &direct),
            || behind.campaign_with(timeout),
            || {
                wait_until(LONG, "it does not wait for that reply any more", || door.held() > 1);
                door.hold_requests(false);
            },
        );
        leads(&direct, outcome);
    }
}

#[test]
fn a_candidate_whose_renewal_was_refused_campaigns_again() {
    let (server, door, direct, behind) = with_a_door(ms(2000));
    let mut redis = server.connection().unwrap();
    let outcome = played(
        (&server, &door, &direct),
        || behind.campaign_with(Duration::MAX),
        || {
            let mut replicas = |n: u32| {
                let needed =
                    redis::cmd("CONFIG").arg(&["SET", "min-replicas-to-write"]).arg(n).exec(&mut redis);
                needed.unwrap();
            };
            replicas(1);
            door.hold_requests(false);
            let mut redis = server.connection().unwrap();
            wait_until(LONG, "it was refused", || {
                let stats: String = redis::cmd("INFO").arg("errorstats").query(&mut redis).unwrap();
                stats.contains("NOREPLICAS")
            });
            replicas(0);
        },
    );
    leads(&direct, outcome);
}

#[test]
fn a_candidate_that_is_deposed_before_its_term_began_campaigns_again() {
    let (server, door, direct, behind) = with_a_door(ms(2000));
    let ran = played(
        (&server, &door, &direct),
        || behind.run(|term| (term.token(), term.remaining().is_zero())),
        || {
            depose(&connect(&server), direct.name());
            door.hold_requests(false);
        },
    );
    let (number, over) = ran.unwrap();
    assert!(number > 0 && !over);
}

/// It takes the lead again and again, and cannot keep it: that is not for ever, as nobody else could lead meanwhile.
#[test]
fn a_candidate_whose_renewals_never_have_a_reply_gives_up() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let patience = || builder(&door.url()).command_timeout(ms(1000)).unreachable_timeout(ms(4000));
    // So early that even a whole lease is renewed before.
    let election = connected(patience).election("x").stop_before(ms(15_000));
    // Renewals: all other requests have more words.
    door.only_matching(b"*13\r\n$7\r\nEVALSHA");
    door.black_hole(true);
    let leads = connect(&server).election("x").campaign().unwrap();
    let (sender, ended) = channel();
    thread::spawn(move || sender.send(election.campaign().map(drop)));
    await_one(&server);
    leads.resign().unwrap();
    let error = ended.recv_timeout(2 * LONG).unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("could not be renewed"), "{error}");
}

/// `LeaseLost` is for work that outlasted its term.
#[test]
fn a_candidate_that_is_deposed_and_has_no_time_left_is_told_that_it_does_not_lead() {
    let (server, door, direct, behind) = with_a_door(LONG);
    let outcome = played(
        (&server, &door, &direct),
        || behind.campaign_with(ms(4000)),
        || depose(&connect(&server), direct.name()),
    );
    assert_eq!(outcome.map(drop).unwrap_err().kind(), ErrorKind::Unavailable);
    door.heal().unwrap();
    door.cut_all();
    wait_until(LONG, "nobody leads", || direct.leader().unwrap().is_none());
}
