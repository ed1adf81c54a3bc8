//! A small web server that admits each address three times in ten seconds.
//!
//! `cargo run --example web_limit [address:port]`, on the server that `REDIS_URL` names or on a private one;
//! then a few times `curl -i` with the address that it prints. Any number of such web servers on one Redis
//! share their count.

use std::io::Cursor;
use std::net::IpAddr;
use std::time::Duration;
use std::{env, thread};

use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::RedisServer;
use tiny_http::{Header, Request, Response, Server};

const RATE: Rate = Rate::fixed_window(3, Duration::from_secs(10));
const THREADS: usize = 4;

type Answer = Response<Cursor<Vec<u8>>>;
type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let redis = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = redis.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let client = Client::connect(&url)?;
    let server = Server::http(env::args().nth(1).as_deref().unwrap_or("127.0.0.1:0"))?;
    println!("http://{}/", server.server_addr());
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| server.incoming_requests().for_each(|request| serve(&client, request)));
        }
    });
    Ok(())
}

fn serve(client: &Client, request: Request) {
    let Some(address) = request.remote_addr().map(|it| it.ip()) else { return };
    let answer = match answer(client, address) {
        Ok(answer) => answer,
        // It is unknown whether the limit is exceeded. A service for which that matters less would admit the
        // request.
        Err(error) => {
            eprintln!("{address}: {error:#}");
            Response::from_string("try again later\n").with_status_code(503)
        }
    };
    // A client that has hung up needs no answer.
    let _ = request.respond(answer);
}

/// Returns the page, or `429 Too Many Requests` with the seconds to wait before the next attempt.
fn answer(client: &Client, address: IpAddr) -> Result<Answer, Error> {
    let decision = client.rate_limiter(&format!("web:{address}"), RATE).try_acquire(1)?;
    if decision.allowed {
        return Ok(Response::from_string(format!("welcome; {} more\n", decision.remaining)));
    }
    // The header has whole seconds; rounded down, they would be too few.
    let seconds = decision.retry_after.as_millis().div_ceil(1000).to_string();
    let retry = Header::from_bytes("Retry-After", seconds.as_str()).expect("digits make a header");
    Ok(Response::from_string("too many requests\n").with_status_code(429).with_header(retry))
}
