//! `fslab tier export`: writes the files of a tier as a data set.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use fslab_dataset::{
    Cell, Column, Encoding, Kind, PARTS_MAX, Partition, Schema, Writer, facts_of, part_of, readable,
};
use fslab_tier::command::{ArchivedVersion, Command, Event, ExportedFile};

use super::access::Access;
use super::show::Detail;
use crate::commands::dataset_counts::print;
use crate::exit::Code;
use crate::output::harmless;
use crate::progress::Progress;

/// Arguments of `fslab tier export`.
#[derive(Debug, clap::Args)]
pub struct Export {
    /// The directory of the new data set, which must not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// The number of Parquet files
    #[arg(long, value_name = "COUNT", default_value_t = 16,
          value_parser = clap::value_parser!(u16).range(1..=PARTS_MAX as i64))]
    parts: u16,
    /// The tree, or a directory in it
    tree: PathBuf,
}

/// The columns of data sets of tiers.
pub const SCHEMA: Schema = Schema {
    kind: "tier",
    version: 1,
    partition: Partition::Inode,
    columns: Cow::Borrowed(&[
        Column::new("inode", Kind::I64),
        Column::new("links", Kind::I64),
        Column::new("path_bytes", Kind::Bytes).encoded(Encoding::Plain),
        Column::new("path", Kind::Text).encoded(Encoding::Plain),
        Column::new("size", Kind::I64),
        Column::new("allocated", Kind::I64),
        Column::new("resident", Kind::I64),
        Column::new("state", Kind::Text),
        Column::new("pinned", Kind::Bool),
        Column::new("uid", Kind::I64),
        Column::new("gid", Kind::I64),
        Column::new("modified", Kind::Time),
        Column::new("accessed", Kind::Time),
        Column::new("object", Kind::Text).encoded(Encoding::Plain).nullable(),
        Column::new("container", Kind::Text).nullable(),
        Column::new("object_offset", Kind::I64).nullable(),
        Column::new("object_length", Kind::I64).nullable(),
        Column::new("archived_size", Kind::I64).nullable(),
        Column::new("archived_modified", Kind::Time).nullable(),
        Column::new("copies", Kind::I32),
        Column::new("archives", Kind::Text).nullable(),
    ]),
};

/// An export in progress.
struct Exporting {
    writer: Writer,
    parts: usize,
    progress: Progress,
    /// Number of files that could not be examined.
    problems: u64,
    /// The error that ended the command or made the data set fail.
    error: Option<anyhow::Error>,
}

impl Export {
    /// Writes the data set. If some files could not be examined, the data set is kept but the
    /// command fails.
    pub fn run(self, detail: Detail) -> Result<()> {
        let start = Instant::now();
        let (access, paths) = Access::to_all(std::slice::from_ref(&self.tree))?;
        let facts = facts_of(&[("source", self.tree.display().to_string())]);
        let parts = usize::from(self.parts);
        let writer = Writer::create(&self.output, &SCHEMA, parts, facts)?;
        let progress = Progress::new("exported", !detail.is_text());
        let mut exporting = Exporting { writer, parts, progress, problems: 0, error: None };
        access.ask(&Command::Export { paths }, &mut |event| exporting.take(event))?;
        let Exporting { mut writer, progress, problems, error, .. } = exporting;
        progress.finish();
        if let Some(error) = error {
            return Err(error);
        }
        writer.set_fact("missing_files", problems.to_string());
        let manifest = writer.finish()?;
        match detail {
            Detail::Json => print(&manifest, start, true),
            Detail::Files | Detail::Sums => print(&manifest, start, false),
            Detail::Errors => {}
        }
        if problems > 0 {
            bail_as!(Failure, "the data set lacks {problems} files that could not be examined");
        }
        Ok(())
    }
}

impl Exporting {
    /// Handles an event. Returns `false` to stop the command.
    fn take(&mut self, event: Event) -> bool {
        match event {
            Event::Exported(file) => match self.push(&file) {
                Ok(()) => {
                    let path = fslab_tier::shown(&file.path);
                    self.progress.add(path.as_ref(), file.size);
                }
                Err(error) => self.error = Some(error),
            },
            Event::Problem { what } => {
                self.problems += 1;
                self.progress.print(|| eprintln!("fslab: {}", harmless(&what)));
            }
            Event::End { error: Some(error), code } if self.error.is_none() => {
                let code = Some(Code::numbered(code)).filter(|code| *code != Code::Success);
                self.error = Some(code.unwrap_or(Code::Failure).error(error));
            }
            _ => {}
        }
        self.error.is_none()
    }

    fn push(&mut self, file: &ExportedFile) -> Result<()> {
        let path = readable(&file.path);
        let version = file.version.as_ref();
        let wide = |number: u64| -> Result<Cell<'static>> {
            let number = i64::try_from(number).ok();
            let shown = || Code::Failure.error(format!("{path}: a number exceeds 63 bits"));
            number.map(Cell::Number).ok_or_else(shown)
        };
        let of_version = |number: fn(&ArchivedVersion) -> u64| {
            version.map_or(Ok(Cell::Null), |version| wide(number(version)))
        };
        let [object, container] = [
            version.map(|version| version.object.to_string()),
            version.map(|version| version.container.to_string()),
        ];
        let copies = version.map_or(0, |version| version.archives.len());
        let archives = version.map(|version| {
            let archives: Vec<_> = version.archives.iter().map(ToString::to_string).collect();
            archives.join(" ")
        });
        let [object, container, archives] = [&object, &container, &archives]
            .map(|text| Cell::bytes(text.as_ref().map(|text| text.as_bytes())));
        let row = [
            wide(file.inode)?,
            Cell::Number(file.links.into()),
            Cell::Bytes(&file.path),
            Cell::Bytes(path.as_bytes()),
            wide(file.size)?,
            wide(file.allocated_bytes)?,
            wide(file.resident_bytes)?,
            Cell::Bytes(file.state.name().as_bytes()),
            Cell::Bool(file.pinned),
            Cell::Number(file.uid.into()),
            Cell::Number(file.gid.into()),
            Cell::Number(file.modified_ns),
            Cell::Number(file.accessed_ns),
            object,
            container,
            of_version(|version| version.offset)?,
            of_version(|version| version.length)?,
            of_version(|version| version.size)?,
            Cell::number(version.map(|version| version.modified_ns)),
            Cell::Number(copies as i64),
            archives,
        ];
        Ok(self.writer.push(part_of(file.inode, self.parts), &row)?)
    }
}
