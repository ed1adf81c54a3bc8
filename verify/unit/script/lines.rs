//! Unit tests of `src/script/link.rs`.

use super::*;

#[test]
fn the_words_of_all_servers_are_told_apart_from_what_is_around_them() {
    let compare = "attempt to compare nil with number";
    let command = "Wrong number of args calling Redis command from script";
    let global = "Script attempted to access nonexistent global variable 'wait'";
    for (error, words) in [
        (format!("user_script:28: {compare} script: 4b, on @user_script:28."), compare),
        (format!("Error running script (call to f_4b): @user_script:28: user_script:28: {compare}"), compare),
        (format!("{command} script: 4b, on @user_script:28."), command),
        (
            format!("Error running script (call to f_4b): @user_script:28: @user_script: 28: -{command}"),
            command,
        ),
        (format!("Error running script (call to f_4b): @user_script: 28: {command}"), command),
        (format!("user_script:28: {global} script: 4b, on @user_script:28."), global),
        (
            format!("Error running script (call to f_4b): @enable_strict_lua:15: user_script:28: {global}"),
            global,
        ),
        ("Error compiling script (new function): user_script:28: '=' expected".into(), "'=' expected"),
        (format!("user_script:28: {compare}"), compare),
    ] {
        assert_eq!(unwrapped(&error), (Some(28), words), "{error}");
    }
    assert_eq!(unwrapped("no such key"), (None, "no such key"));
    assert_eq!(unwrapped("a script: b"), (None, "a script: b"));
}
