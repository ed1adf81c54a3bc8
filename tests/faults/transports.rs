//! The ways to a server: one lock on each, taken, waited for and given back.

mod credentials;
mod managed;
mod rights;
mod tls;
mod wrong_server;

use std::time::{Duration, Instant};

use redis::{Commands, cmd};
use redis_concurrent::kinds::Permits;
use redis_concurrent::optimistic::Outcome;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Client, ClientBuilder, ErrorKind};
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, wait_until};

const LONG: Duration = Duration::from_secs(15);

/// Two clients of one server: a thread of the second waits for the first.
#[track_caller]
fn works(one: &Client, two: &Client) {
    let (held, waits) = (one.reentrant_lock("way"), two.reentrant_lock("way"));
    let guard = held.lock_owned().unwrap();
    assert!(waits.is_locked().unwrap());
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = waits.try_lock_for(LONG)?.expect("it is granted");
            guard.renew_for(LONG)?;
            guard.unlock()
        });
        wait_until(LONG, "it waits", || waits.queue_length().unwrap() == 1);
        // In its place, not only in its process.
        wait_until(LONG, "the other sees it", || held.queue_length().unwrap() == 1);
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert!(!held.is_locked().unwrap());
}

#[track_caller]
fn works_at(url: &str) {
    works(&Client::connect(url).unwrap(), &Client::connect(url).unwrap());
}

#[test]
fn tcp() {
    works_at(&RedisServer::start().unwrap().url());
}

#[test]
fn a_unix_socket() {
    let server = RedisServer::builder().unix_socket(true).start().unwrap();
    let url = server.unix_url().unwrap();
    works_at(&url);
    // The socket and the port are the same server.
    works(&Client::connect(&url).unwrap(), &Client::connect(&server.url()).unwrap());
}

/// As at a server that hangs, once the queue of its socket is full: the kernel lets others wait for it without an end.
#[cfg(target_os = "linux")]
#[test]
fn a_unix_socket_that_accepts_nobody() {
    use std::os::unix::net::{UnixListener, UnixStream};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("redis.sock");
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let _in_the_queue = UnixStream::connect(&path).unwrap();
    let url = format!("redis+unix://{}", path.display());
    let (says, hears) = std::sync::mpsc::channel();
    let client = Client::builder().url(&url).connect_timeout(Duration::from_millis(200));
    std::thread::spawn(move || says.send(client.connect().map(drop)));
    let error = hears.recv_timeout(LONG).expect("the connect timeout ends it").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:#}");
    assert!(error.to_string().contains("no connection to Redis in time"), "{error:#}");
}

#[test]
fn both_protocols_and_one_beside_the_other() {
    let server = RedisServer::start().unwrap();
    let old = format!("{}?protocol=resp2", server.url());
    let new = format!("{}?protocol=resp3", server.url());
    works_at(&old);
    works_at(&new);
    works(&Client::connect(&old).unwrap(), &Client::connect(&new).unwrap());
    works(&Client::connect(&new).unwrap(), &Client::connect(&old).unwrap());
    let client = Client::connect(&new).unwrap();
    let _guard = client.reentrant_lock("held").lock_owned().unwrap();
    let there = server.clients(ClientKind::Normal).unwrap();
    // Servers before 7.0 do not tell.
    let tells = there.iter().any(|line| line.contains(" resp="));
    assert!(!tells || there.iter().any(|line| line.contains(" resp=3")), "{there:?}");
}

