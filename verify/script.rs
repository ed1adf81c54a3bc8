use std::collections::BTreeSet;

use super::items::{Item, Name, items};
use super::link::{DECLARED, GIVEN, OPTIONAL, REQUIRED};
use super::*;

const RULE: &str = include_str!("../lua/simple.lua");
const RULES: [&str; 10] = [
    RULE,
    include_str!("../lua/reentrant.lua"),
    include_str!("../lua/read_write.lua"),
    include_str!("../lua/semaphore.lua"),
    include_str!("../lua/inventory.lua"),
    include_str!("../lua/latch.lua"),
    include_str!("../lua/barrier.lua"),
    include_str!("../lua/election.lua"),
    include_str!("../lua/once.lua"),
    include_str!("../examples/own_kind.lua"),
];

fn scripts_of(rule: &str) -> Vec<Script> {
    let all = |scripts: Scripts| {
        let Scripts { acquire, leave, renew, inspect, update, adopt, .. } = scripts;
        [acquire, leave, renew, inspect].into_iter().chain(update).chain(adopt)
    };
    all(Scripts::of(rule).unwrap()).chain(all(Scripts::of_conditions(rule).unwrap())).collect()
}

#[test]
fn each_definition_is_there_once_and_before_what_uses_it() {
    for script in RULES.iter().flat_map(|rule| scripts_of(rule)) {
        for name in REQUIRED.iter().chain(&OPTIONAL) {
            let n = script.source.matches(&format!("function kind.{name}(")).count();
            assert!(n <= 1, "kind.{name} stands {n} times in {}", script.source);
        }
        for name in GIVEN.iter().filter(|name| !matches!(**name, "K" | "F" | "call")) {
            let declared = [format!("local function {name}("), format!("local {name} =")];
            let at = declared.iter().filter_map(|text| script.source.find(text)).min();
            let uses = script
                .source
                .find(&format!(" {name}("))
                .filter(|at| !script.source[..*at].ends_with("local function"));
            assert!(uses.is_none_or(|uses| at.is_some_and(|at| at < uses)), "{name} in {}", script.source);
        }
        assert!(!script.source.contains("--"), "comments are dropped: {}", script.source);
    }
}

#[test]
fn the_short_way_builds_nothing_that_only_the_long_way_calls() {
    let Scripts { acquire, leave, renew, .. } = Scripts::of(RULE).unwrap();
    let at = |text: &str| acquire.source.find(text).unwrap_or_else(|| panic!("no {text}"));
    assert!(
        at("return n") < at("function kind.load") && at("return busy(") < at("function kind.try_acquire")
    );
    let short =
        |script: &Script, until: &str| script.source.split(until).next().unwrap().matches("function").count();
    assert_eq!([short(&acquire, "math.ceil(ms)), arrival, listening"), short(&leave, "'SPUBLISH'")], [0, 0]);
    let own = RULE.replace("return call('GET', K[1])", "return held");
    let others = Scripts::of(&own).unwrap();
    assert_eq!(
        short(&others.leave, "kind.release(F[1])"),
        1,
        "what a rule's own local is for is no straight path"
    );
    assert_eq!(short(&renew, "ZSCORE"), 1, "kind.renew");
    // Without conditions and receipts, none of their functions are built.
    assert!(!acquire.source.contains("local function stay") && !acquire.source.contains("kind.transfer"));
}

#[test]
fn what_an_author_writes_on_the_short_way_may_use_all_that_is_given() {
    let waits = "function kind.reject(w)\n  return waiting(w.owner) and silent(w) and 'no' or nil\nend\n";
    let acquire = Scripts::of(&format!("{RULE}\n{waits}")).unwrap().acquire.source;
    let at = |text: &str| acquire.find(text).unwrap();
    assert!(
        at("local function waiting") < at("function kind.reject")
            && at("function kind.reject") < at("kind.reject(w)")
    );
}

#[test]
fn comments_and_functions_may_be_written_as_lua_has_them() {
    let other = RULE.replace(
        "function kind.load(owner)",
        "--[[ end\nfunction kind.load() ]] kind.load = function(owner)",
    );
    let (one, other) = (Scripts::of(RULE).unwrap(), Scripts::of(&other).unwrap());
    assert_eq!(
        one.acquire.source.replace("function kind.load(owner)", "kind.load = function(owner)"),
        other.acquire.source
    );
}

