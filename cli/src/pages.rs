//! The man page and the shell completions, generated from the description of the command line.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::Failure;
use crate::say;

pub fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "redis-concurrent", &mut text);
    say::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the man page of the program, or of one command.
pub fn man(command: Option<&str>) -> Result<ExitCode, Failure> {
    let mut all = Args::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let found = all.find_subcommand(name).filter(|it| !it.is_hide_set());
            let found = found.ok_or_else(|| Failure::usage(format!("there is no command {name:?}")))?;
            found.clone().name(format!("redis-concurrent-{name}").leak() as &'static str)
        }
    };
    let mut text = Vec::new();
    clap_mangen::Man::new(page).render(&mut text).map_err(Failure::internal)?;
    say::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
