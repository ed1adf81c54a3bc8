//! Credentials that change while locks are held and waited for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use parking_lot::Mutex;
use redis_concurrent::ClientBuilder;
use redis_concurrent_testkit::{RedisCluster, SentinelFleet};

use super::*;
use crate::server_days::on;
use crate::support::{connected, ms, renewed_again};

/// The user `app` at servers of these addresses.
struct User(Vec<String>);

impl User {
    fn on_each<T: redis::FromRedisValue>(&self, words: &[&str]) {
        for address in &self.0 {
            let client = redis::Client::open(&**address).unwrap();
            on::<T>(&mut client.get_connection_with_timeout(LONG).unwrap(), words);
        }
    }

    fn has(&self, password: &str) {
        let password = format!(">{password}");
        self.on_each::<()>(&["ACL", "SETUSER", "app", "reset", "on", &password, "~*", "&*", "+@all"]);
    }

    /// Connections stay logged in when the password changes.
    fn is_cut_off(&self) {
        self.on_each::<usize>(&["CLIENT", "KILL", "USER", "app"]);
    }
}

type Say = fn() -> Result<&'static str, String>;

/// What a provider says; it counts how often it is asked.
#[derive(Clone)]
struct Provider(Arc<(Mutex<Say>, AtomicUsize)>);

impl Provider {
    fn new(say: Say) -> Provider {
        Provider(Arc::new((Mutex::new(say), AtomicUsize::new(0))))
    }

    fn now(&self, say: Say) {
        *self.0.0.lock() = say;
    }

    fn times(&self) -> usize {
        self.0.1.load(Ordering::Relaxed)
    }

    fn provider(&self) -> impl Fn() -> Result<(String, String), String> + use<> {
        let given = self.clone();
        move || {
            given.0.1.fetch_add(1, Ordering::Relaxed);
            let say = *given.0.0.lock();
            Ok(("app".to_owned(), say()?.to_owned()))
        }
    }
}

/// Nobody can log in with the user and the password of the address itself.
fn asking(url: &str, given: &Provider) -> ClientBuilder {
    let builder = Client::builder().url(&url.replacen("://", "://nobody:nothing@", 1));
    let builder = builder.credentials(given.provider()).sentinel_credentials(given.provider());
    builder.connect_timeout(LONG).unreachable_timeout(LONG * 4).lease(LONG * 2).renew_every(ms(300))
}

/// `fixed` is `url` with the first password.
fn bears_a_rotation(url: &str, fixed: &str, user: &User) {
    user.has("one");
    let given = Provider::new(|| Ok("one"));
    let fixed = connected(|| Client::builder().url(fixed).connect_timeout(LONG).lease(ms(3000)));
    let [client, other] = [(); 2].map(|()| connected(|| asking(url, &given)));
    let without = fixed.reentrant_lock("fixed").lock_owned().unwrap();
    let name = |n| format!("held:{n}");
    let held: Vec<_> = (0..8).map(|n| client.reentrant_lock(&name(n)).lock_owned().unwrap()).collect();
    let awaited = other.reentrant_lock(&name(0));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| awaited.try_lock_for(LONG * 4).map(|it| it.map(|it| it.unlock())));
        wait_until(LONG, "it waits", || awaited.queue_length().is_ok_and(|it| it == 1));
        user.has("two");
        user.is_cut_off();
        // The provider learns of it later.
        let before = given.times();
        wait_until(LONG, "it is asked again", || given.times() > before + 3);
        given.now(|| Ok("two"));
        wait_until(LONG, "without a provider the hold is lost", || without.is_lost());
        for guard in held {
            renewed_again(|| guard.remaining());
            guard.unlock().unwrap();
        }
        waiter.join().unwrap().unwrap().expect("it is granted").unwrap();
    });
    for info in client.primaries().unwrap() {
        let settings = info.redis_settings();
        assert_eq!((settings.username(), settings.password()), (Some("app"), Some("two")));
    }
}

#[test]
fn holds_and_waits_bear_a_rotation_at_a_server() {
    let server = RedisServer::start().unwrap();
    let url = server.url();
    bears_a_rotation(&url, &url.replace("//", "//app:one@"), &User(vec![url.clone()]));
}

#[test]
fn holds_and_waits_bear_a_rotation_at_sentinels_and_their_servers() {
    let fleet = SentinelFleet::builder().down_after(LONG).start().unwrap();
    let url = fleet.url();
    let fixed = url.replace("//", "//app:one@") + "?sentinel_user=app&sentinel_password=one";
    let sentinels = fleet.addresses().into_iter().map(|it| format!("redis://{it}/"));
    let all = fleet.servers().iter().map(RedisServer::url).chain(sentinels).collect();
    let url = url + "?sentinel_user=nobody&sentinel_password=nothing";
    bears_a_rotation(&url, &fixed, &User(all));
}

#[test]
fn holds_and_waits_bear_a_rotation_at_a_cluster() {
    let cluster = RedisCluster::start(3).unwrap();
    let url = cluster.url();
    let user = User(cluster.nodes().iter().map(|it| it.url()).collect());
    bears_a_rotation(&url, &url.replace("//", "//app:one@"), &user);
}

/// The new password may be late, or the provider be out of order for a while.
#[test]
fn a_provider_that_fails_is_named_and_asked_again() {
    let server = RedisServer::start().unwrap();
    let user = User(vec![server.url()]);
    user.has("one");
    let given = Provider::new(|| Ok("one"));
    let client = connected(|| asking(&server.url(), &given));
    let held = client.reentrant_lock("held").lock_owned().unwrap();
    let ways: [(Say, &str); 4] = [
        (|| Err("the vault is sealed".to_owned()), "the vault is sealed"),
        (|| panic!("as a provider may"), "panicked"),
        (|| Ok("three"), "WRONGPASS"),
        (
            || {
                thread::sleep(ms(300));
                Ok("two")
            },
            "and a connection may take 200.0ms",
        ),
    ];
    user.has("two");
    for (say, why) in ways {
        given.now(say);
        user.is_cut_off();
        let before = given.times();
        wait_until(LONG, "threads of the library ask for it", || given.times() > before);
        // The last way takes longer than this.
        let limit = if why.contains("may take") { ms(200) } else { LONG };
        let hasty = asking(&server.url(), &given).command_timeout(LONG).connect_timeout(limit);
        let hasty = hasty.connect_later().unwrap();
        let error = hasty.reentrant_lock("wanted").try_lock().unwrap_err();
        let whole = format!("{error:#}");
        assert!(error.is_unavailable() && whole.contains(why), "{whole}");
        assert!(!whole.contains("three"), "{whole}");
    }
    given.now(|| Ok("two"));
    user.is_cut_off();
    renewed_again(|| held.remaining());
    held.unlock().unwrap();
}
