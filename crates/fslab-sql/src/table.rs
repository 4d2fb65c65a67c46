//! A data set as a table of the engine. Only the files that the manifest lists belong to the table.

use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::{DataFusionError, Result as EngineResult, Statistics};
use datafusion::datasource::TableType;
use datafusion::datasource::file_format::parquet::transform_schema_to_view;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, ParquetSource, parquet::CachedParquetFileReaderFactory,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnv;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::{ExecutionPlan, Partitioning};
use fslab_dataset::{Manifest, Part, check_sizes, read_footer};
use object_store::local::LocalFileSystem;
use object_store::path::Path as StorePath;
use object_store::{ObjectMeta, ObjectStore};
use parquet::arrow::parquet_to_arrow_schema;
use parquet::file::metadata::ParquetMetaData;

use crate::error::{Error, Result};

/// The column whose hash determines the part of a row.
const INODE: &str = "inode";

/// A data set.
#[derive(Debug)]
pub struct DataSet {
    manifest: Manifest,
    schema: SchemaRef,
    paths: Vec<PathBuf>,
    /// The columns whose sizes were checked; `None` before the first check.
    checked: Mutex<Option<BTreeSet<usize>>>,
    files: Vec<PartitionedFile>,
    statistics: Statistics,
    readers: Arc<CachedParquetFileReaderFactory>,
    /// Whether parts with the same number contain the same inodes in all tables. If so, joins by
    /// inode need no exchange of rows between partitions.
    is_aligned: bool,
}

impl DataSet {
    /// Opens a data set and checks the footers of its parts. The sizes of the columns that a
    /// statement reads are checked before they are read.
    ///
    /// # Errors
    /// Fails if the directory is not a data set, or if a part is missing or damaged, or has other
    /// columns than the first part.
    pub fn open(directory: &Path, runtime: &RuntimeEnv, threads: usize) -> Result<Self> {
        let manifest = Manifest::read(directory)?;
        let paths: Vec<_> = manifest.parts.iter().map(|part| directory.join(&part.file)).collect();
        let read = side_by_side(paths.len(), threads, |number| read_footer(&paths[number]));
        let mut parts = Vec::new();
        for ((path, part), metadata) in paths.into_iter().zip(&manifest.parts).zip(read) {
            let metadata = metadata?;
            check_part(&path, part, &metadata)?;
            if let Some((_, first)) = parts.first() {
                check_columns(&path, &metadata, first)?;
            }
            parts.push((path, metadata));
        }
        let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
        let cache = runtime.cache_manager.get_file_metadata_cache();
        let readers = Arc::new(CachedParquetFileReaderFactory::new(store, cache));
        Self::of_parts(directory, manifest, parts, readers)
    }

    fn of_parts(
        directory: &Path,
        manifest: Manifest,
        footers: Vec<(PathBuf, ParquetMetaData)>,
        readers: Arc<CachedParquetFileReaderFactory>,
    ) -> Result<Self> {
        let unfit = |error: DataFusionError| damaged(directory, &error);
        let Some((_, first)) = footers.first() else {
            return Err(damaged(directory, &"it has no part"));
        };
        // The Arrow schema in the footer is ignored; the Parquet columns determine the schema.
        let stored = parquet_to_arrow_schema(first.file_metadata().schema_descr(), None)
            .map_err(|error| damaged(directory, &error))?;
        let (schema, stored) = (Arc::new(transform_schema_to_view(&stored)), Arc::new(stored));
        let mut files = Vec::new();
        let mut each = Vec::new();
        for ((path, metadata), part) in footers.iter().zip(&manifest.parts) {
            let found = DFParquetMetadata::statistics_from_parquet_metadata(metadata, &schema);
            let found = Arc::new(found.map_err(unfit)?);
            each.push(Arc::clone(&found));
            let file = PartitionedFile::from(object_of(path, part)?).with_statistics(found);
            files.push(PartitionedFile { arrow_schema: Some(Arc::clone(&stored)), ..file });
        }
        let statistics = Statistics::try_merge_iter(each.iter().map(|one| &**one), &schema);
        let statistics = statistics.map_err(unfit)?;
        let paths = footers.into_iter().map(|(path, _)| path).collect();
        let (checked, is_aligned) = (Mutex::default(), false);
        Ok(Self { manifest, schema, paths, checked, files, statistics, readers, is_aligned })
    }

    /// Checks the sizes of these columns in all parts, unless they were checked before.
    fn check(&self, columns: Option<&Vec<usize>>, threads: usize) -> Result<()> {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted: BTreeSet<_> = match columns {
            Some(columns) => columns.iter().copied().collect(),
            None => (0..self.schema.fields().len()).collect(),
        };
        if checked.as_ref().is_some_and(|checked| wanted.is_subset(checked)) {
            return Ok(());
        }
        // The footers are read again: keeping all of them might need much memory.
        let checks = side_by_side(self.paths.len(), threads, |number| {
            let path = &self.paths[number];
            let footer = read_footer(path)?;
            let file = footer.file_metadata().schema_descr();
            // A list column of the table consists of several columns in the file.
            check_sizes(path, &footer, |leaf| wanted.contains(&file.get_column_root_idx(leaf)))
        });
        checks.into_iter().collect::<std::result::Result<(), _>>()?;
        checked.get_or_insert_default().extend(wanted);
        Ok(())
    }