#[test]
fn a_password() {
    let server = RedisServer::builder().password("s3cret /@").start().unwrap();
    works_at(&server.url());
    let without = format!("redis://127.0.0.1:{}/", server.port());
    let wrong = format!("redis://:wrong@127.0.0.1:{}/", server.port());
    for url in [without, wrong] {
        let error = Client::connect(&url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(!format!("{error:#}").contains("wrong@"), "no password in an error: {error:#}");
    }
}

/// Percent-encoded, as the page says.
#[test]
fn a_user_and_a_password_of_any_characters() {
    let server = RedisServer::start().unwrap();
    let mut admin = server.connection().unwrap();
    let password: String = (' '..='~').chain("äß€😀".chars()).collect();
    let user = "u/?#@:%ü";
    let rights = ["on", &format!(">{password}"), "~*", "&*", "+@all"];
    let _: () = cmd("ACL").arg("SETUSER").arg(user).arg(&rights).query(&mut admin).unwrap();
    let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
    let url = |name: &str, word: &str| {
        format!("redis://{}:{}@127.0.0.1:{}/", encoded(name), encoded(word), server.port())
    };
    works_at(&url(user, &password));
    let error = Client::connect(&url(user, &password[1..])).unwrap_err();
    assert!(error.is_unavailable() && !format!("{error:?}").contains(&password[1..]), "{error:?}");
}

#[test]
fn an_address_of_version_6() {
    let Ok(listener) = std::net::TcpListener::bind("[::1]:0") else {
        return eprintln!("SKIPPED, nothing was tested: no IPv6 on this machine");
    };
    drop(listener);
    let server = RedisServer::builder().arg("bind", "127.0.0.1 ::1").start().unwrap();
    works_at(&format!("redis://[::1]:{}/", server.port()));
}

/// Every connection of the client, once it was used.
#[test]
fn connections_have_the_clients_name() {
    let server = RedisServer::start().unwrap();
    let client = |protocol: &str| {
        let url = format!("{}?protocol={protocol}", server.url());
        Client::builder()
            .url(&url)
            .client_name("check out ü")
            .lease(Duration::from_secs(3))
            .connect()
            .unwrap()
    };
    for protocol in ["resp2", "resp3"] {
        let (one, two) = (client(protocol), client(protocol));
        works(&one, &two);
        let guard = one.simple_lock("held").lock_owned().unwrap();
        let all = || {
            let of = |kind| server.clients(kind).unwrap();
            [of(ClientKind::Normal), of(ClientKind::PubSub)].concat()
        };
        let is_ours = |line: &&String| line.contains(" name=check_out__ ");
        // A connection for requests and one for the inbox each, and one for renewals.
        wait_until(LONG, "all have the name", || all().iter().filter(is_ours).count() >= 5);
        let all = all();
        let ours: Vec<_> = all.iter().filter(is_ours).collect();
        // Servers before 7.2 do not know it.
        let named = all.iter().any(|line| line.contains(" lib-name="));
        assert!(!named || ours.iter().all(|line| line.contains(" lib-name=redis-concurrent ")), "{all:?}");
        guard.unlock().unwrap();
        one.close().unwrap();
        two.close().unwrap();
    }
}

/// The name goes in front of a connection's first request.
#[test]
fn a_name_costs_no_round_trip() {
    const WAY: Duration = Duration::from_millis(400);
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    door.delay(WAY);
    let mut least = [Duration::MAX; 2];
    // Once more where the machine stood still.
    wait_until(LONG, "it takes as long with a name", || {
        let took = ["", "somebody"].map(|name| {
            let builder = Client::builder().url(&door.url()).connect_timeout(LONG).command_timeout(LONG);
            let client = builder.waiter_timeout(LONG).client_name(name).connect_later().unwrap();
            let began = Instant::now();
            client.simple_lock("it").try_lock().unwrap().expect("it is free").unlock().unwrap();
            (began.elapsed(), client)
        });
        let there = server.clients(ClientKind::Normal).unwrap();
        assert!(there.iter().any(|line| line.contains(" name=somebody ")), "{there:?}");
        least.iter_mut().zip(&took).for_each(|(least, (took, _))| *least = (*took).min(*least));
        let [without, with] = least;
        println!("{without:?}, {with:?} with a name");
        with < without + WAY * 3 / 4
    });
}

#[test]
fn a_password_over_a_unix_socket() {
    let server = RedisServer::builder().password("s3cret").unix_socket(true).start().unwrap();
    works_at(&server.unix_url().unwrap());
}

#[test]
fn an_acl_user_with_no_more_rights_than_it_needs() {
    let server = RedisServer::start().unwrap();
    let mut admin = server.connection().unwrap();
    let rules = ["on", ">pass", "~rc:*", "resetchannels", "&rc:inbox:*", "+@all", "-@admin", "-@dangerous"];
    let _: () = cmd("ACL").arg("SETUSER").arg("app").arg(&rules).query(&mut admin).unwrap();
    let url = format!("redis://app:pass@127.0.0.1:{}/", server.port());
    works_at(&url);
    // Without the right to one's own keys nothing is held, and it is said.
    let _: () = cmd("ACL").arg("SETUSER").arg("app").arg("resetkeys").query(&mut admin).unwrap();
    let error = Client::connect(&url).unwrap().reentrant_lock("way").try_lock().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// The user that the page tells to make, as it tells it.
#[test]
fn an_acl_user_with_the_rights_that_the_page_lists() {
    let server = RedisServer::start().unwrap();
    let mut admin = server.connection().unwrap();
    let page = include_str!("../../docs/operations.md");
    let (_, rights) = page.split_once("redis-cli ACL SETUSER locks ").unwrap();
    let (rights, _) = rights.split_once("```").unwrap();
    let rights: Vec<_> = rights.split_whitespace().map(|it| it.trim_matches('\'')).collect();
    let rights: Vec<_> = rights.into_iter().filter(|it| *it != "\\").collect();
    let _: () = cmd("ACL").arg("SETUSER").arg("locks").arg("reset").arg(&rights).query(&mut admin).unwrap();
    let url = format!("redis://locks:secret@127.0.0.1:{}/", server.port());
    works_at(&url);
    reads_and_writes_at(&url);
    meets_at(&url);
    updates_at(&url);
}

/// What optimistic updates and fenced writes do, to a key that these rights are for.
#[track_caller]
fn updates_at(url: &str) {
    let client = Client::connect(url).unwrap();
    let key = "rc:{mine}";
    for gives_up in [true, false] {
        let update = client.optimistic(&[key]).run(|read, write| {
            let n = read.get::<Option<u32>>(key)?.unwrap_or(0) + 1;
            write.set(key, n);
            Ok(if gives_up { Outcome::Abort(()) } else { Outcome::Commit(()) })
        });
        assert_eq!(update.unwrap().committed, !gives_up);
    }
    let fenced = client.fenced("mine");
    fenced.set(1, "x").unwrap();
    assert_eq!(fenced.get::<String>().unwrap().as_deref(), Some("x"));
    fenced.script("return redis.call('GET', KEYS[1])").run::<u32>(2, &[key], None::<&str>).unwrap();
    assert!(fenced.expire_after(LONG).unwrap() && fenced.delete().unwrap());
}

/// What conditions, permits, receipts, a latch, a barrier and a rate limiter do.
#[track_caller]
fn meets_at(url: &str) {
    let [one, two] = [(); 2].map(|()| Client::connect(url).unwrap());
    let (lock, other) = (one.reentrant_lock("court"), two.reentrant_lock("court"));
    let (latch, permits) = (one.count_down_latch("start"), one.semaphore("permits"));
    let (first, second) = (one.cyclic_barrier("line", 2), two.cyclic_barrier("line", 2));
    latch.try_set_count(1).unwrap();
    permits.set_permits(2).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let mut guard = lock.lock()?;
            latch.count_down()?;
            lock.condition("ball").wait(&mut guard)?;
            guard.unlock()?;
            first.wait()
        });
        assert!(two.count_down_latch("start").wait_with(LONG).unwrap());
        let guard = other.lock().unwrap();
        let ball = other.condition("ball");
        assert_eq!(ball.wait_queue_length(&guard).unwrap(), 1);
        ball.signal(&guard).unwrap();
        assert!(ball.wait_queue_length(&guard).unwrap() == 0);
        guard.unlock().unwrap();
        assert_eq!(second.wait_then(|| ()).unwrap() + waiter.join().unwrap().unwrap(), 1);
    });
    // Its time may be up before it arrives.
    wait_until(LONG, "it is broken", || {
        second.wait_with(Duration::from_millis(20)).is_err() && first.is_broken().unwrap()
    });
    first.reset().unwrap();
    let receipt = permits.acquire(2).unwrap().into_receipt().unwrap();
    assert_eq!(two.adopt::<Permits>(&receipt).unwrap().permits(), 2);
    let limiter = one.rate_limiter("limited", Rate::smooth(2, LONG));
    assert!(limiter.try_acquire(2).unwrap().allowed && !limiter.try_acquire(1).unwrap().allowed);
    assert!(limiter.delete().unwrap());
    assert!(permits.expire_after(LONG).unwrap() && permits.delete().unwrap() && latch.delete().unwrap());
}

