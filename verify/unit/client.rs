//! Unit tests of `src/client.rs`.

use std::time::Duration;

use redis_concurrent_testkit::{ClientKind, RedisServer, wait_until};

use super::*;
use crate::engine::hearing::listener;

const LONG: Duration = Duration::from_secs(60);

fn server_of(client: &Client) -> &Arc<Server> {
    let Route::One(server) = &client.0.route else { unreachable!() };
    server
}

fn listening_at(server: &RedisServer) -> Client {
    let client = Client::connect(&server.url()).unwrap();
    listener::start(&client.0, server_of(&client)).unwrap();
    wait_until(LONG, "it listens", || server_of(&client).inbox.is_up());
    client
}

/// The client of a process that is a copy of this client's, before it listens anywhere.
fn copy_of(client: &Client, url: &str) -> Client {
    let mut copy = Client::connect(url).unwrap();
    let shared = Arc::get_mut(&mut copy.0).unwrap();
    shared.uuid.clone_from(&client.0.uuid);
    shared.secret = client.0.secret.clone();
    copy
}

#[test]
fn a_copy_of_a_process_that_goes_on_loses_its_holds_and_says_why() {
    let server = RedisServer::start().unwrap();
    let original = listening_at(&server);
    let (lock, copy) = (original.reentrant_lock("stock"), copy_of(&original, &server.url()));
    let hold = lock.lock().unwrap();
    let both = copy.reentrant_lock("stock");
    let also = both.lock().unwrap();
    assert_eq!(also.token(), hold.token(), "to Redis it is one owner");

    listener::start(&copy.0, server_of(&copy)).unwrap();
    wait_until(LONG, "the copy ends", || also.is_lost());
    for error in [also.renew().unwrap_err(), both.try_lock().unwrap_err(), also.unlock().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Closed);
        assert!(error.to_string().contains("this process is a copy of another"), "{error}");
    }
    assert!(copy.0.is_closed() && copy.close().is_ok());
    hold.renew().unwrap();
    hold.unlock().unwrap();
}

/// Somebody reads all that is published, and publishes it again, and what a copy would say but for its secret.
#[test]
fn nobody_else_can_say_that_a_process_is_a_copy() {
    let server = RedisServer::start().unwrap();
    let client = listening_at(&server);
    let hold = client.reentrant_lock("stock").lock().unwrap();
    let channel = client.0.channel();
    let (mut reader, mut writer) = (server.connection().unwrap(), server.connection().unwrap());
    let own: i64 = redis::cmd("CLIENT").arg("ID").query(&mut reader).unwrap();
    let mut reader = reader.as_pubsub();
    reader.subscribe(&channel).unwrap();
    reader.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut publish = |text: &str| {
        assert!(!client.0.is_closed(), "a stranger ended it");
        redis::cmd("PUBLISH").arg(&channel).arg(text).query::<i64>(&mut writer).unwrap()
    };
    let mut read = vec!["here 0".to_owned()];
    for round in 0..3 {
        for it in server.clients(ClientKind::PubSub).unwrap() {
            let id = it.split([' ', '=']).nth(1).unwrap();
            if id != own.to_string() {
                let mut con = server.connection().unwrap();
                redis::cmd("CLIENT").arg(&["KILL", "ID", id]).exec(&mut con).unwrap();
            }
        }
        let mut hears = |read: &mut Vec<String>, what: &str| {
            let text = reader.get_message().and_then(|it| it.get_payload::<String>()).unwrap_or_default();
            let is_new = text.starts_with(what) && !read.contains(&text);
            read.extend(Some(text).filter(|_| is_new));
            is_new
        };
        wait_until(LONG, "it listens anew, and asks for a twin", || hears(&mut read, "twin "));
        wait_until(LONG, "what was read is published again", || publish(&read[0]) == 2);
        read.iter().for_each(|text| assert_eq!(publish(text), 2));
        // It answers anybody, and read all that before.
        wait_until(LONG, "it answers", || {
            publish(&format!("twin stranger-{round}"));
            hears(&mut read, "here ")
        });
    }
    assert!(read.len() >= 7 && !client.0.is_closed());
    hold.unlock().unwrap();
}
