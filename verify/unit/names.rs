//! Unit tests of `src/names.rs`.

use super::*;

/// What Redis Cluster computes the slot from, written as in its specification.
fn hashed(key: &str) -> &str {
    let Some(open) = key.find('{') else { return key };
    let Some(close) = key[open..].find('}').map(|i| i + open) else { return key };
    if close == open + 1 { key } else { &key[open + 1..close] }
}

fn keys(names: &Names) -> [String; KEYS] {
    names.keys().map(|parts| parts.concat())
}

#[test]
fn every_key_has_the_whole_name_as_its_tag() {
    for name in ["stock:42", "{", "}", "{}", "a{}b", "}x{", "{{x}", "ключ", "\0", "%7B", &"x".repeat(1024)]
    {
        let names = Names::new("rc", name).unwrap();
        let all = keys(&names);
        for key in all.iter().chain([&names.fenced().concat(), &inbox_prefix(names.stem())]) {
            assert_eq!(hashed(key), hashed(&all[0]), "{name:?}");
            assert!(!hashed(key).is_empty() && hashed(key) != key);
        }
    }
}

#[test]
fn the_name_is_what_it_was_made_of() {
    for name in ["a", "{", "}{", "%", "%7B", "a:queue", "ключ", &"x".repeat(LONGEST)] {
        let names = Names::new("rc:of:mine", name).unwrap();
        assert_eq!((names.name(), names.is_at_key()), (name, false));
    }
    for key in ["a", "a{b}", "rc:a"] {
        let names = Names::at_key("rc", key).unwrap();
        assert_eq!((names.name(), names.is_at_key()), (key, true));
    }
}

#[test]
fn different_names_have_different_keys() {
    let all = ["%7B", "{", "%257B", "a", "A", "}", "%7D", "{}"];
    let keys: std::collections::BTreeSet<_> =
        all.iter().flat_map(|n| keys(&Names::new("rc", n).unwrap())).collect();
    assert_eq!(keys.len(), KEYS * all.len());
}

/// User-chosen keys that can be locks.
const KEYS_OF_USERS: [&str; 22] = [
    "a",
    "stock:42",
    "{",
    "{{",
    "a{b",
    "{a}",
    "{a}b",
    "b{a}",
    "b{a}{c}",
    "{{a}",
    "a{{b}c}",
    "{a}}",
    "{a}{}",
    "{a}:queue",
    "rc:a",
    "rc:{a}x",
    "rc:{a%}",
    "rc:{a}:at",
    "rc:{a}:at:{a}",
    "{at}:at:{at}",
    "ключ",
    "\0 \n*",
];

#[test]
fn a_key_of_a_users_own_is_kept_to_the_letter_and_the_others_are_in_its_slot() {
    let longest = "x".repeat(LONGEST);
    for key in KEYS_OF_USERS.into_iter().chain([&*longest]) {
        let keys = keys(&Names::at_key("rc", key).unwrap());
        assert_eq!(keys[0], key);
        for other in &keys[1..] {
            assert_eq!(hashed(other), hashed(key), "{key:?} {other:?}");
            assert!(other.starts_with("rc:{"), "{other:?}: as rights are given");
        }
        let channel = inbox_prefix(Names::at_key("rc", key).unwrap().stem());
        assert_eq!(hashed(&channel), hashed(key), "{key:?} {channel:?}");
        assert!(channel.starts_with("rc:{"), "{channel:?}: as rights are given");
    }
}

#[test]
fn no_two_locks_share_a_key() {
    let names = ["a", "{", "{a}", "at", "a:at", "a}:at:{a", "queue", "ключ"];
    let named = names.iter().map(|name| Names::new("rc", name).unwrap());
    let at_keys = KEYS_OF_USERS.iter().map(|key| Names::at_key("rc", key).unwrap());
    let all: Vec<_> = named.chain(at_keys).flat_map(|names| keys(&names)).collect();
    let different: std::collections::BTreeSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len());
}

#[test]
fn a_channel_leads_to_its_lock() {
    for names in [Names::new("rc", "a{b}:inbox:u"), Names::at_key("rc", "rc:{a}x"), Names::new("rc", "ключ")]
    {
        let names = names.unwrap();
        let channel = channel(names.stem(), "u");
        assert_eq!(channel, inbox_prefix(names.stem()) + "u");
        assert_eq!((stem_of(&channel, "u"), stem_of(&channel, "v")), (Some(names.stem()), None));
    }
    assert_eq!(stem_of("rc:inbox:u", "u"), Some("rc"));
}

#[test]
fn a_key_beside_which_there_can_be_none_is_refused() {
    let long = "x".repeat(LONGEST + 1);
    for (key, why) in [
        ("", "key must not be empty"),
        (&*long, "1025"),
        ("}", "hash tag"),
        ("{}", "hash tag"),
        ("{}{a}", "hash tag"),
        ("a}b", "hash tag"),
        ("}a{b", "hash tag"),
        ("rc:{a}:fence", "a lock's own"),
        ("rc:{a}:at:{a}:queue", "a lock's own"),
    ] {
        let error = Names::at_key("rc", key).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{key:?}");
        assert!(error.to_string().contains(why), "{key:?}: {error}");
    }
    assert!(Names::at_key("other", "rc:{a}:fence").is_ok());
}

#[test]
fn the_key_of_a_named_lock_leads_to_its_name() {
    for name in ["a", "{", "}{", "%", "%7B", "%257B", "a:queue", "ключ", &"x".repeat(LONGEST)] {
        assert_eq!(of_state("rc", &state("rc", name)).as_deref(), Some(name));
        assert_eq!(of_state("other", &state("rc", name)), None);
    }
    for key in
        ["a", "rc:a", "rc:{}", "rc:{a", "rc:{a}b", "rc:{a}}", "rc:{{a}", "rc:{a%}", "rc:{%7b}", "RC:{a}"]
    {
        assert_eq!(of_state("rc", key), None, "{key:?}");
    }
}

#[test]
fn keys_of_users_cost_the_others_nothing() {
    assert_eq!(size_of::<Names>(), size_of::<Box<str>>());
}

#[test]
fn fields_do_not_begin_one_another() {
    assert_eq!(field("condition's name", "a|b%|").unwrap(), "a%7Cb%25%7C");
    assert_eq!(field("condition's name", "a%7Cb").unwrap(), "a%257Cb");
    assert_eq!(field("SKU's name", "").unwrap_err(), "a SKU's name must not be empty");
    assert!(field("SKU's name", &"x".repeat(1025)).is_err());
}

#[test]
fn empty_and_long_names_are_refused() {
    for name in [String::new(), "x".repeat(1025)] {
        assert_eq!(Names::new("rc", &name).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn two_clients_with_the_same_randomness_are_two() {
    let [one, other] = [(); 2].map(|()| mixed_uuid([7; 16], "1 host"));
    assert_ne!(one, other);
    assert_eq!(one.get_version_num(), 4);
    assert!(is_owner(&format!("{one}:1")));
}
