//! `sqlite`: loads, changes and queries a database in one file, with the program `sqlite3`. It
//! inserts many rows in one transaction, makes many small transactions, and queries the cold file.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::application::{rates, require, word, words};
use super::program::{Program, directory};
use super::{Parameter, Spec, Workload};
use crate::error::{Error, Result};
use crate::runner::{Phase, Session, Timed};
use fslab_report::sample::CacheState;
use fslab_sys::usage::Instant;

const JOURNAL: Parameter = Parameter::choice(
    "journal",
    "journal that lets transactions survive a crash: a rollback journal, or a write-ahead log",
    &["rollback", "wal"],
);

const SYNCHRONOUS: Parameter = Parameter::choice(
    "synchronous",
    "how often SQLite syncs: at each commit, at checkpoints of the log, or never",
    &["full", "normal", "off"],
);

const ROWS: Parameter = Parameter::count("rows", "number of loaded rows", 50_000);

const TRANSACTIONS: Parameter = Parameter::count(
    "transactions",
    "number of transactions; each changes one row and adds another one",
    1000,
);

const QUERIES: Parameter =
    Parameter::count("queries", "number of rows that are looked up one by one", 2000);

pub(super) const SPEC: Spec = Spec {
    name: "sqlite",
    help: "load, change and query a SQLite database (needs the program sqlite3)",
    parameters: &[JOURNAL, SYNCHRONOUS, ROWS, TRANSACTIONS, QUERIES],
    phases: &["load", "transactions", "queries"],
    construct: |parameters, _seed| {
        Box::new(Sqlite {
            journal: parameters.word(&JOURNAL),
            synchronous: parameters.word(&SYNCHRONOUS),
            rows: parameters.number(&ROWS),
            transactions: parameters.number(&TRANSACTIONS),
            queries: parameters.number(&QUERIES),
        })
    },
};

struct Sqlite {
    journal: &'static str,
    synchronous: &'static str,
    rows: u64,
    transactions: u64,
    queries: u64,
}

/// The name of the database in the target.
const DATABASE: &str = "bank.sqlite";

/// The row that a transaction changes, and the amount that it adds to the balance.
type Change = (u64, i64);

impl Workload for Sqlite {
    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        require("sqlite", &[("sqlite3", "sqlite3")])?;
        let root = directory(session, "sqlite")?;
        session.describe_data(format!("{} rows, seed {}", self.rows, session.seed()));
        let changes = self.changes(session.seed());
        let load = script(&self.load())?;
        session.measure(Phase::new("load"), |timed| execute(timed, &root, load, self.rows))?;
        let transactions = script(&self.transactions(&changes))?;
        session.measure(Phase::new("transactions"), |timed| {
            let start = Instant::now();
            execute(timed, &root, transactions, self.transactions)?;
            rates(self.transactions, start).into_iter().for_each(|one| timed.add_metric(one));
            Ok(())
        })?;
        session.make_cold()?;
        let queries = script(&self.queries(session.seed()))?;
        let phase = Phase::new("queries").cache(CacheState::Cold);
        session.measure(phase, |timed| {
            timed.open_for_reading(DATABASE)?.close()?;
            execute(timed, &root, queries, self.queries)
        })?;
        session.make_cold()?;
        self.verify(session, &root, &changes)
    }
}

impl Sqlite {
    fn changes(&self, seed: u64) -> Vec<Change> {
        let mut random = Pcg64::seed_from_u64(seed);
        let change = |_| (random.random_range(1..=self.rows), random.random_range(-5000..=5000));
        (0..self.transactions).map(change).collect()
    }

    fn mode(&self) -> &'static str {
        if self.journal == "wal" { "wal" } else { "delete" }
    }

    fn begin(&self) -> String {
        format!("PRAGMA journal_mode={};\nPRAGMA synchronous={};\n", self.mode(), self.synchronous)
    }

    fn load(&self) -> String {
        let begin = self.begin();
        let rows = self.rows;
        format!(
            "{begin}BEGIN;\n\
             CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, owner TEXT);\n\
             CREATE TABLE history(id INTEGER PRIMARY KEY, account INTEGER, delta INTEGER);\n\
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})\n\
             INSERT INTO account\n\
             SELECT i, 0, printf('%080d', i * 2654435761 % 4294967296) FROM n;\n\
             CREATE INDEX account_owner ON account(owner);\nCOMMIT;\n"
        )
    }

    fn transactions(&self, changes: &[Change]) -> String {
        let one = |(account, delta): &Change| {
            format!(
                "BEGIN IMMEDIATE; UPDATE account SET balance = balance + ({delta}) \
                 WHERE id = {account}; INSERT INTO history(account, delta) \
                 VALUES({account}, {delta}); COMMIT;\n"
            )
        };
        self.begin() + &changes.iter().map(one).collect::<String>()
    }

    fn queries(&self, seed: u64) -> String {
        let mut random = Pcg64::seed_from_u64(!seed);
        let mut one = |_| {
            format!(
                "SELECT balance, owner FROM account WHERE id = {};\n",
                random.random_range(1..=self.rows)
            )
        };
        (0..self.queries).map(&mut one).collect()
    }

    /// Checks the committed data after a remount.
    fn verify(&self, session: &Session<'_>, root: &Path, changes: &[Change]) -> Result<()> {
        let text = "PRAGMA integrity_check; PRAGMA journal_mode; \
                    SELECT count(*), total(delta) FROM history; \
                    SELECT count(*), total(balance) FROM account;\n";
        let command = words(["sqlite3", "-batch", "-bail", DATABASE]);
        let program = Program::new(&command, root).input(script(text)?);
        let found = program.output_of(session.interrupt())?;
        let found = String::from_utf8_lossy(&found).trim().replace('\n', ", ");
        let sum: i64 = changes.iter().map(|(_, delta)| delta).sum();
        let expected =
            format!("ok, {}, {}|{sum}.0, {}|{sum}.0", self.mode(), self.transactions, self.rows);
        if found == expected {
            return Ok(());
        }
        Err(Error::Failed(format!("the database returned {found:?}, expected {expected:?}")))
    }
}

/// Returns a file with a script for sqlite3.
fn script(text: &str) -> Result<File> {
    let failed = || Error::file(&std::env::temp_dir());
    let mut file = tempfile::tempfile().map_err(failed())?;
    file.write_all(text.as_bytes()).and_then(|()| file.rewind()).map_err(failed())?;
    Ok(file)
}

fn execute(timed: &mut Timed<'_>, root: &Path, script: File, operations: u64) -> Result<()> {
    let command = words(["sqlite3", "-batch", "-bail", &word(Path::new(DATABASE))?]);
    Program::new(&command, root).input(script).run(timed.interrupt())?;
    timed.count(operations, 0);
    timed.flush()
}
