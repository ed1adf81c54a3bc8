//! The man page and the shell completions, generated from the description of the command line.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Args;
use crate::exit::Failure;
use crate::say;

/// Prints a shell's script, which also completes the names that are in use.
pub fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "redis-concurrent", &mut text);
    let text = String::from_utf8(text).map_err(Failure::internal)?;
    let text = match shell {
        Shell::Bash => text + BASH_NAMES,
        Shell::Fish => text + FISH_NAMES,
        Shell::Zsh => {
            let is_name = |line: &str| line.trim_start().starts_with("':name ") || line.contains("::names ");
            let line = |line: &str| match is_name(line) {
                true => line.replace(":_default'", ":_redis-concurrent_names'"),
                false => line.to_owned(),
            };
            let (head, lines) = text.split_once('\n').unwrap_or_default();
            let lines: Vec<_> = lines.lines().map(line).collect();
            format!("{head}\n{ZSH_NAMES}{}\n", lines.join("\n"))
        }
        _ => text,
    };
    say::print(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// A name is only text here: the shell never evaluates it. Bash takes what follows a colon for a word of its own.
const BASH_NAMES: &str = r#"
_redis-concurrent_names() {
    _redis-concurrent "$@"
    local line="${COMP_LINE:0:COMP_POINT}" word before name
    word="${line##* }"
    before="${word%"${word##*:}"}"
    [[ $word == -* ]] && return
    [[ $line =~ ^[^\ ]+\ +((show|watch|break)\ .*|run\ +[^\ ]*)$ ]] || return
    while IFS= read -r name; do
        [[ $name == "$word"* ]] && COMPREPLY+=("$(printf %q "${name#"$before"}")")
    done < <(redis-concurrent ls --all --names 2>/dev/null)
}
complete -F _redis-concurrent_names -o bashdefault -o default redis-concurrent
"#;

const FISH_NAMES: &str = r#"
complete -c redis-concurrent -n "__fish_seen_subcommand_from show watch break run" -a "(redis-concurrent ls --all --names 2>/dev/null)"
"#;

const ZSH_NAMES: &str = r#"
_redis-concurrent_names() {
    local names=(${(f)"$(redis-concurrent ls --all --names 2>/dev/null)"})
    compadd -a names
}
"#;

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