    /// Sets whether parts with the same number contain the same inodes in all tables.
    pub fn align(&mut self, is_aligned: bool) {
        self.is_aligned = is_aligned;
    }

    /// Returns groups of files, which the engine reads in parallel, and the partitioning of the
    /// rows if it is known.
    fn groups(&self, threads: usize) -> (Vec<FileGroup>, Option<Partitioning>) {
        let inode = self.schema.index_of(INODE).ok().filter(|_| self.is_aligned);
        if let Some(index) = inode {
            let groups: Vec<_> =
                self.files.iter().map(|file| FileGroup::new(vec![file.clone()])).collect();
            let count = groups.len();
            let partitioning = Partitioning::Hash(vec![Arc::new(Column::new(INODE, index))], count);
            return (groups, Some(partitioning));
        }
        // The engine splits these groups further, by row groups.
        (FileGroup::new(self.files.clone()).split_files(threads.max(1)), None)
    }
}

#[async_trait]
impl TableProvider for DataSet {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> EngineResult<Vec<TableProviderFilterPushDown>> {
        // A scan uses filters only to skip whole row groups by their statistics. The engine must
        // apply the filters again to each row.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        _filters: &[Expr],
        limit: Option<usize>,
    ) -> EngineResult<Arc<dyn ExecutionPlan>> {
        let threads = state.config().target_partitions();
        self.check(projection, threads)?;
        let mut options = state.table_options().parquet.clone();
        // Page indexes and bloom filters are not read: fslab writes neither, and their sizes are
        // not checked.
        options.global.enable_page_index = false;
        options.global.bloom_filter_on_read = false;
        let readers = Arc::clone(&self.readers);
        let source = ParquetSource::new(self.schema())
            .with_table_parquet_options(options)
            .with_parquet_file_reader_factory(readers);
        let (groups, partitioning) = self.groups(threads);
        let url = ObjectStoreUrl::local_filesystem();
        let scan = FileScanConfigBuilder::new(url, Arc::new(source))
            .with_file_groups(groups)
            .with_statistics(self.statistics.clone())
            .with_projection_indices(projection.cloned())?
            .with_limit(limit)
            .with_output_partitioning(partitioning)
            .build();
        Ok(DataSourceExec::from_data_source(scan))
    }

    fn statistics(&self) -> Option<Statistics> {
        Some(self.statistics.clone())
    }
}

/// Returns whether parts with the same number contain the same inodes in all these data sets.
pub fn are_aligned(sets: &HashMap<String, DataSet>) -> bool {
    let mut counts = sets
        .values()
        .map(|set| (set.manifest.partition == INODE).then_some(set.manifest.parts.len()));
    let Some(Some(first)) = counts.next() else { return false };
    first > 1 && sets.len() > 1 && counts.all(|count| count == Some(first))
}

/// Calls `work` with each number from 0 to `count - 1`, in several threads.
fn side_by_side<T: Send + Sync>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results: Vec<_> = (0..count).map(|_| OnceLock::new()).collect();
    std::thread::scope(|scope| {
        for _ in 0..threads.min(count) {
            scope.spawn(|| {
                while let Some(number) =
                    Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count)
                {
                    results[number].get_or_init(|| work(number));
                }
            });
        }
    });
    results.into_iter().filter_map(OnceLock::into_inner).collect()
}

fn object_of(path: &Path, part: &Part) -> Result<ObjectMeta> {
    let located = StorePath::from_absolute_path(path).map_err(|error| damaged(path, &error))?;
    let metadata = std::fs::metadata(path).map_err(|error| damaged(path, &error))?;
    let modified = metadata.modified().map_err(|error| damaged(path, &error))?;
    Ok(ObjectMeta {
        location: located,
        last_modified: modified.into(),
        size: part.bytes,
        e_tag: None,
        version: None,
    })
}

fn check_part(path: &Path, part: &Part, metadata: &ParquetMetaData) -> Result<()> {
    let mut rows = 0_u64;
    for group in metadata.row_groups() {
        let count = u64::try_from(group.num_rows()).ok();
        rows = count.and_then(|count| rows.checked_add(count)).unwrap_or(u64::MAX);
    }
    if rows == part.rows {
        return Ok(());
    }
    Err(damaged(path, &format!("it has {rows} rows, not {} as in the manifest", part.rows)))
}

fn check_columns(path: &Path, found: &ParquetMetaData, first: &ParquetMetaData) -> Result<()> {
    let columns = |metadata: &ParquetMetaData| {
        metadata.file_metadata().schema_descr().root_schema().get_fields().to_vec()
    };
    if columns(found) == columns(first) {
        return Ok(());
    }
    Err(damaged(path, &"its columns differ from those of the first part"))
}

fn damaged(path: &Path, what: &dyn std::fmt::Display) -> Error {
    let what = what.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    Error::Part { path: path.to_owned(), what: format!("{what}; create the data set again") }
}
