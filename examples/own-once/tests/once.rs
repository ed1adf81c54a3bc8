use std::thread;

use own_once::{Attempt, Begun, Once};
use redis_concurrent::{Client, ErrorKind, Wait};
use redis_concurrent_testkit::RedisServer;

fn begun(once: &Once) -> Begun {
    once.begin(Wait::forever()).unwrap().expect("it waits for as long as it takes")
}

fn mine(once: &Once) -> Attempt {
    match begun(once) {
        Begun::Yours(attempt) => attempt,
        done => panic!("{done:?}"),
    }
}

#[test]
fn one_of_many_callers_does_the_work_and_all_get_its_answer() {
    let server = RedisServer::start().unwrap();
    let clients = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
    let answers: Vec<String> = thread::scope(|scope| {
        let callers: Vec<_> = (0..8)
            .map(|i| {
                let once = Once::new(&clients[i % 2], "payment");
                scope.spawn(move || match begun(&once) {
                    Begun::Yours(attempt) => {
                        let answer = format!("paid by {i}");
                        attempt.done(&answer).unwrap();
                        answer
                    }
                    Begun::Done(answer) => answer,
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).collect()
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
}

#[test]
fn an_attempt_that_is_given_back_is_the_next_callers_and_one_that_is_lost_stores_nothing() {
    let server = RedisServer::start().unwrap();
    let client = Client::connect(&server.url()).unwrap();
    let once = Once::new(&client, "payment");
    let first = mine(&once);
    assert!(once.begin(Wait::once()).unwrap().is_none(), "another caller does it");
    let token = first.token();
    drop(first);
    let second = mine(&once);
    assert!(second.token() > token);
    redis_concurrent::redis::Client::open(server.url())
        .and_then(|redis| redis.get_connection())
        .and_then(|mut redis| redis_concurrent::redis::cmd("FLUSHALL").exec(&mut redis))
        .unwrap();
    assert_eq!(second.done("late").unwrap_err().kind(), ErrorKind::LeaseLost);
    mine(&once).done("paid").unwrap();
    assert!(matches!(begun(&once), Begun::Done(answer) if answer == "paid"));
}
