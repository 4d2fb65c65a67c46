//! Runs a query.

use std::collections::HashMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::memory_pool::{FairSpillPool, MemoryPool};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::displayable;
use datafusion::prelude::{DataFrame, SessionConfig, SessionContext};
use fslab_dataset::Query;
use futures_util::StreamExt;

use crate::answer::Answer;
use crate::chain::ChainPartitions;
use crate::error::{Error, Result};
use crate::pool::Halves;
use crate::spill::Unnamed;
use crate::table::{self, DataSet};
use crate::{damage, statement};

/// Memory for work that the engine does not count, such as decoding, in bytes. The process needs
/// this amount once, and once more for each thread.
const UNCOUNTED_BYTES: u64 = 32 << 20;

/// Memory for each thread that performs a sort-merge join, in bytes.
const SORTING_BYTES: u64 = 64 << 20;

/// Memory for each sorted file that is being merged, in bytes. It limits the number of files in one
/// merge, so that several merges can run at the same time.
const MERGED_BYTES: usize = 4 << 20;

/// Stack size for parsing and planning, in bytes. Both recurse once for each operator of a chain
/// such as `a + b + c`.
const STACK_BYTES: usize = 256 << 20;

/// Stack size of each thread that computes the answer, in bytes.
pub(crate) const WORKER_STACK_BYTES: usize = 64 << 20;

/// Runs a query and writes its answer.
///
/// # Errors
/// Fails if a data set can't be used, if the statement is refused or fails, if the memory does not
/// suffice, and if the answer can't be written.
pub fn run(query: &Query, output: &mut (impl Write + Send)) -> Result<()> {
    let mut written = Written { output, has_begun: false };
    match attempt(query, &mut written, Join::Hash) {
        // A hash join can't use temporary files, so the query is run again with sort-merge joins.
        Err(Error::Memory { .. }) if !written.has_begun => {
            attempt(query, &mut written, Join::SortMerge)
        }
        other => other,
    }
}

/// The method of joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Join {
    Hash,
    SortMerge,
}

/// Records whether any output was written. After that, the query can't be run again.
struct Written<'a, W> {
    output: &'a mut W,
    has_begun: bool,
}

impl<W: Write> Write for Written<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.has_begun = true;
        self.output.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.output.flush()
    }
}

fn attempt(query: &Query, output: &mut (impl Write + Send), join: Join) -> Result<()> {
    std::thread::scope(|scope| {
        let answering = std::thread::Builder::new()
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, || on_runtime(query, output, join))
            .map_err(|source| Error::Start { what: "a thread", source })?;
        answering.join().unwrap_or_else(|panic| Err(Error::Panic(text_of(&*panic))))
    })
    .map_err(|error| named(error, query))
}

fn on_runtime(query: &Query, output: &mut (impl Write + Send), join: Join) -> Result<()> {
    let threads = query.threads.max(1);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .max_blocking_threads(2 * threads)
        .thread_stack_size(WORKER_STACK_BYTES)
        .build()
        .map_err(|source| Error::Start { what: "threads", source })?;
    let answered = catch_unwind(AssertUnwindSafe(|| runtime.block_on(answer(query, output, join))));
    // This call does not wait for tasks that are still running.
    runtime.shutdown_background();
    answered.unwrap_or_else(|panic| Err(Error::Panic(text_of(&*panic))))
}

/// Returns the error of a damaged file if there is one, or else the error of the engine.
fn named(error: Error, query: &Query) -> Error {
    if !error.may_be_damage() {
        return error;
    }
    let read = |table: &fslab_dataset::Table| {
        let manifest = fslab_dataset::Manifest::read(&table.directory).ok()?;
        Some((table.directory.clone(), manifest))
    };
    let sets: Vec<_> = query.tables.iter().filter_map(read).collect();
    let named = sets.iter().map(|(directory, manifest)| (directory.as_path(), manifest));
    damage::find(named).unwrap_or(error)
}

fn text_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

async fn answer(query: &Query, output: &mut (impl Write + Send), join: Join) -> Result<()> {
    let failed = |error| Error::of_engine(error, query.memory_bytes);
    let frame = frame(query, join).await?;
    let mut rows = frame.execute_stream().await.map_err(failed)?;
    let mut answer = Answer::new(query.output, &rows.schema(), output)?;
    while let Some(batch) = rows.next().await {
        answer.write(&batch.map_err(failed)?)?;
    }
    answer.finish()
}

