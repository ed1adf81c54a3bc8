//! `redis-concurrent`: holds distributed locks from the shell, shows who holds them, and takes them from
//! their holders.
//!
//! Its behavior is specified by its own help (`redis-concurrent help run`) and on the page "The command line"
//! of the library. Each command is a module, which calls only the library's public interface.

#![forbid(unsafe_code)]

#[cfg(not(unix))]
compile_error!(
    "redis-concurrent-cli needs Unix: its `run` supervises a command with signals and process groups"
);

mod args;
mod bench;
mod connect;
mod doctor;
mod duration;
mod exit;
mod ls;
mod pages;
mod run;
mod say;
mod shared;
mod show;
mod shown;
mod take_away;
mod target;
mod watch;

use std::process::ExitCode;

use args::{Args, Command};
use clap::Parser;
use exit::Failure;

fn main() -> ExitCode {
    if let Some(code) = run::child::become_command() {
        return code;
    }
    let mut args = std::env::args_os().collect();
    let front = run::front::taken_from(&mut args);
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => return exit::of_usage(&error),
    };
    done(args, front).unwrap_or_else(|failure| {
        failure.report();
        failure.code()
    })
}

fn done(args: Args, front: Option<i32>) -> Result<ExitCode, Failure> {
    let args = args.with_environment()?;
    let say = say::Say::new(args.global.quiet, args.global.verbose);
    match args.command {
        Command::Run(run) => match front {
            None => run::front::run(),
            Some(front) => run::run(&args.global, &run.with_shell_behind_name(), front, say),
        },
        Command::Ls(ls) => ls::ls(&args.global, &ls, say),
        Command::Show(show) => show::show(&args.global, &show),
        Command::Watch(watch) => watch::watch(&args.global, &watch, say),
        Command::Break(it) => take_away::take_away(&args.global, &it, say),
        Command::Deadlocks => ls::deadlocks(&args.global),
        Command::Members(it) => shared::members(&args.global, &it.name),
        Command::Partitions(it) => shared::partitions(&args.global, &it.name),
        Command::Doctor => doctor::doctor(&args.global),
        Command::Bench(bench) => bench::bench(&args.global, &bench),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { command } => pages::man(command.as_deref()),
    }
}
