//! Unit tests of `src/engine/redis/socket.rs`.

use std::net::TcpListener;
use std::thread;

use super::*;
use crate::engine::random::{Rng, first_seed};

/// A value of any type, as Redis writes it.
fn any(rng: &mut Rng, depth: usize) -> Vec<u8> {
    const LINES: &[&str] = &[
        "+OK",
        "+",
        "+QUEUED",
        "-ERR no",
        "-NOSCRIPT No matching script.",
        "-x",
        ":0",
        ":-1",
        ":9007199254740993",
        ":9223372036854775807",
        ":-9223372036854775808",
        "_",
        "#t",
        "#f",
        ",1.5",
        ",-inf",
        "(12345678901234567890",
        "$-1",
        "*-1",
        "*0",
        "~0",
        "%0",
    ];
    let below = if depth == 0 { 2 } else { 3 };
    match rng.below(below) {
        0 => format!("{}\r\n", LINES[rng.below(LINES.len())]).into_bytes(),
        1 => {
            let length = [0, 1, 5, 40, 300][rng.below(5)];
            let text: Vec<u8> = (0..length).map(|_| b"ab\r\n$1*\0\xff"[rng.below(9)]).collect();
            match rng.below(4) {
                0 => [&b"=8\r\ntxt:text\r\n"[..], &[]].concat(),
                1 => b"!5\r\nERR x\r\n".to_vec(),
                _ => [format!("${length}\r\n").as_bytes(), &text, b"\r\n"].concat(),
            }
        }
        _ => {
            let n = rng.below(4);
            let (head, values) = match rng.below(6) {
                0 => (format!("~{n}"), n),
                1 => (format!("%{n}"), 2 * n),
                2 => (format!("|{n}"), 2 * n + 1),
                3 => (format!(">{}\r\n$7\r\nmessage", n + 1), n),
                _ => (format!("*{n}"), n),
            };
            let values = (0..values).flat_map(|_| any(rng, depth - 1));
            format!("{head}\r\n").into_bytes().into_iter().chain(values).collect()
        }
    }
}

#[test]
fn it_reads_what_the_redis_crate_reads_however_it_is_split() {
    let seed = first_seed();
    println!("SEED={seed}");
    let mut rng = Rng(seed);
    for _ in 0..2_000 {
        let bytes = any(&mut rng, 3);
        let text = String::from_utf8_lossy(&bytes);
        let theirs = parse_redis_value(&bytes).unwrap();
        for end in 0..bytes.len() {
            assert!(matches!(first_of(&bytes[..end]), Ok(None)), "{end} of {text:?}");
        }
        let (ours, length) = first_of(&[&bytes[..], b":1\r\n"].concat()).unwrap().unwrap();
        assert_eq!((&ours, length), (&theirs, bytes.len()), "{text:?}");
        // Whatever a byte turns into, it is no value that they do not read, and there is no panic.
        let mut garbled = bytes.clone();
        garbled[rng.below(bytes.len())] = b"\0:*$-19\r\nx"[rng.below(10)];
        if let Ok(Some((ours, length))) = first_of(&garbled) {
            let theirs = parse_redis_value(&garbled[..length]);
            assert_eq!(Some(&ours), theirs.as_ref().ok(), "{:?}", String::from_utf8_lossy(&garbled));
        }
    }
}

#[test]
fn what_is_not_redis_is_an_error_at_once() {
    let values = ["*1\r\nx", "*2\r\n:1\r\nx", "*1\r\n\r\n", "$1\r\nabc", "%1\r\n+a\r\nx", "*x\r\n"];
    for bytes in ["HTTP/1.1", "\x15\x03", "\r\n"].into_iter().chain(values) {
        assert!(first_of(bytes.as_bytes()).is_err(), "{bytes:?}");
    }
    let deep = |n| first_of(&[&b"*1\r\n".repeat(n)[..], b":1\r\n"].concat());
    assert!(deep(DEEPEST - 1).is_ok());
    assert!(deep(DEEPEST).is_err());
    assert!(deep(100_000).is_err());
    assert!(matches!(first_of(b"*99999999\r\n"), Ok(None)));
}

#[test]
fn a_connection_returns_every_value_in_its_order() {
    let seed = first_seed();
    println!("SEED={seed}");
    let mut rng = Rng(seed);
    let values: Vec<_> = (0..300).map(|_| any(&mut rng, 2)).collect();
    let bytes = values.concat();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let writer = thread::spawn(move || {
        let (mut peer, mut rest) = (listener.accept().unwrap().0, &bytes[..]);
        while !rest.is_empty() {
            let most = [1, 20, 5000][rng.below(3)];
            let piece = rest.len().min(1 + rng.below(most));
            peer.write_all(&rest[..piece]).unwrap();
            rest = &rest[piece..];
        }
    });
    let mut connection = Socket::over(Box::new(timed(socket, Moment::NEVER)));
    for value in values {
        assert_eq!(
            connection.recv_response(Moment::now(), Moment::NEVER).unwrap(),
            parse_redis_value(&value).unwrap()
        );
    }
    assert!(connection.recv_response(Moment::now(), Moment::NEVER).is_err_and(|e| e.is_io_error()));
    writer.join().unwrap();
}
