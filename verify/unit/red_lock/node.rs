//! Unit tests of `src/red_lock/node.rs`.

use redis_concurrent_testkit::{RedisServer, wait_until};

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// An attempt that had no majority without this server is granted on it: its release must go there too.
#[test]
fn a_server_that_answers_an_attempt_is_back() {
    let server = RedisServer::start().unwrap();
    let node = Arc::new(Voter::new(&Client::connect(&server.url()).unwrap()).unwrap());
    // So that the thread that probes it gets no reply.
    server.stop().unwrap();
    let before = Moment::now();
    for _ in 0..2 {
        node.failed(Error::new(ErrorKind::Unavailable, ""));
        node.answered(before, Moment::now());
        assert!(node.usual(None, Moment::now()).is_err(), "that was an answer from before");
        node.answered(Moment::now(), Moment::now());
        assert!(node.usual(None, Moment::now()).is_ok());
    }
    node.failed(Error::new(ErrorKind::Unavailable, ""));
    server.cont().unwrap();
    wait_until(LONG, "it is back by itself", || node.usual(None, Moment::now()).is_ok());
    wait_until(LONG, "nobody asks any more", || !node.health.lock().is_probed);
}
