//! Tasks that wait while Redis is unreachable.

use std::time::{Duration, Instant};

use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{Proxy, RedisServer, eventually, released_all};
use redis_concurrent_tokio::AsyncLock;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Long enough for anything that is sure to happen.
const LONG: Duration = Duration::from_secs(30);
/// How long a wait tolerates that.
const BEARS: Duration = Duration::from_secs(1);
/// How long a request may take.
const REQUEST: Duration = Duration::from_millis(500);

/// As with threads, the time of each task begins when it begins to wait, and not when its turn comes.
#[test]
fn tasks_give_up_when_redis_was_out_of_reach_for_so_long() {
    let server = RedisServer::start().unwrap();
    for silent in [false, true] {
        let proxy = Proxy::start(server.port()).unwrap();
        let set = || Client::builder().url(&proxy.url()).unreachable_timeout(BEARS).command_timeout(REQUEST);
        // On a busy machine connecting may time out, and is then repeated.
        let client = eventually(LONG, || set().connect().ok());
        let lock = AsyncLock::new(client.reentrant_lock("out of reach"));
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            if silent {
                proxy.black_hole(true);
            } else {
                proxy.refuse_connections(true).unwrap();
                proxy.cut_all();
            }
            let (began, mut tasks) = (Instant::now(), JoinSet::new());
            let waits = |tasks: &mut JoinSet<_>| {
                let lock = lock.clone();
                tasks.spawn(async move { lock.lock().await.map(drop) });
            };
            (0..100).for_each(|_| waits(&mut tasks));
            // These have not waited as long when the first ones give up.
            tokio::time::sleep(BEARS / 2).await;
            (0..100).for_each(|_| waits(&mut tasks));
            while let Some(task) = timeout(LONG, tasks.join_next()).await.expect("it gives up") {
                assert_eq!(task.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
            }
            // One after another they would have taken minutes.
            assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
            proxy.heal().unwrap();
            // On a busy machine a request may time out, and is then repeated.
            let again = async {
                loop {
                    if let Ok(guard) = lock.lock().await {
                        break guard;
                    }
                }
            };
            let guard = timeout(LONG, again).await.expect("it is there again");
            // On a busy machine this request may time out, too.
            let _ = released_all(&guard.unlock().await);
        });
    }
}
