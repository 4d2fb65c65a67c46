//! `fslab sql`: queries data sets. The SQL engine is a separate program, `fslab-sql`.

mod engine;
mod named;

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::num::NonZeroUsize;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use fslab_dataset::{Manifest, Output, PartReader, Query, Table};
use fslab_vfs::Size;

use super::dataset::schema_of;
use named::NamedQuery;

/// Default memory limit of the engine.
const MEMORY_DEFAULT: &str = "1GiB";

/// Minimum memory limit of the engine.
const MEMORY_MIN: Size = Size::mib(64);

/// Arguments of `fslab sql`.
#[derive(Debug, clap::Args)]
#[command(override_usage = "fslab sql [OPTIONS] QUERY [NAME=]DIR...\n       \
                            fslab sql [OPTIONS] --named QUERY-NAME [NAME=]DIR...\n       \
                            fslab sql --list | --show QUERY-NAME")]
pub struct Args {
    /// A SELECT statement; `-` reads it from standard input
    #[arg(value_name = "QUERY", required_unless_present_any = ["named", "list", "show"])]
    query: Option<OsString>,
    /// The directory of a data set, and the name of its table [default: the kind of the data set]
    #[arg(value_name = "[NAME=]DIR")]
    tables: Vec<OsString>,
    /// Run this named query
    #[arg(long, value_name = "QUERY-NAME", conflicts_with_all = ["list", "show"])]
    named: Option<String>,
    /// List the named queries
    #[arg(long, conflicts_with_all = ["query", "tables", "show"])]
    list: bool,
    /// Print the SQL text of a named query
    #[arg(long, value_name = "QUERY-NAME", conflicts_with_all = ["query", "tables"])]
    show: Option<String>,
    /// Memory limit of the SQL engine, at least 64MiB; beyond it, the engine uses temporary files
    #[arg(long, value_name = "SIZE", default_value = MEMORY_DEFAULT)]
    memory: Size,
    /// Number of threads [default: the number of processors]
    #[arg(short, long, value_name = "N")]
    threads: Option<NonZeroUsize>,
    /// Directory for temporary files, which have no names [default: $TMPDIR or /var/tmp]
    #[arg(long, value_name = "DIR")]
    temporary: Option<PathBuf>,
    /// Print one JSON object per row, or the list of named queries as JSON
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a header line
    #[arg(long, conflicts_with = "list")]
    csv: bool,
}

impl Args {
    /// Runs the query and prints its answer, or prints the named queries.
    pub fn run(self) -> Result<()> {
        if self.list {
            return named::list(self.json);
        }
        if let Some(name) = &self.show {
            crate::output::print(named::find(name)?.text);
            return Ok(());
        }
        engine::answer(&self.to_query()?)
    }

    fn to_query(&self) -> Result<Query> {
        if self.memory < MEMORY_MIN {
            bail_as!(BadInput, "--memory {}: the engine needs at least 64 MiB", self.memory);
        }
        let (sql, tables) = match &self.named {
            Some(name) => {
                let query = named::find(name)?;
                // With --named, the first argument is a table like the others.
                let tables = tables(self.query.iter().chain(&self.tables), Some(query))?;
                (query.text.to_owned(), tables)
            }
            None => {
                let query = self.query.as_deref().unwrap_or_default();
                (text_of(query)?, tables(self.tables.iter(), None)?)
            }
        };
        let threads = match self.threads {
            Some(threads) => threads,
            None => std::thread::available_parallelism().context("the number of processors")?,
        };
        Ok(Query {
            sql,
            tables,
            memory_bytes: self.memory.bytes(),
            threads: threads.get(),
            temporary: self.temporary_directory()?,
            output: match (self.json, self.csv) {
                (true, _) => Output::Json,
                (_, true) => Output::Csv,
                _ => Output::Table,
            },
        })
    }

