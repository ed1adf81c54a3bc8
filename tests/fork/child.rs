//! A forked child. There is no way to fork but the C library's, and this is the one file that needs one.

#![allow(unsafe_code)]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

/// How long a child may take.
const LONG: Duration = Duration::from_secs(20);

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn kill(pid: i32, signal: i32) -> i32;
    fn _exit(status: i32) -> !;
}

const WNOHANG: i32 = 1;
const SIGKILL: i32 = 9;

/// Runs `body` in a forked child, which ends with it; waits for that end.
#[track_caller]
pub fn in_child(body: impl FnOnce()) {
    let pid = split();
    if pid == 0 {
        let ended = catch_unwind(AssertUnwindSafe(body));
        leave(ended.is_ok());
    }
    wait_for(pid);
}

/// Forks: 0 in the child, which has to end by [`leave`].
pub fn split() -> i32 {
    // SAFETY: the child has this thread only. What it runs takes no lock of the standard library that
    // another thread of ours could have held, and it leaves by `_exit`.
    let pid = unsafe { fork() };
    assert!(pid >= 0, "fork: {}", std::io::Error::last_os_error());
    pid
}

/// Ends the forked child.
pub fn leave(well: bool) -> ! {
    // SAFETY: nothing of the parent's may be undone here, so no destructor runs.
    unsafe { _exit(i32::from(!well)) }
}

#[track_caller]
pub fn wait_for(pid: i32) {
    let mut status = 0;
    let began = Instant::now();
    loop {
        // SAFETY: `pid` is a child of ours that was not waited for yet, `status` lives.
        match unsafe { waitpid(pid, &raw mut status, WNOHANG) } {
            0 if began.elapsed() > LONG => {
                // SAFETY: as above; it is the child's id still, as nobody has waited for it.
                unsafe {
                    kill(pid, SIGKILL);
                    waitpid(pid, &raw mut status, 0);
                }
                panic!("the forked child hangs");
            }
            0 => thread::sleep(Duration::from_millis(1)),
            done => {
                assert_eq!(done, pid, "waitpid: {}", std::io::Error::last_os_error());
                break;
            }
        }
    }
    assert_eq!(status, 0, "the forked child failed");
}
