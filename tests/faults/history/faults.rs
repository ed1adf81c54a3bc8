//! What the plan calls trouble, done to the server and to the way to it.

use std::thread;
use std::time::Duration;

use redis_concurrent_testkit::{ClientKind, RedisServer};

use crate::history::fixture::{AFTERMATH, Fixture, RECOVERY};
use crate::history::plan::Trouble;
use crate::support::ms;

/// How long armed faults of the proxy wait for what they are to strike.
pub const ARMED: Duration = ms(150);

/// Does it, and undoes it again; blocks for as long as it lasts.
pub fn strike(fixture: &Fixture, trouble: Trouble) {
    let Fixture { locks, proxy, .. } = fixture;
    let name = format!("{trouble:?}");
    let name = name.split([' ', '(']).next().unwrap_or_default().to_owned();
    let after = match trouble {
        Trouble::FlushScripts => Duration::ZERO,
        // A release that was lost is repeated at its leisure; one that came late may hit a lease.
        Trouble::HoldBack(_) | Trouble::BlackHole(_) => AFTERMATH,
        _ => RECOVERY,
    };
    fixture.during(name, after, || match trouble {
        Trouble::FlushScripts => flush_scripts(locks),
        Trouble::KillClients { listeners } => {
            let kind = if listeners { ClientKind::PubSub } else { ClientKind::Normal };
            locks.kill_clients(kind).unwrap();
        }
        Trouble::Restart { crash, down } => {
            if crash {
                locks.kill().unwrap();
            } else {
                locks.shutdown().unwrap();
            }
            thread::sleep(down);
            locks.restart().unwrap();
        }
        Trouble::Freeze(time) => {
            locks.stop().unwrap();
            thread::sleep(time);
            locks.cont().unwrap();
        }
        Trouble::CutProxy => proxy.cut_all(),
        Trouble::Silence(n) => with_proxy(fixture, ARMED, || proxy.silence(n)),
        Trouble::SwallowRepliesAndReset(n) => {
            with_proxy(fixture, ARMED, || (0..n).for_each(|_| proxy.swallow_next_reply_and_reset()));
        }
        Trouble::ResetBeforeRequests(n) => {
            with_proxy(fixture, ARMED, || (0..n).for_each(|_| proxy.reset_before_next_request()));
        }
        Trouble::Delay(by, time) => with_proxy(fixture, time, || proxy.delay(by)),
        Trouble::HoldBack(time) => with_proxy(fixture, time, || proxy.hold_requests(true)),
        Trouble::BlackHole(time) => with_proxy(fixture, time, || proxy.black_hole(true)),
    });
}

fn with_proxy(fixture: &Fixture, time: Duration, fault: impl FnOnce()) {
    fault();
    thread::sleep(time);
    fixture.proxy.heal().unwrap();
}

fn flush_scripts(server: &RedisServer) {
    let mut connection = server.connection().unwrap();
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut connection).unwrap();
}