    /// Returns the directory for temporary files. The default is `/var/tmp`, because `/tmp` is
    /// often in memory.
    fn temporary_directory(&self) -> Result<PathBuf> {
        let variable = || std::env::var_os("TMPDIR").filter(|path| !path.is_empty());
        let chosen = self.temporary.clone().or_else(|| variable().map(PathBuf::from));
        let path = chosen.unwrap_or_else(|| "/var/tmp".into());
        if !path.is_dir() {
            bail_as!(
                BadInput,
                "{}: there is no such directory for temporary files; choose one with --temporary",
                path.display()
            );
        }
        Ok(path)
    }
}

/// Returns the SQL text of an argument.
fn text_of(argument: &OsStr) -> Result<String> {
    let bytes = if argument == "-" {
        let mut bytes = Vec::new();
        let limit = 1 + (1 << 20);
        std::io::stdin().take(limit).read_to_end(&mut bytes).context("standard input")?;
        bytes
    } else {
        argument.as_bytes().to_vec()
    };
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(_) => bail_as!(BadInput, "the query is not valid UTF-8"),
    }
}

/// Resolves the table arguments. For a named query, checks that they are the tables that it needs.
fn tables<'a>(
    arguments: impl Iterator<Item = &'a OsString>,
    query: Option<&NamedQuery>,
) -> Result<Vec<Table>> {
    let mut found = Vec::<Table>::new();
    for argument in arguments {
        let table = table(argument)?;
        if found.iter().any(|other| other.name == table.name) {
            bail_as!(
                BadInput,
                "two tables are named {}; name one of them, for example before={}",
                table.name,
                table.directory.display()
            );
        }
        found.push(table);
    }
    if found.is_empty() && query.is_none() {
        bail_as!(BadInput, "no data set is given; add [NAME=]DIR after the query");
    }
    for needed in query.into_iter().flat_map(|query| query.tables()) {
        if !found.iter().any(|table| table.name == needed) {
            bail_as!(BadInput, "this named query needs the table {needed}; add {needed}=DIR");
        }
    }
    Ok(found)
}

fn table(argument: &OsStr) -> Result<Table> {
    let (name, path) = split(argument);
    let directory = std::path::absolute(path).with_context(|| path.display().to_string())?;
    let manifest = Manifest::read(&directory)?;
    // Check the columns of the first part against the kind. The engine compares the columns of the
    // other parts with those of the first.
    PartReader::open(&directory, &manifest, 0, &schema_of(&manifest.kind)?)?;
    Ok(Table { name: name.unwrap_or(manifest.kind), directory })
}

/// Splits `NAME=DIR`. Without a valid name before the first `=`, the whole argument is a directory.
fn split(argument: &OsStr) -> (Option<String>, &Path) {
    let bytes = argument.as_bytes();
    let parts = bytes.iter().position(|byte| *byte == b'=').map(|at| bytes.split_at(at));
    match parts {
        Some((name, path)) if is_name(name) => {
            let name = String::from_utf8_lossy(name).into_owned();
            (Some(name), Path::new(OsStr::from_bytes(&path[1..])))
        }
        _ => (None, Path::new(argument)),
    }
}

fn is_name(name: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_lowercase() || *byte == b'_';
    name.first().is_some_and(is_letter)
        && name.iter().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn name_of_a_table_ends_at_the_first_equals_sign() {
        for (argument, name, path) in [
            ("before=/a", Some("before"), "/a"),
            ("a=b=c", Some("a"), "b=c"),
            ("./a=b", None, "./a=b"),
            ("A=b", None, "A=b"),
            ("1a=b", None, "1a=b"),
            ("=b", None, "=b"),
            ("/a", None, "/a"),
        ] {
            let (found, directory) = split(OsStr::new(argument));
            assert_eq!((found.as_deref(), directory), (name, Path::new(path)), "{argument}");
        }
    }

    #[test]
    fn query_must_be_text() {
        let error = text_of(&OsString::from_vec(vec![0xff])).unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
        assert_eq!(text_of(OsStr::new("SELECT 1")).unwrap(), "SELECT 1");
    }
}
