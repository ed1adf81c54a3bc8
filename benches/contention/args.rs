//! The command line.

use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    Uncontended,
    Reentrancy,
    Contended,
    Handoff,
    Renewal,
    Names,
    Writer,
    Downgrade,
    Signal,
    Latch,
    Barrier,
    Limiter,
    Multi,
    Stock,
    Redlock,
    Linger,
}

impl Workload {
    pub(crate) const ALL: [Workload; 16] = [
        Workload::Uncontended,
        Workload::Reentrancy,
        Workload::Contended,
        Workload::Handoff,
        Workload::Renewal,
        Workload::Names,
        Workload::Writer,
        Workload::Downgrade,
        Workload::Signal,
        Workload::Latch,
        Workload::Barrier,
        Workload::Limiter,
        Workload::Multi,
        Workload::Stock,
        Workload::Redlock,
        Workload::Linger,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Workload::Uncontended => "uncontended",
            Workload::Reentrancy => "reentry",
            Workload::Contended => "contended",
            Workload::Handoff => "handoff",
            Workload::Renewal => "renewal",
            Workload::Names => "names",
            Workload::Writer => "writer",
            Workload::Downgrade => "downgrade",
            Workload::Signal => "signal",
            Workload::Latch => "latch",
            Workload::Barrier => "barrier",
            Workload::Limiter => "limiter",
            Workload::Multi => "multi",
            Workload::Stock => "stock",
            Workload::Redlock => "redlock",
            Workload::Linger => "linger",
        }
    }
}

/// What is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lock {
    Simple,
    Reentrant,
    /// The shared mode of a read/write lock.
    Read,
    /// Its exclusive mode.
    Write,
    /// A semaphore of ten permits, acquired one at a time.
    Semaphore,
    /// No lock: one key is updated optimistically, and again if another caller was faster.
    Optimistic,
    /// A simple lock, under which one key is updated.
    Locked,
}

impl Lock {
    const ALL: [Lock; 7] = [
        Lock::Simple,
        Lock::Reentrant,
        Lock::Read,
        Lock::Write,
        Lock::Semaphore,
        Lock::Optimistic,
        Lock::Locked,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Lock::Simple => "simple",
            Lock::Reentrant => "reentrant",
            Lock::Read => "read",
            Lock::Write => "write",
            Lock::Semaphore => "semaphore",
            Lock::Optimistic => "optimistic",
            Lock::Locked => "locked",
        }
    }
}

/// How long a lock may be handed on within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LocalHandoff {
    /// The library's default.
    Default,
    Us(u64),
    /// `fair()`: no hand-off within a process.
    Fair,
}

/// The parsed arguments.
#[derive(Clone, Debug)]
pub(crate) struct Args {
    pub(crate) workloads: Vec<Workload>,
    pub(crate) processes: Vec<usize>,
    pub(crate) threads: Vec<usize>,
    /// How many connections the client may have; `None` for the library's default.
    pub(crate) connections: Option<u32>,
    pub(crate) seconds: f64,
    pub(crate) rounds: usize,
    pub(crate) hold_us: Option<u64>,
    /// Guards are dropped, too, beside those that are unlocked.
    pub(crate) drops: bool,
    /// How long a byte takes in each direction.
    pub(crate) one_way_us: Option<u64>,
    pub(crate) local_handoffs: Vec<LocalHandoff>,
    pub(crate) pinned: bool,
    pub(crate) by_unix_socket: bool,
    pub(crate) lock: Lock,
    pub(crate) locks: usize,
    pub(crate) lease_ms: u64,
    pub(crate) names: usize,
    pub(crate) json: bool,
    pub(crate) smoke: bool,
}

pub(crate) const HELP: &str = "\
cargo bench --bench contention -- [options]
  --workload W     uncontended, reentry, contended, handoff, renewal, names, writer, downgrade,
                   signal, latch, barrier, limiter, multi, stock, redlock, linger,
                   or all (the default)
  --processes P    processes that contend; a list (2,16) runs them in turn, round by round (2)
  --threads T      threads in each; a list, too (1)
  --connections C  uncontended, of several threads: how many connections they share (the library's default)
  --seconds S      length of a round (2)
  --rounds R       rounds; each figure is the median over them (5)
  --hold-us H      how long a hold lasts (0; handoff: 1000)
  --release drop   uncontended, of one thread: pairs that end with a drop, in turn with those that are unlocked
  --one-way-us U   uncontended, of one thread: through a proxy that delays what passes, in both directions
  --local-handoff-us L     the client's local hand-off period; `fair` for fair() locks; a list, too (the library's default)
  --fair           the same as --local-handoff-us fair
  --kind K         simple or reentrant (reentrant); contended: read, write or
                   semaphore (of ten permits), too; or optimistic or locked, an update of
                   one key without a lock or under a simple one
  --locks N        renewal: how many locks are held (1000)
  --lease-ms M     renewal: their lease (30000)
  --names N        names: how many names are locked one after another (20000)
  --pin same|none  server and clients on core 0, or wherever the system puts them (none)
  --socket tcp|unix  by what the clients connect; bare sockets connect by TCP (tcp)
  --json           one object a line
  --smoke          every workload for a fraction of a second: shows that it works, measures nothing";

