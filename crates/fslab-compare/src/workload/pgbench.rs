//! `pgbench`: runs transactions on a PostgreSQL database in the target. The workload starts and
//! stops its own server. The program `pgbench` runs the transactions.

mod server;

use std::fs;
use std::path::{Path, PathBuf};

use regex::bytes::Regex;
use tempfile::TempDir;

use super::program::{Program, directory};
use super::{Parameter, Preparation, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use fslab_report::sample::{Better, CacheState, OwnMetric};
use fslab_stats::Stopwatch;
use server::{Postgres, Server};

const SCALE: Parameter =
    Parameter::count("scale", "pgbench's scale factor: about 15 MiB per unit", 2);

const CLIENTS: Parameter = Parameter::count("clients", "number of concurrent clients", 4);

const TRANSACTIONS: Parameter =
    Parameter::count("transactions", "total number of transactions of all clients", 2000);

const SCRIPT: Parameter = Parameter::choice(
    "script",
    "pgbench's built-in script",
    &["tpcb-like", "simple-update", "select-only"],
);

const BUFFERS: Parameter =
    Parameter::bytes("buffers", "the server's shared_buffers, at least 128 KiB", 32 << 20);

const ACCOUNT: Parameter = Parameter::text(
    "account",
    "the user that runs the server if fslab runs as root, because PostgreSQL refuses root",
    "postgres",
);

pub(super) const SPEC: Spec = Spec {
    name: "pgbench",
    help: "load and change a PostgreSQL database (needs PostgreSQL's server and pgbench)",
    parameters: &[SCALE, CLIENTS, TRANSACTIONS, SCRIPT, BUFFERS, ACCOUNT],
    phases: &["load", "transactions"],
    construct: |parameters, _seed| {
        Box::new(Pgbench {
            scale: parameters.number(&SCALE),
            clients: parameters.number(&CLIENTS),
            transactions: parameters.number(&TRANSACTIONS),
            script: parameters.word(&SCRIPT),
            buffers: parameters.number(&BUFFERS),
            account: parameters.text(&ACCOUNT).unwrap_or_default(),
            place: PathBuf::new(),
        })
    },
};

struct Pgbench {
    scale: u64,
    clients: u64,
    transactions: u64,
    script: &'static str,
    buffers: u64,
    account: String,
    /// The workload's directory outside the target.
    place: PathBuf,
}

impl Workload for Pgbench {
    fn check(&self) -> std::result::Result<(), String> {
        if self.clients > self.transactions {
            return Err("`clients`: must not exceed `transactions`".to_owned());
        }
        if self.buffers < 128 << 10 {
            return Err("`buffers`: PostgreSQL needs at least 128 KiB".to_owned());
        }
        Ok(())
    }

    fn prepare(&mut self, preparation: &Preparation<'_>) -> Result<()> {
        preparation.directory.clone_into(&mut self.place);
        Ok(())
    }

    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let postgres = Postgres::find(&self.account, self.buffers)?;
        let root = directory(session, "pgbench")?;
        let data = root.join("postgresql");
        let scratch = scratch(&postgres, &self.place)?;
        session.describe_data(format!("pgbench, scale {}", self.scale));
        postgres.make_database(&data, session.interrupt())?;
        let server = postgres.start(&data, scratch.path(), session.interrupt())?;
        session.measure(Phase::new("load"), |timed| self.load(timed, &server))?;
        server.stop()?;
        session.make_cold()?;
        let server = postgres.start(&data, scratch.path(), session.interrupt())?;
        let seed = session.seed();
        // A cold cache is not requested, because the starting server has already read some files.
        session.measure(Phase::new("transactions").cache(CacheState::NotAsked), |timed| {
            self.transact(timed, &server, seed)
        })?;
        server.stop()?;
        session.make_cold()?;
        let server = postgres.start(&data, scratch.path(), session.interrupt())?;
        self.verify(session, &server)?;
        server.stop()
    }
}

/// Creates a directory for the socket and the latency log. The server's user owns it. If the usual
/// path is too long for a socket, the directory is in the temporary directory.
fn scratch(postgres: &Postgres, usual: &Path) -> Result<TempDir> {
    let elsewhere = std::env::temp_dir();
    let place = if server::fits(usual) { usual } else { elsewhere.as_path() };
    let made = tempfile::Builder::new().prefix("pg").tempdir_in(place);
    let made = made.map_err(Error::file(place))?;
    postgres.give(made.path())?;
    Ok(made)
}

