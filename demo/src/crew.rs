//! The four worker processes of a run, as their parent sees them.

use std::io;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::Child;

use super::Failure;
use super::books::Books;
use super::message::{Done, Message, Task};
use super::place::Place;
use super::trace::now;
use super::variant::Variant;
use super::worker::{ROLE, TASK};

/// The number of worker processes.
pub const PROCESSES: usize = 4;
/// The process that is killed, in the run that kills one.
const VICTIM: usize = 0;
/// How long the parent listens to each worker at a time.
const LOOK: Duration = Duration::from_millis(5);
/// How long workers may take to start, or to end once everything is done.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a run may make no progress before it is abandoned.
const STANDSTILL: Duration = Duration::from_secs(60);

/// The death of a worker.
#[derive(Debug)]
pub struct Death {
    pub pid: u32,
    /// Just before the signal was sent.
    pub at: u64,
    /// The product whose lock it held.
    pub product: String,
    /// The orders it had taken, handed out again.
    pub orders: Vec<String>,
}

/// The workers' reports.
#[derive(Debug, Default)]
pub struct Report {
    pub started: u64,
    /// One for each worker; that of the dead worker has only the requests sent until it held the lock it died with.
    pub done: Vec<Done>,
    pub death: Option<Death>,
}

struct Crew<'a> {
    children: Vec<Child>,
    books: &'a mut Books,
    report: Report,
    /// For each worker, whether it has reported, or is dead.
    over: [bool; PROCESSES],
}

/// Runs the sale to its end; `progress` receives how many orders are decided.
pub fn work(
    place: &Place,
    prefix: &str,
    variant: Variant,
    orders: usize,
    books: &mut Books,
    progress: impl Fn(usize),
) -> Result<Report, Failure> {
    let mut children = Vec::new();
    let servers = if variant == Variant::RedLock { place.five_servers()? } else { Vec::new() };
    for worker in 0..PROCESSES {
        let victim = variant.kills() && worker == VICTIM;
        let task = Task {
            url: place.url.clone(),
            servers: servers.clone(),
            prefix: prefix.to_owned(),
            variant,
            worker,
            orders,
            // When about a quarter of all orders is done, as it takes every fourth order.
            victim_after: victim.then_some(orders / PROCESSES / 4),
        };
        children.push(Child::spawn(ROLE, &[(TASK, &serde_json::to_string(&task)?)])?);
    }
    for child in &children {
        match hear(child, PATIENCE)? {
            Some(Message::Ready) => {}
            Some(Message::Failed(why)) => return Err(why.into()),
            other => return Err(format!("a worker is not ready: {other:?}").into()),
        }
    }
    let mut crew = Crew { children, books, report: Report::default(), over: [false; PROCESSES] };
    crew.report.started = now();
    for child in &mut crew.children {
        child.say("go")?;
    }
    crew.watch(orders, progress)?;
    for child in crew.children.iter_mut().enumerate().filter(|(i, _)| !crew.over[*i]).map(|(_, it)| it) {
        child.wait_within(PATIENCE)?;
    }
    Ok(crew.report)
}

impl Crew<'_> {
    fn watch(&mut self, orders: usize, progress: impl Fn(usize)) -> Result<(), Failure> {
        let (mut last, mut since) = (0, Instant::now());
        while !self.over.iter().all(|it| *it) {
            let decided = self.books.progress(PROCESSES)?;
            progress(decided);
            if decided != last {
                (last, since) = (decided, Instant::now());
            } else if since.elapsed() > STANDSTILL {
                return Err(format!("nothing happens any more, at {decided} of {orders} orders").into());
            }
            for worker in 0..PROCESSES {
                if !self.over[worker] {
                    self.listen(worker)?;
                }
            }
        }
        Ok(())
    }

    fn listen(&mut self, worker: usize) -> Result<(), Failure> {
        match hear(&self.children[worker], LOOK)? {
            None => {}
            Some(Message::Holding { product, requests }) => {
                self.report.done.push(Done { requests, ..Done::default() });
                self.kill(worker, product)?;
            }
            Some(Message::Done(done)) => {
                self.report.done.push(done);
                self.over[worker] = true;
            }
            Some(Message::Failed(why)) => return Err(format!("worker {worker}: {why}").into()),
            Some(Message::Ready) => return Err(format!("worker {worker} is ready again").into()),
        }
        Ok(())
    }

    /// Kills a worker that holds a lock, and puts its orders back into the list.
    fn kill(&mut self, worker: usize, product: String) -> Result<(), Failure> {
        let child = &mut self.children[worker];
        let (pid, at) = (child.pid(), now());
        child.kill9()?;
        self.over[worker] = true;
        let orders = self.books.hand_out_again(worker)?;
        self.report.death = Some(Death { pid, at, product, orders });
        Ok(())
    }
}

/// Returns a worker's next message, if it comes within `limit`.
fn hear(child: &Child, limit: Duration) -> Result<Option<Message>, Failure> {
    match child.read_line_within(limit) {
        Ok(line) => Ok(Some(serde_json::from_str(&line)?)),
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Ok(None),
        Err(error) => Err(error.into()),
    }
}