/// Opens the data sets and plans the statement.
async fn frame(query: &Query, join: Join) -> Result<DataFrame> {
    let failed = |error| Error::of_engine(error, query.memory_bytes);
    let environment = environment(query, join).map_err(failed)?;
    let mut sets = HashMap::new();
    for one in &query.tables {
        let set = DataSet::open(Path::new(&one.directory), &environment, query.threads)?;
        if sets.insert(one.name.clone(), set).is_some() {
            let what = format!("two tables are named '{0}'; name them: {0}1=DIR", one.name);
            return Err(Error::Statement(what));
        }
    }
    let is_aligned = table::are_aligned(&sets);
    let context = context(query, environment, join);
    for (name, mut set) in sets {
        set.align(is_aligned);
        context.register_table(name.as_str(), Arc::new(set)).map_err(failed)?;
    }
    let plan = statement::plan(&context, &query.sql, query.memory_bytes).await?;
    context.execute_logical_plan(plan).await.map_err(failed)
}

/// Returns the physical plan of a query as text, for tests.
///
/// # Errors
/// Fails in the same cases as [`run`].
#[doc(hidden)]
pub async fn plan_text(query: &Query) -> Result<String> {
    let plan = frame(query, Join::Hash).await?.create_physical_plan().await;
    let plan = plan.map_err(|error| Error::of_engine(error, query.memory_bytes))?;
    Ok(displayable(&*plan).indent(false).to_string())
}

/// Returns the limit for memory that the engine counts. The rest of the query's memory is for
/// allocations that the engine does not count.
fn counted(query: &Query) -> u64 {
    let uncounted = UNCOUNTED_BYTES.saturating_mul(1 + query.threads as u64);
    query.memory_bytes.saturating_sub(uncounted).max(query.memory_bytes / 2)
}

fn environment(query: &Query, join: Join) -> datafusion::error::Result<Arc<RuntimeEnv>> {
    let counted = counted(query).try_into().unwrap_or(usize::MAX);
    let pool: Arc<dyn MemoryPool> = match join {
        Join::Hash => Arc::new(FairSpillPool::new(counted)),
        Join::SortMerge => Arc::new(Halves::new(counted)),
    };
    let files = Arc::new(Unnamed::new(query.temporary.clone()));
    let mut disk = DiskManagerBuilder::default().with_mode(DiskManagerMode::Custom(files));
    if join == Join::SortMerge {
        // Without this limit, the first sort that merges its files would take all memory for
        // merges.
        disk = disk.with_max_spill_merge_fan_in((counted / MERGED_BYTES).clamp(4, 256));
    }
    RuntimeEnvBuilder::new().with_memory_pool(pool).with_disk_manager_builder(disk).build_arc()
}

fn context(query: &Query, environment: Arc<RuntimeEnv>, join: Join) -> SessionContext {
    let (threads, batch_rows) = match join {
        Join::Hash => (query.threads.max(1), 8192),
        // Each thread merges several sorted files and keeps one batch of each in memory. With only
        // one partition, the engine would choose a hash join again.
        Join::SortMerge => {
            let fitting = (counted(query) / SORTING_BYTES) as usize;
            (fitting.clamp(2, query.threads.max(2)), 1024)
        }
    };
    let mut config =
        SessionConfig::new().with_target_partitions(threads).with_batch_size(batch_rows);
    let options = config.options_mut();
    options.optimizer.prefer_hash_join = join == Join::Hash;
    // Each sort reserves this amount, and several sorts run in each thread.
    let reserved = counted(query) / (16 * threads as u64);
    options.execution.sort_spill_reservation_bytes = reserved.min(10 << 20) as usize;
    // These filters wait for all partitions of a join, but `Chain` runs the partitions one after
    // another.
    options.optimizer.enable_join_dynamic_filter_pushdown = false;
    let state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment)
        .with_default_features()
        .with_physical_optimizer_rule(Arc::new(ChainPartitions))
        .build();
    SessionContext::new_with_state(state)
}
