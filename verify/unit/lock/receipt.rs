//! Unit tests of `src/lock/receipt.rs`.

use super::*;

const OWNER: &str = "67e55044-10b1-426f-9247-bb680e5fe0c8:4194305";

fn receipt() -> Receipt {
    Receipt {
        kind: "reentrant lock".to_owned(),
        name: "stock:42".to_owned(),
        at_key: false,
        owner: OWNER.to_owned(),
        hand_overs: 3,
        lease: Duration::from_secs(30),
        fixed: false,
        args: String::new(),
    }
}

#[test]
fn what_is_written_is_read() {
    let names = ["a", "a.b", "%", "ключ 鍵\n", "\0", "rc1.", "+", &"x".repeat(1024)];
    for name in names {
        for (fixed, args) in [(false, ""), (true, "7"), (true, "a.b %")] {
            let (name, args) = (name.to_owned(), args.to_owned());
            let receipt = Receipt { name, at_key: fixed, fixed, args, ..receipt() };
            let text = receipt.to_string();
            assert!(text.bytes().all(|b| b.is_ascii_graphic()), "{text}");
            assert_eq!(text.parse::<Receipt>().unwrap(), receipt, "{text}");
        }
    }
}

#[test]
fn what_was_not_written_is_refused() {
    let good = receipt().to_string();
    assert_eq!(good.parse::<Receipt>().unwrap(), receipt());
    let with = |i: usize, part: &str| {
        let mut fields: Vec<&str> = good.split('.').collect();
        fields[i] = part;
        fields.join(".")
    };
    let cases = [
        (String::new(), "not a receipt"),
        ("hello".to_owned(), "not a receipt"),
        (with(0, "rc2"), "version rc2"),
        (with(0, "RC1"), "not a receipt"),
        (format!(" {good}"), "not a receipt"),
        (format!("{good}\n"), "was altered"),
        (format!("{good}.0"), "10"),
        (good.rsplit_once('.').unwrap().0.to_owned(), "8"),
        (with(1, ""), "kind"),
        (with(1, "%F"), "kind"),
        (with(1, "%FF"), "kind"),
        (with(1, "reentrant lock"), "was altered"),
        (with(2, ""), "empty"),
        (with(2, &"x".repeat(1025)), "1025"),
        (with(2, "stock%3a42"), "was altered"),
        (with(2, "%73tock"), "was altered"),
        (with(2, "%+5"), "name"),
        (with(2, "@@a"), "was altered"),
        (with(2, "@"), "empty"),
        (with(3, "4711"), "owner"),
        (with(3, "x%3A1"), "owner"),
        (with(3, &escape(&OWNER.to_uppercase())), "owner"),
        (with(4, "x"), "hand-offs"),
        (with(4, "-1"), "hand-offs"),
        (with(4, "+3"), "was altered"),
        (with(4, "03"), "was altered"),
        (with(4, "4"), "was altered"),
        (with(4, "4096"), "hand-offs"),
        (with(5, "99"), "lease must be between"),
        (with(5, "18446744073709551615"), "lease must be between"),
        (with(5, "18446744073709551616"), "lease"),
        (with(6, ""), "kind of lease"),
        (with(6, "Fixed"), "kind of lease"),
        (with(8, ""), "was altered"),
        (with(8, "0000"), "was altered"),
    ];
    for (text, why) in cases {
        let error = text.parse::<Receipt>().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text:?}: {error}");
        assert!(error.to_string().contains(why), "{text:?}: {error}");
    }
}

#[test]
fn one_changed_character_is_noticed() {
    let good = receipt().to_string();
    for (at, was) in good.bytes().enumerate() {
        for other in b"0123456789abcdefABCDEF%.@-_".iter().filter(|other| **other != was) {
            let mut text = good.clone().into_bytes();
            text[at] = *other;
            let text = String::from_utf8(text).unwrap();
            assert!(text.parse::<Receipt>().is_err(), "{text}");
        }
    }
}
