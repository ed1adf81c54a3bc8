//! How the command is started: its arguments, its environment, its process group.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::termios::tcgetpgrp;

use super::child::BECOME;
use super::front::this_program;
use super::tree::Place;
use crate::args::{Global, Run};
use crate::shown;

/// The process group of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    Own,
    /// That of the process in front.
    Callers(i32),
    /// The same, which is that of this process, too.
    Inherited,
}

impl Group {
    /// The caller's if there is a terminal that the command may have to read from, and that a shell hands
    /// from group to group.
    pub fn of(args: &Run, front: i32) -> Group {
        if !args.foreground && File::open("/dev/tty").is_err() {
            return Group::Own;
        }
        match Place::of(front).map(|it| it.group) {
            Some(group) if group > 0 => Group::Callers(group),
            _ => Group::Inherited,
        }
    }

    /// Whether it is the one in the foreground of the terminal.
    pub fn has_the_terminal(self) -> bool {
        let Group::Callers(group) = self else { return false };
        let first = File::open("/dev/tty").ok().and_then(|tty| tcgetpgrp(tty).ok());
        first.is_some_and(|first| first.as_raw_pid() == group)
    }
}

/// Returns the command of `args`, with the tokens of its lock and the number of its slot in its environment.
pub fn command(
    global: &Global,
    args: &Run,
    (tokens, slot): (&[Option<u64>], Option<u32>),
    group: Group,
) -> Command {
    let mut command = Command::new(this_program());
    command.arg0("redis-concurrent").arg(BECOME).arg(std::process::id().to_string());
    match &args.shell {
        None => command.args(&args.command),
        Some(text) => {
            let shell = env::var_os("SHELL").filter(|it| !it.is_empty()).unwrap_or_else(|| "/bin/sh".into());
            command.arg(shell).arg("-c").arg(replacing_the_shell(text))
        }
    };
    command.env("REDIS_CONCURRENT_LOCK", &args.name);
    command.env("REDIS_CONCURRENT_NAMESPACE", global.namespace());
    command.env("REDIS_CONCURRENT_LEASE_MS", args.lease.as_millis().to_string());
    // The tokens and the number of an enclosing lock are not this lock's.
    for (variable, _) in env::vars_os().filter(|(it, _)| it == SLOT || is_token(it)) {
        command.env_remove(variable);
    }
    if let Some(slot) = slot {
        command.env(SLOT, slot.to_string());
    }
    for (i, token) in tokens.iter().enumerate() {
        let variable = if i == 0 { String::new() } else { format!("_{i}") };
        if let Some(token) = token {
            command.env(format!("REDIS_CONCURRENT_TOKEN{variable}"), shown::token(*token));
        }
    }
    match group {
        Group::Own => _ = command.process_group(0),
        Group::Callers(group) => _ = command.process_group(group),
        Group::Inherited => {}
    }
    command
}

const SLOT: &str = "REDIS_CONCURRENT_SLOT";

/// Returns the tokens of an enclosing `run`'s locks.
pub fn enclosing_tokens() -> Vec<u64> {
    let tokens = env::vars_os().filter(|(variable, _)| is_token(variable));
    tokens.filter_map(|(_, token)| token.to_str()?.parse().ok()).collect()
}

fn is_token(variable: &OsStr) -> bool {
    variable.to_str().is_some_and(|it| it.starts_with("REDIS_CONCURRENT_TOKEN"))
}

/// Lets a shell that runs one simple command replace itself with it, so that signals reach the command.
fn replacing_the_shell(text: &OsStr) -> OsString {
    let Some(words) = text.to_str() else { return text.to_owned() };
    let plain = |c: char| c.is_ascii_alphanumeric() || " _./:,@%+-".contains(c);
    let first = words.split_whitespace().next().unwrap_or_default();
    // What a shell does by itself is in this list, or needs special characters.
    let is_built_in = BUILT_IN.split(' ').any(|it| it == first);
    if first.is_empty() || is_built_in || !words.chars().all(plain) {
        return text.to_owned();
    }
    format!("exec {words}").into()
}

/// What a shell does by itself, of what can be written without special characters.
const BUILT_IN: &str = "\
    . : alias and begin bg break builtin case cd command continue coproc declare eval exec exit export fc fg for \
    function getopts hash if jobs let local nocorrect noglob not or print read readonly repeat return select set \
    shift shopt source time times trap type typeset ulimit umask unalias unset until wait whence while";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_is_replaced_by_one_simple_command() {
        for (text, run) in [
            ("sleep 5", "exec sleep 5"),
            ("/opt/x --day 1", "exec /opt/x --day 1"),
            ("a; b", "a; b"),
            ("a | b", "a | b"),
            ("A=1 b", "A=1 b"),
            ("echo $X", "echo $X"),
            ("cd /tmp", "cd /tmp"),
            ("time make", "time make"),
            ("ulimit -n 100", "ulimit -n 100"),
            ("echo 'a b'", "echo 'a b'"),
            ("  ", "  "),
        ] {
            assert_eq!(replacing_the_shell(OsStr::new(text)), run);
        }
    }

    #[test]
    fn tokens_sort_as_texts() {
        assert_eq!(shown::token(890_865_315_643_305_984), "0890865315643305984");
        assert!(shown::token(9) < shown::token(10));
    }
}