/// What a read/write lock does: side by side, waiting, and from one half to the other.
#[track_caller]
fn reads_and_writes_at(url: &str) {
    let [one, two] = [(); 2].map(|()| Client::connect(url).unwrap().read_write_lock("pages"));
    let read = one.read_lock().lock_owned().unwrap();
    drop(two.read_lock().try_lock().unwrap().expect("beside the other"));
    assert_eq!(two.read_count().unwrap(), 1);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let guard = two.write_lock().try_lock_for(LONG)?.expect("it is granted");
            guard.renew_for(LONG)?;
            two.downgrade(guard)?.unlock()
        });
        wait_until(LONG, "the other sees it", || one.read_lock().queue_length().unwrap() == 1);
        read.unlock().unwrap();
        writer.join().unwrap().unwrap();
    });
    assert!(!one.write_lock().is_locked().unwrap());
}

#[test]
fn an_acl_user_without_channels_is_told_when_it_waits() {
    let server = RedisServer::start().unwrap();
    let mut admin = server.connection().unwrap();
    let rules = ["on", ">pass", "~rc:*", "resetchannels", "+@all"];
    let _: () = cmd("ACL").arg("SETUSER").arg("mute").arg(&rules).query(&mut admin).unwrap();
    let client = Client::connect(&format!("redis://mute:pass@127.0.0.1:{}/", server.port())).unwrap();
    let lock = client.reentrant_lock("way");
    // What is free needs no channel.
    lock.lock().unwrap().unlock().unwrap();
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("way");
    let _held = other.lock_owned().unwrap();
    let error = lock.try_lock_for(LONG).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("rc:inbox:"), "it says what is missing: {error}");
}

