//! The processes below this one: found by their parents in /proc, and waited for.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process, wait};

/// How often to check whether processes have ended.
pub const LOOKED: Duration = Duration::from_millis(10);
/// How long that may take after a kill: a process that the kernel does not end now may never end.
pub const DIES: Duration = Duration::from_secs(1);

/// What /proc tells about a process. A group or session of another pid namespace is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub parent: i32,
    pub group: i32,
    pub session: i32,
}

impl Place {
    /// Returns the place of a process; `None` if it is gone, or there is no /proc.
    pub fn of(pid: i32) -> Option<Place> {
        Place::read(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The process's name, which may contain anything, is in parentheses.
    fn read(stat: &str) -> Option<Place> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1).map(str::parse);
        let mut next = || fields.next()?.ok();
        Some(Place { parent: next()?, group: next()?, session: next()? })
    }
}

/// Makes the kernel hand orphans below this process to it, so that none of them gets away.
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Waits for children that have ended, adopted ones too, and reports those and each that was stopped.
/// Returns whether there are others.
pub fn reap(mut report: impl FnMut(Pid, WaitStatus)) -> bool {
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) => report(pid, status),
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Sends a signal to all processes below this one.
pub fn send(signal: Signal) {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
    let parents: HashMap<i32, i32> = pids.filter_map(|pid| Some((pid, Place::of(pid)?.parent))).collect();
    let this = getpid().as_raw_pid();
    for pid in parents.keys() {
        let mut up = parents.get(pid);
        // No longer than the longest line of parents; a process id may have been used again meanwhile.
        let is_below = (0..parents.len()).any(|_| {
            let parent = up.copied();
            up = parent.and_then(|it| parents.get(&it));
            parent == Some(this)
        });
        if let Some(pid) = Pid::from_raw(*pid).filter(|_| is_below) {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Kills all processes below this one, and returns when they are dead.
pub fn kill() {
    let began = Instant::now();
    // What was started meanwhile, too.
    while reap(|_, _| {}) && began.elapsed() < DIES {
        send(Signal::KILL);
        thread::park_timeout(LOOKED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_whatever_the_name() {
        let place = Place { parent: 7, group: 8, session: 9 };
        for name in ["sh", "a b", "a) S 1 (b", "))"] {
            assert_eq!(Place::read(&format!("5 ({name}) S 7 8 9 34816 5 4194560")), Some(place));
        }
        assert_eq!(Place::read("5 (sh"), None);
    }
}