impl Pgbench {
    fn load(&self, timed: &mut Timed<'_>, server: &Server) -> Result<()> {
        let before = server.processor_time()?;
        let scale = self.scale.to_string();
        self.pgbench(timed, server, &["-i", "-q", "-s", &scale])?;
        timed.count(self.scale * 100_000, 0);
        server.query("CHECKPOINT", timed.interrupt())?;
        timed.flush()?;
        let spent = server.processor_time()? - before;
        timed.add_processor_time(spent.user, spent.system);
        Ok(())
    }

    fn transact(&self, timed: &mut Timed<'_>, server: &Server, seed: u64) -> Result<()> {
        let each = self.each().to_string();
        let clients = self.clients.to_string();
        let (script, seed) = (format!("--builtin={}", self.script), (seed >> 1).to_string());
        let log = server.socket().join("log").display().to_string();
        let (prefix, seed) = (format!("--log-prefix={log}"), format!("--random-seed={seed}"));
        let before = server.processor_time()?;
        let printed = self.pgbench(
            timed,
            server,
            &["-n", "-c", &clients, "-t", &each, "-l", &script, &prefix, &seed],
        )?;
        timed.flush()?;
        let spent = server.processor_time()? - before;
        timed.add_processor_time(spent.user, spent.system);
        timed.count(self.each() * self.clients, 0);
        timed.add_metric(OwnMetric {
            name: "tps".to_owned(),
            value: figure(&printed, r"tps = ([0-9.]+)")?,
            unit: "1/s".to_owned(),
            better: Better::More,
        });
        timed.add_metric(OwnMetric {
            name: "latency-mean".to_owned(),
            value: figure(&printed, r"latency average = ([0-9.]+) ms")? / 1e3,
            unit: "s".to_owned(),
            better: Better::Less,
        });
        timed.record("transaction", latencies(server.socket(), self.each() * self.clients)?);
        Ok(())
    }

    /// Returns the number of transactions per client.
    fn each(&self) -> u64 {
        self.transactions.div_ceil(self.clients)
    }

    fn pgbench(&self, timed: &Timed<'_>, server: &Server, options: &[&str]) -> Result<Vec<u8>> {
        let words = server.client("pgbench", options)?;
        Program::new(&words, server.socket()).output_of(timed.interrupt())
    }

    /// Checks after a restart that committed transactions exist and that the sums of all tables
    /// agree.
    fn verify(&self, session: &Session<'_>, server: &Server) -> Result<()> {
        let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) \
                    - (SELECT coalesce(sum(delta), 0) FROM pgbench_history), \
                    (SELECT count(*) FROM pgbench_history), \
                    (SELECT count(*) FROM pgbench_accounts)";
        let found = server.query(sums, session.interrupt())?;
        let history = if self.script == "select-only" { 0 } else { self.each() * self.clients };
        let expected = format!("0|{history}|{}", self.scale * 100_000);
        if found == expected {
            return Ok(());
        }
        Err(Error::Failed(format!("the database returned {found:?}, expected {expected:?}")))
    }
}

/// Returns a number from pgbench's report.
fn figure(printed: &[u8], pattern: &str) -> Result<f64> {
    let missing = || Error::Failed(format!("the output of pgbench does not match {pattern}"));
    let pattern = Regex::new(pattern).ok().ok_or_else(missing)?;
    let group = pattern.captures(printed).and_then(|found| found.get(1)).ok_or_else(missing)?;
    String::from_utf8_lossy(group.as_bytes()).parse().ok().ok_or_else(missing)
}

/// Returns the time of each transaction from pgbench's log: the third word of a line, in
/// microseconds.
fn latencies(directory: &Path, expected: u64) -> Result<Stopwatch> {
    let mut buckets = Vec::new();
    for path in logs(directory)? {
        let text = fs::read_to_string(&path).map_err(Error::file(&path))?;
        for line in text.lines() {
            let word = line.split(' ').nth(2).and_then(|word| word.parse::<u64>().ok());
            let Some(microseconds) = word else {
                return Err(Error::Failed(format!(
                    "{}: {line:?} is not a line of pgbench's log",
                    path.display()
                )));
            };
            buckets.push((microseconds * 1000, 1));
        }
        fs::remove_file(&path).map_err(Error::file(&path))?;
    }
    super::content::expect("transactions in pgbench's log", expected, buckets.len() as u64)?;
    let longest = buckets.iter().map(|(value, _)| *value).max().unwrap_or(0);
    Ok(Stopwatch::from_buckets(longest, &buckets))
}

fn logs(directory: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(directory).map_err(Error::file(directory))?;
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::file(directory))?;
        if entry.file_name().to_string_lossy().starts_with("log.") {
            found.push(entry.path());
        }
    }
    Ok(found)
}