#[test]
fn a_database_of_its_own() {
    let server = RedisServer::start().unwrap();
    let url = |db: u8| format!("{}{db}", server.url());
    works_at(&url(3));
    let (three, four) = (Client::connect(&url(3)).unwrap(), Client::connect(&url(4)).unwrap());
    let _held = three.reentrant_lock("way").lock_owned().unwrap();
    let _too = four.reentrant_lock("way").try_lock_owned().unwrap().expect("another database");
    let mut redis = server.connection().unwrap();
    let _: () = cmd("SELECT").arg(3).query(&mut redis).unwrap();
    assert!(redis.exists::<_, bool>("rc:{way}").unwrap());
    let _: () = cmd("SELECT").arg(0).query(&mut redis).unwrap();
    assert!(!redis.exists::<_, bool>("rc:{way}").unwrap());
}

#[test]
fn a_pool_of_ones_own() {
    let server = RedisServer::start().unwrap();
    let client = |size: u32| Client::builder().url(&server.url()).max_connections(size).connect().unwrap();
    let (one, two) = (client(1), client(1));
    works(&one, &two);
    // One connection is enough for many threads: nobody keeps it while it waits.
    let lock = one.reentrant_lock("crowd");
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..10 {
                    lock.try_lock_for(LONG).unwrap().expect("everybody gets in").unlock().unwrap();
                }
            });
        }
    });
}

#[test]
fn what_is_no_address_is_told_at_once() {
    for url in ["", "nonsense", "http://127.0.0.1/", "redis://127.0.0.1:notaport/"] {
        let error = Client::connect(url).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{url}: {error}");
    }
    // Nobody listens there.
    let port = RedisServer::start().unwrap().port();
    let error = Client::connect(&format!("redis://127.0.0.1:{port}/")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

/// Whatever is asked of it in the handshake, and answered by nobody, or bit by bit.
#[test]
fn connecting_takes_no_longer_than_its_timeout() {
    let server = RedisServer::builder().password("secret").start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let timeout = Duration::from_secs(2);
    for slow in [false, true] {
        door.black_hole(!slow);
        door.split_replies(if slow { timeout * 3 / 4 } else { Duration::ZERO });
        for user in ["", ":secret@"] {
            let url = door.url().replace("//", &format!("//{user}")) + "1";
            let began = Instant::now();
            let builder = Client::builder().url(&url).command_timeout(LONG);
            let error = builder.connect_timeout(timeout).connect().unwrap_err();
            assert!(error.is_unavailable(), "{error:#}");
            assert!(began.elapsed() < timeout * 2, "{:?}", began.elapsed());
        }
    }
}

/// Each half comes before a single read would time out, and both after the time for the reply.
#[track_caller]
fn a_reply_in_pieces_is_not_waited_for(builder: ClientBuilder, door: &Proxy) {
    let timeout = Duration::from_secs(2);
    let client = builder.command_timeout(timeout).connect().unwrap();
    let lock = client.simple_lock("pieces");
    lock.lock().unwrap().unlock().unwrap();
    door.split_replies(timeout * 3 / 4);
    let error = lock.try_lock().map(drop).expect_err("its reply takes longer than the command timeout");
    assert!(error.is_unavailable() && format!("{error:#}").contains("no answer within"), "{error:#}");
    door.heal().unwrap();
}

#[test]
fn a_reply_takes_no_longer_than_its_timeout() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    a_reply_in_pieces_is_not_waited_for(Client::builder().url(&door.url()), &door);
}