impl Args {
    /// Whether it is the simple one of the two locks that every workload supports.
    pub(crate) fn simple(&self) -> bool {
        self.lock == Lock::Simple
    }

    /// How long a hold of this workload lasts.
    pub(crate) fn hold_us(&self, workload: Workload) -> u64 {
        self.hold_us.unwrap_or(if workload == Workload::Handoff { 1_000 } else { 0 })
    }

    /// Parses the arguments after the program's name, or returns what is wrong with them.
    pub(crate) fn parse(words: impl IntoIterator<Item = String>) -> Result<Args, String> {
        let mut args = Args {
            workloads: Workload::ALL.to_vec(),
            processes: vec![2],
            threads: vec![1],
            connections: None,
            seconds: 2.0,
            rounds: 5,
            hold_us: None,
            drops: false,
            one_way_us: None,
            local_handoffs: vec![LocalHandoff::Default],
            pinned: false,
            by_unix_socket: false,
            lock: Lock::Reentrant,
            locks: 1_000,
            lease_ms: 30_000,
            names: 20_000,
            json: false,
            smoke: false,
        };
        let mut count = 0;
        let mut benched = false;
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            count += 1;
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                // Passed by cargo itself.
                "--bench" => benched = true,
                "--workload" => args.workloads = workloads(&value()?)?,
                "--processes" => args.processes = list(&word, &value()?, positive)?,
                "--threads" => args.threads = list(&word, &value()?, positive)?,
                "--connections" => {
                    args.connections =
                        Some(u32::try_from(positive(&word, &value()?)?).map_err(|e| e.to_string())?)
                }
                "--seconds" => {
                    args.seconds = number(&word, &value()?)?;
                    if !(args.seconds > 0.0 && args.seconds.is_finite()) {
                        return Err("--seconds must be more than 0".to_owned());
                    }
                }
                "--rounds" => args.rounds = positive(&word, &value()?)?,
                "--hold-us" => args.hold_us = Some(number(&word, &value()?)?),
                "--release" => {
                    args.drops = match value()?.as_str() {
                        "unlock" => false,
                        "drop" => true,
                        other => return Err(format!("--release is unlock or drop, not {other:?}")),
                    }
                }
                "--one-way-us" => args.one_way_us = Some(number(&word, &value()?)?),
                "--local-handoff-us" => args.local_handoffs = list(&word, &value()?, local_handoff)?,
                "--fair" => args.local_handoffs = vec![LocalHandoff::Fair],
                "--kind" => {
                    let name = value()?;
                    let known = Lock::ALL.into_iter().find(|lock| lock.name() == name);
                    args.lock = known.ok_or_else(|| format!("--kind is none of {name:?}\n{HELP}"))?;
                }
                "--locks" => args.locks = positive(&word, &value()?)?,
                "--lease-ms" => args.lease_ms = number(&word, &value()?)?,
                "--names" => args.names = positive(&word, &value()?)?,
                "--pin" => {
                    args.pinned = match value()?.as_str() {
                        "same" => true,
                        "none" => false,
                        other => return Err(format!("--pin is same or none, not {other:?}")),
                    }
                }
                "--socket" => {
                    args.by_unix_socket = match value()?.as_str() {
                        "unix" => true,
                        "tcp" => false,
                        other => return Err(format!("--socket is tcp or unix, not {other:?}")),
                    }
                }
                "--json" => args.json = true,
                "--smoke" => args.smoke = true,
                "--help" => return Err(HELP.to_owned()),
                other => return Err(format!("unknown argument {other:?}\n{HELP}")),
            }
        }
        let only_contended = ![Lock::Simple, Lock::Reentrant].contains(&args.lock);
        if only_contended && args.workloads != [Workload::Contended] {
            return Err(format!("--kind {} is for --workload contended", args.lock.name()));
        }
        // `cargo test` runs the benches too, without an argument.
        args.smoke |= count == 0 && !benched;
        if args.smoke {
            args.seconds = args.seconds.min(0.2);
            args.rounds = 1;
            args.locks = args.locks.min(200);
            args.lease_ms = args.lease_ms.min(900);
            args.names = args.names.min(500);
        }
        Ok(args)
    }
}

fn workloads(name: &str) -> Result<Vec<Workload>, String> {
    if name == "all" {
        return Ok(Workload::ALL.to_vec());
    }
    let names = Workload::ALL.map(Workload::name).join(", ");
    let found = Workload::ALL.into_iter().find(|w| w.name() == name);
    found.map(|w| vec![w]).ok_or_else(|| format!("unknown workload {name:?}: there are {names} and all"))
}

fn local_handoff(word: &str, text: &str) -> Result<LocalHandoff, String> {
    match text {
        "fair" => Ok(LocalHandoff::Fair),
        "default" => Ok(LocalHandoff::Default),
        us => number(word, us).map(LocalHandoff::Us),
    }
}

fn positive(word: &str, text: &str) -> Result<usize, String> {
    match number(word, text)? {
        0 => Err(format!("{word} must be at least 1")),
        n => Ok(n),
    }
}

fn number<T: std::str::FromStr>(word: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{word} needs a number, not {text:?}"))
}

fn list<T>(word: &str, text: &str, one: impl Fn(&str, &str) -> Result<T, String>) -> Result<Vec<T>, String> {
    text.split(',').map(|item| one(word, item)).collect()
}
