//! `cargo xtask cluster sql`: counts the changes between two large snapshots. Ballista on two
//! nodes, DuckDB, `fslab sql` and `fslab age diff` must find the same counts. Then Ballista counts
//! again while one of its executors is killed, and once more after a restart.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::nodes::{Cluster, NODES, wait, wait_for};
use crate::setup;
use crate::target_slot::size_of;
use crate::{environment, process};

const ROLE: &str = include_str!("ballista.sh");

/// The version of Ballista that uses the same DataFusion as `fslab-sql`.
const VERSION: &str = "55.0.0";

const PROGRAMS: [&str; 3] = ["ballista-scheduler", "ballista-executor", "ballista-cli"];

/// The executor that is killed.
const KILLED: &str = "n2";

/// Time limit of each program that counts.
const QUERY_MOST: Duration = Duration::from_secs(3600);

/// Time limit of the query during which an executor is killed. The scheduler notices the loss of an
/// executor only after 30 s.
const KILLED_MOST: Duration = Duration::from_secs(180);

/// A script that counts with DuckDB. Its arguments are the SQL text, the directories of both data
/// sets, and the memory limit in MiB.
const DUCKDB: &str = "
import duckdb, json, sys
sql, before, after, memory = sys.argv[1:]
database = duckdb.connect()
database.execute('SET enable_progress_bar = false')
database.execute(f\"SET memory_limit = '{memory}MiB'\")
for name, directory in (('before', before), ('after', after)):
    database.execute(f\"CREATE VIEW {name} AS SELECT * FROM '{directory}/parts/*.parquet'\")
answer = database.execute(sql)
names = [column[0] for column in answer.description]
print(json.dumps(dict(zip(names, map(int, answer.fetchone())))))
";

/// Options of the comparison.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Number of entries in each snapshot
    #[arg(long, value_name = "N", default_value_t = 50_000_000)]
    entries: u64,
    /// Number of parts of each data set
    #[arg(long, value_name = "N", default_value_t = 64)]
    parts: u16,
    /// Memory limit of each executor and of each other program, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 4096)]
    memory: u64,
    /// Directory of the data sets, which are kept. Existing ones are used again
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/fslab-cluster-sql")]
    dir: PathBuf,
}

/// Stops the executors and removes their files and control groups.
pub fn down() -> Result<()> {
    cluster()?.down()?;
    Groups::of_machine().remove()
}

/// Returns this user's only cluster of Ballista.
fn cluster() -> Result<Cluster> {
    Cluster::of_user("cluster-sql")
}

/// The counts of a diff, by name.
type Counts = BTreeMap<String, i64>;

impl Args {
    /// Runs the comparison. The nodes and their control groups are removed afterwards.
    pub fn run(&self) -> Result<()> {
        // These requirements are checked before the long builds.
        let cluster = cluster()?;
        cluster.prepare()?;
        let groups = Groups::of_machine();
        let ran = groups.make(self.memory).and_then(|()| self.count(&cluster, &groups));
        let ended = cluster.end_all();
        let removed = groups.remove();
        match ran.and(ended).and(removed) {
            Ok(()) => cluster.down(),
            Err(error) => Err(error.context(format!("logs are in {}", cluster.state().display()))),
        }
    }

    fn count(&self, cluster: &Cluster, groups: &Groups) -> Result<()> {
        let programs = Programs::prepare()?;
        let sets = self.data_sets(&programs)?;
        let diff = process::capture(Command::new(&programs.fslab).args(["sql", "--show", "diff"]))?;
        let query = Query { sets, sql: diff, memory_mib: self.memory };
        let wanted = query.by_fslab(&programs)?;
        query.by_others(&programs, &wanted)?;
        query.on_ballista(cluster, groups, &programs, &wanted)
    }

    /// Makes both data sets, unless the directory contains them.
    fn data_sets(&self, programs: &Programs) -> Result<[PathBuf; 2]> {
        let at = |name: &str| self.dir.join(format!("{name}-{}-{}", self.entries, self.parts));
        let sets = [at("before"), at("after")];
        let is_missing = |set: &&PathBuf| !set.join("manifest.json").is_file();
        if !sets.iter().any(|set| is_missing(&set)) {
            return Ok(sets);
        }
        fs::create_dir_all(&self.dir).with_context(|| self.dir.display().to_string())?;
        println!("cluster sql: making snapshots of {} entries", self.entries);
        let snapshots = [at("before.parquet"), at("after.parquet")];
        let mut make = Command::new(&programs.fslab);
        make.args(["age", "snapshot", "--synthetic", &self.entries.to_string()]).args(&snapshots);
        process::run_ok(&mut make)?;
        for (snapshot, set) in snapshots.iter().zip(&sets).filter(|(_, set)| is_missing(set)) {
            let mut create = Command::new(&programs.fslab);
            create.args(["dataset", "create"]).arg(snapshot).arg("-o").arg(set);
            process::run_ok(create.args(["--parts", &self.parts.to_string()]))?;
        }
        snapshots.iter().try_for_each(fs::remove_file)?;
        Ok(sets)
    }
}

/// The programs that count.
struct Programs {
    fslab: PathBuf,
    engine: PathBuf,
    ballista: PathBuf,
    python: PathBuf,
}

impl Programs {
    /// Builds and installs optimised programs.
    fn prepare() -> Result<Self> {
        if !setup::install(setup::Purpose::Sql)?.is_empty() {
            bail!("a requirement is missing");
        }
        let root = environment::workspace_root();
        let release = environment::target_directory()?.join("release");
        println!("cluster sql: building fslab, fslab-sql and Ballista {VERSION}");
        let build = ["build", "--release", "--locked", "--package", "fslab"];
        process::run_ok(environment::cargo().args(build))?;
        let mut engine = environment::cargo();
        engine.current_dir(root.join("crates/fslab-sql")).args(["build", "--release", "--locked"]);
        let target = environment::target_directory()?.join("fslab-sql");
        process::run_ok(engine.env("CARGO_TARGET_DIR", &target))?;
        // `fslab sql` finds the engine next to itself.
        fs::copy(target.join("release/fslab-sql"), release.join("fslab-sql"))?;
        let ballista = environment::tools()?.join("bin");
        // The programs share some of their dependencies, so they are built in one directory.
        let shared = environment::target_directory()?.join("ballista");
        let shared = shared.to_str().context("a path is not UTF-8")?;
        for program in PROGRAMS {
            if !ballista.join(program).is_file() {
                setup::cargo_install(program, VERSION, &["--target-dir", shared])?;
            }
        }
        let python = environment::tools()?.join("python/bin/python3");
        let (fslab, engine) = (release.join("fslab"), release.join("fslab-sql"));
        Ok(Self { fslab, engine, ballista, python })
    }
}

/// Two data sets, and the SQL text that compares them.
struct Query {
    sets: [PathBuf; 2],
    sql: String,
    memory_mib: u64,
}

impl Query {
    /// Counts the changes with `fslab age diff`.
    fn by_fslab(&self, programs: &Programs) -> Result<Counts> {
        let mut diff = Command::new(&programs.fslab);
        diff.args(["age", "diff", "--json"]).args(&self.sets);
        let counts = measure("fslab age diff", &mut diff)?;
        for (name, count) in &counts {
            println!("  {name}: {count}");
        }
        Ok(counts)
    }

    /// Counts the changes with `fslab sql` and DuckDB. The counts must equal `wanted`.
    fn by_others(&self, programs: &Programs, wanted: &Counts) -> Result<()> {
        let [before, after] = &self.sets;
        ensure!(programs.engine.is_file(), "{} is missing", programs.engine.display());
        let mut sql = Command::new(&programs.fslab);
        sql.args(["sql", "--named", "diff", "--json"]);
        sql.args(["--memory", &format!("{}MiB", self.memory_mib)]);
        sql.arg(format!("before={}", before.display()));
        sql.arg(format!("after={}", after.display()));
        equal("fslab sql", &measure("fslab sql", &mut sql)?, wanted)?;
        let mut duckdb = Command::new(&programs.python);
        duckdb.args(["-c", DUCKDB, &self.sql]).args(&self.sets).arg(self.memory_mib.to_string());
        equal("DuckDB", &measure("DuckDB", &mut duckdb)?, wanted)
    }

    /// Counts the changes with Ballista on two nodes, and again while one of them is killed.
    fn on_ballista(
        &self,
        cluster: &Cluster,
        groups: &Groups,
        programs: &Programs,
        wanted: &Counts,
    ) -> Result<()> {
        self.start(cluster, groups, programs)?;
        let whole = Instant::now();
        let mut query = self.ballista_query(cluster, programs)?;
        equal("Ballista", &measure("Ballista, two executors", &mut query)?, wanted)?;
        let elapsed = whole.elapsed();
        for (name, _) in &NODES[1..] {
            let node = cluster.state().join(name);
            println!(
                "  {name}: at most {} MiB in its control group with caches, {} MiB of shuffles, \
                 {} MiB spilled, {} MiB of temporary files left",
                groups.peak(name)? >> 20,
                size_of(&node.join("work"))? >> 20,
                spilled(&fs::read_to_string(node.join("node.log"))?) >> 20,
                size_of(&node.join("tmp"))? >> 20
            );
        }
        self.kill_in_the_middle(cluster, programs, elapsed, wanted)?;
        // A scheduler that lost an executor may have too few slots for tasks.
        cluster.end_all()?;
        self.start(cluster, groups, programs)?;
        let mut again = self.ballista_query(cluster, programs)?;
        let name = "Ballista, started again";
        equal(name, &measure(name, &mut again)?, wanted)
    }

    /// Starts the scheduler and the executors, and waits until they are ready.
    fn start(&self, cluster: &Cluster, groups: &Groups, programs: &Programs) -> Result<()> {
        let half = (self.memory_mib << 20) / 2;
        let variables = format!(
            "programs='{}' groups='{}' pool={half}\n",
            programs.ballista.display(),
            groups.prefix.display()
        );
        cluster.start_all(&(variables + ROLE))?;
        for (name, address) in &NODES[1..] {
            wait_for(&format!("the executor on {name} is ready"), || {
                let mut curl = cluster.command("curl")?;
                let url = format!("http://{address}:50053/readyz");
                Ok(process::output(curl.args(["-fs", &url]))?.status.success())
            })?;
        }
        Ok(())
    }

    /// Kills an executor after half of the query's usual time. The query may then fail or exceed
    /// its time limit, but it must not return other counts.
    fn kill_in_the_middle(
        &self,
        cluster: &Cluster,
        programs: &Programs,
        elapsed: Duration,
        wanted: &Counts,
    ) -> Result<()> {
        let mut query = self.ballista_query(cluster, programs)?;
        let outcome = thread::scope(|scope| {
            let killing = scope.spawn(|| {
                thread::sleep(elapsed / 2);
                let at = Instant::now();
                cluster.kill(KILLED).map(|()| at)
            });
            let outcome = measure_within("Ballista, one executor killed", &mut query, KILLED_MOST);
            let ended = Instant::now();
            match killing.join() {
                Ok(killed) => {
                    ensure!(killed? < ended, "the query ended before {KILLED} was killed");
                    Ok(outcome)
                }
                Err(_) => bail!("the thread that kills {KILLED} panicked"),
            }
        })?;
        match outcome {
            Err(error) if process::interrupted() => return Err(error),
            Ok(counts) => equal("Ballista with one executor killed", &counts, wanted)?,
            Err(error) => println!("  the query failed after {KILLED} was killed: {error:#}"),
        }
        Ok(())
    }

    fn ballista_query(&self, cluster: &Cluster, programs: &Programs) -> Result<Command> {
        let [before, after] = &self.sets;
        let file = cluster.state().join("diff.sql");
        let mut text = String::new();
        for (name, set) in [("before", before), ("after", after)] {
            let parts = fs::canonicalize(set.join("parts"))?;
            text += &format!(
                "CREATE EXTERNAL TABLE {name} STORED AS PARQUET LOCATION '{}/';\n",
                parts.display()
            );
        }
        text += &format!("{};\n", self.sql.trim_end());
        fs::write(&file, text)?;
        let program = programs.ballista.join("ballista-cli");
        let mut query = cluster.command(program.to_str().context("a path is not UTF-8")?)?;
        query.args(["--host", NODES[0].1, "--port", "50050", "--quiet", "--format", "json"]);
        query.arg("--file").arg(file);
        Ok(query)
    }
}

fn equal(name: &str, found: &Counts, wanted: &Counts) -> Result<()> {
    ensure!(found == wanted, "{name} counts {found:?}, but `fslab age diff` counts {wanted:?}");
    println!("  the same counts as `fslab age diff`");
    Ok(())
}

/// Returns the bytes that an executor has written to disk for lack of memory, according to its log.
fn spilled(log: &str) -> u64 {
    let numbers = log.split("spilled ").skip(1).filter_map(|rest| rest.split_once(" bytes"));
    numbers.filter_map(|(number, _)| number.parse::<u64>().ok()).sum()
}

/// Runs a program that prints its counts as JSON. Prints its duration and peak memory.
fn measure(name: &str, command: &mut Command) -> Result<Counts> {
    measure_within(name, command, QUERY_MOST)
}

/// Runs a program like [`measure`], and ends it after a time limit.
fn measure_within(name: &str, command: &mut Command, limit: Duration) -> Result<Counts> {
    let mut log = tempfile::tempfile()?;
    let start = Instant::now();
    let mut program = process::background(command, &log)?;
    let mut peak = 0;
    while !program.has_ended()? {
        if process::interrupted() {
            bail!("interrupted");
        }
        if start.elapsed() > limit {
            bail!("{name} did not end within {} s", limit.as_secs());
        }
        peak = peak.max(peak_memory_kib(program.pid().as_raw_nonzero().get()));
        thread::sleep(Duration::from_millis(20));
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("cluster sql: {name}: {seconds:.1} s, at most {} MiB of memory", peak >> 10);
    let mut text = String::new();
    log.rewind()?;
    log.read_to_string(&mut text)?;
    counts(&text).with_context(|| format!("{name} printed: {}", text.trim()))
}

/// Returns the highest peak of resident memory among a process and its descendants, in KiB.
fn peak_memory_kib(process: i32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let own = line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0);
    let children = format!("/proc/{process}/task/{process}/children");
    let children = fs::read_to_string(children).unwrap_or_default();
    let numbers = children.split_whitespace().filter_map(|number| number.parse().ok());
    numbers.map(peak_memory_kib).fold(own, u64::max)
}

/// Returns the counts in the first JSON object of a text.
fn counts(text: &str) -> Result<Counts> {
    let (start, end) = (text.find('{').context("no JSON")?, text.rfind('}').context("no JSON")?);
    let object: Value = serde_json::from_str(text.get(start..=end).context("no JSON")?)?;
    let members = object.as_object().context("the answer is not an object")?;
    let number = |(name, value): (&String, &Value)| {
        let number = value.as_i64().with_context(|| format!("{name} is not a number"))?;
        Ok((name.clone(), number))
    };
    members.iter().map(number).collect()
}

/// A control group for each executor, which limits its memory.
struct Groups {
    /// The start of each group's path; `-` and the name of the node follow.
    prefix: PathBuf,
    is_version_1: bool,
}

impl Groups {
    /// Returns the groups of this machine, which may not exist yet. Their names are fixed.
    fn of_machine() -> Self {
        let (first, second) = ("/sys/fs/cgroup/memory", "/sys/fs/cgroup");
        let is_version_1 = Path::new(first).is_dir();
        let root = Path::new(if is_version_1 { first } else { second });
        Self { prefix: root.join("fslab-sql"), is_version_1 }
    }

    /// Makes the groups. Those of an earlier run are removed first.
    fn make(&self, memory_mib: u64) -> Result<()> {
        self.remove()?;
        let limit = if self.is_version_1 { "memory.limit_in_bytes" } else { "memory.max" };
        for (name, _) in &NODES[1..] {
            let group = self.path(name);
            fs::create_dir(&group)
                .and_then(|()| fs::write(group.join(limit), (memory_mib << 20).to_string()))
                .with_context(|| format!("memory can't be limited by {}", group.display()))?;
        }
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        let mut path = self.prefix.clone().into_os_string();
        path.push(format!("-{name}"));
        path.into()
    }

    /// Returns the peak memory of an executor in bytes, including the page cache.
    fn peak(&self, name: &str) -> Result<u64> {
        let file = if self.is_version_1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        let text = fs::read_to_string(self.path(name).join(file))?;
        text.trim().parse().with_context(|| format!("{file} contains '{}'", text.trim()))
    }

    /// Removes the groups. Their processes must have ended.
    fn remove(&self) -> Result<()> {
        for (name, _) in &NODES[1..] {
            let group = self.path(name);
            if group.is_dir() {
                // An interrupt does not end the wait, so that no group remains.
                let what = "the control groups are empty";
                wait(what, || Ok(fs::remove_dir(&group).is_ok()), || false)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::spilled;

    /// The log lines were printed by Ballista 55.0.0.
    #[test]
    fn spilled_bytes_of_a_log_are_summed() {
        let log = "WARN writer: Sort shuffle spill: job=1 stage=0 input_partition=0 spilled \
                   216357304 bytes in 272 batches (1 events)\nINFO other\n\
                   WARN writer: Sort shuffle spill: job=1 stage=1 spilled 6 bytes in 1 batches\n";
        assert_eq!(spilled(log), 216_357_310);
        assert_eq!(spilled("INFO nothing"), 0);
    }
}