#[test]
fn what_is_wrong_with_a_rule_is_told_with_its_file_and_line() {
    let named = |rule: &str| format!("--@ file ../mine/kind.lua\n{rule}");
    for (rule, says) in [
        (
            RULE.replace("function kind.next_expiry", "local function next_expiry"),
            "mine/kind.lua: kind.next_expiry is missing",
        ),
        (RULE.replace("kind.tag =", "local tag ="), "mine/kind.lua: kind.tag is missing"),
        (
            RULE.trim_end().strip_suffix("end").unwrap().to_owned(),
            "mine/kind.lua:65: this \"function\" is not closed",
        ),
        (
            format!("local held_by, was_inside -- mine\n{RULE}"),
            "mine/kind.lua:1: a rule may not call a local was_inside",
        ),
        (format!("\nlocal rest = 1\n{RULE}"), "mine/kind.lua:2: a rule may not call a local rest"),
        (format!("local held\n{RULE}"), "mine/kind.lua:4: the local held is declared twice"),
        (
            format!("function kind.lok(owner)\nend\n{RULE}"),
            "mine/kind.lua:1: kind.lok is not something that a rule may define",
        ),
        (format!("{RULE}function kind.load(owner)\nend\n"), "mine/kind.lua:68: kind.load is defined twice"),
        (format!("function shared(owner)\nend\n{RULE}"), "mine/kind.lua:1: outside of its functions"),
        (format!("--[[ never closed\n{RULE}"), "mine/kind.lua:1: a long bracket is not closed by ]]"),
    ] {
        let why = Scripts::of(&named(&rule)).unwrap_err();
        assert!(why.starts_with(says), "{why}, not {says}");
    }
}

#[test]
fn the_names_that_operations_declare_are_listed() {
    let mut names = BTreeSet::new();
    for (_, source) in OPERATIONS.into_iter().chain(OF_CONDITIONS) {
        let all = items(source).unwrap();
        let last_mark = all.iter().rposition(Item::is_mark).unwrap_or(0);
        names.extend(all[..last_mark].iter().flat_map(|item| item.defines.clone()));
    }
    assert_eq!(DECLARED.split(' ').map(Name::Local).collect::<BTreeSet<_>>(), names);
}

#[test]
fn what_one_client_had_composed_is_there_for_the_next() {
    struct Key;
    let made = || Scripts::shared(TypeId::of::<Key>(), || Scripts::of(RULE)).unwrap();
    // A test beside this one may have the mutex for a moment.
    assert!((0..1000).any(|_| Arc::ptr_eq(&made(), &made())));
}

#[test]
fn an_error_is_told_by_the_function_and_the_line_that_its_author_wrote() {
    let rule = format!("--@ file ../lua/simple.lua\n{RULE}");
    for (file, source) in [("lua/simple.lua", RULE), ("lua/lib/queue.lua", link::PARTS[3].1)] {
        for script in scripts_of(&rule) {
            for (n, text) in script.source.lines().enumerate() {
                let error = format!("user_script:{}: no script: 4b, on @user_script:{0}.", n + 1);
                let (origin, words) = script.blames(&error).unwrap();
                let Some(line) = origin.place.split(&format!("({file}:")).nth(1) else { continue };
                let line: usize = line.trim_end_matches(')').parse().unwrap();
                let theirs = source.lines().nth(line - 1).unwrap();
                let words_of = |text: &str| text.split("--").next().unwrap().replace(' ', "");
                assert!(words_of(theirs).contains(&words_of(text)), "{text} is not {theirs}");
                assert_eq!((&*words, origin.is_rule), ("no", file == "lua/simple.lua"));
            }
        }
    }
    let all = Scripts::of(&rule).unwrap();
    let n = all.all().source.lines().position(|line| line.contains("held = fetch(")).unwrap() + 1;
    let (origin, _) = all.all().blames(&format!("user_script:{n}: no")).unwrap();
    assert_eq!(origin.place, "kind.load (lua/simple.lua:6)");
}

/// What a rule is given is listed once, on the page for authors; the code that checks and composes rules
/// takes it from there.
#[test]
fn what_a_rule_is_given_is_what_its_page_and_luacheck_say() {
    let page = include_str!("../docs/design/writing-a-kind.md");
    let table = page.split("| given | what it is |").nth(1).unwrap().split("\n\n").next().unwrap();
    let first = |line: &str| line.split('|').nth(1).unwrap().to_owned();
    let cells: Vec<_> = table.lines().filter(|line| line.starts_with("| `")).map(first).collect();
    let names = cells.iter().flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let mut documented: Vec<_> = names.map(|name| name.split('(').next().unwrap()).collect();
    let check = include_str!("../.luacheckrc").split("local rule = {").nth(1).unwrap();
    let mut checked: Vec<_> =
        check.split('}').take(2).flat_map(|part| part.split('\'').skip(1).step_by(2)).collect();
    let mut given = GIVEN.to_vec();
    for list in [&mut documented, &mut checked, &mut given] {
        list.sort_unstable();
    }
    assert_eq!((&documented, &checked), (&given, &given));
    for name in REQUIRED.iter().chain(&OPTIONAL) {
        assert!(page.contains(&format!("`{name}(")), "kind.{name} is not on the page");
    }
}
