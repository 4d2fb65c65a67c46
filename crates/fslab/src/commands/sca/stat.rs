//! `fslab sca stat`: shows sizes and compression ratios of stored files, with totals for
//! directories.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use fslab_sca::Figures;
use fslab_vfs::Size;
use serde_json::{Value, json};

use super::walk;
use crate::output::{plain_table, print_figures};
use crate::progress::Progress;
use crate::units::{self, counted};

/// Arguments of `fslab sca stat`.
#[derive(Debug, clap::Args)]
pub struct Stat {
    /// Stored files, or directories of them, by their paths in the lower directory
    #[arg(required = true)]
    pub(super) paths: Vec<PathBuf>,
    /// Print the figures of each file, including those in directories
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON: the totals, and the figures of each file if --verbose is given or no path is a
    /// directory
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Default)]
struct Sums {
    files: u64,
    size: u64,
    stored_bytes: u64,
    allocated_bytes: u64,
    garbage_bytes: u64,
}

impl Stat {
    /// Prints the figures.
    pub fn run(&self) -> Result<()> {
        let has_directory = self.paths.iter().any(|path| path.is_dir());
        let shows_files = self.verbose || !has_directory;
        let (mut codecs, mut files) = (BTreeMap::<&str, Sums>::new(), Vec::new());
        let mut incomplete = 0_u64;
        let progress = Progress::new("read", self.json);
        let outcome = walk::each(&self.paths, &progress, |path, tool| {
            let figures = tool.figures()?;
            if figures.is_incomplete {
                incomplete += 1;
                let shown = path.display();
                progress.print(|| {
                    eprintln!(
                        "fslab: {shown}: a part of the file is missing; see `fslab sca \
                               verify`"
                    );
                });
            }
            codecs.entry(figures.codec).or_default().add(&figures);
            match (shows_files, self.json) {
                (true, true) => files.push(file_as_json(path, &figures)),
                (true, false) => progress.print(|| show_file(path, &figures)),
                (false, _) => {}
            }
            Ok(())
        });
        drop(progress);
        if self.json {
            let codec_as_json = |(name, sums): (&&str, &Sums)| sums.as_json(name);
            say!(
                "{:#}",
                json!({
                    "codecs": codecs.iter().map(codec_as_json).collect::<Vec<_>>(),
                    "total": total(&codecs).as_json("all"),
                    "plain_files": outcome.plain_files,
                    "failed_files": outcome.failures(),
                    "incomplete_files": incomplete,
                    "files": files,
                })
            );
        } else if outcome.stored_files > 1 || has_directory && !outcome.is_nothing_but_failures() {
            show_sums(&codecs, outcome.plain_files);
        } else if outcome.stored_files > 0 && codecs.is_empty() {
            // Layers store a file without content as an empty file, which has no codec.
            self.paths.iter().for_each(|path| say!("{}: empty", path.display()));
        }
        outcome.refuse_failures("read")?;
        match incomplete {
            0 => Ok(()),
            files => bail!("{} with missing parts; see above", counted(files, "stored file")),
        }
    }
}

impl Sums {
    fn add(&mut self, figures: &Figures) {
        self.files += 1;
        self.size += figures.size;
        self.stored_bytes += figures.stored_bytes;
        self.allocated_bytes += figures.allocated_bytes;
        self.garbage_bytes += figures.garbage_bytes;
    }

    fn as_json(&self, codec: &str) -> Value {
        json!({
            "codec": codec,
            "files": self.files,
            "size_bytes": self.size,
            "stored_bytes": self.stored_bytes,
            "allocated_bytes": self.allocated_bytes,
            "garbage_bytes": self.garbage_bytes,
            "ratio": ratio(self.size, self.stored_bytes),
        })
    }

    fn as_row(&self, codec: &str) -> [String; 7] {
        [
            codec.to_owned(),
            self.files.to_string(),
            units::bytes(self.size),
            units::bytes(self.stored_bytes),
            match self.files {
                0 => "-".to_owned(),
                _ => format!("{:.2}", ratio(self.size, self.stored_bytes)),
            },
            units::bytes(self.allocated_bytes),
            units::bytes(self.garbage_bytes),
        ]
    }
}

fn total(codecs: &BTreeMap<&str, Sums>) -> Sums {
    codecs.values().fold(Sums::default(), |sum, one| Sums {
        files: sum.files + one.files,
        size: sum.size + one.size,
        stored_bytes: sum.stored_bytes + one.stored_bytes,
        allocated_bytes: sum.allocated_bytes + one.allocated_bytes,
        garbage_bytes: sum.garbage_bytes + one.garbage_bytes,
    })
}

/// Returns the compression ratio: content bytes per stored byte. It is 1 for files without content.
fn ratio(size: u64, stored_bytes: u64) -> f64 {
    if stored_bytes == 0 { 1.0 } else { size as f64 / stored_bytes as f64 }
}

fn show_sums(codecs: &BTreeMap<&str, Sums>, plain_files: u64) {
    let header = ["codec", "files", "content", "stored", "ratio", "on disk", "garbage"];
    let mut table = plain_table(header);
    table.add_rows(codecs.iter().map(|(name, sums)| sums.as_row(name)));
    if codecs.len() != 1 {
        table.add_row(total(codecs).as_row("all"));
    }
    print_figures(table);
    if plain_files > 0 {
        say!("not counted: {} that no layer wrote", counted(plain_files, "file"));
    }
}

fn show_file(path: &Path, figures: &Figures) {
    say!("{}", path.display());
    for (name, value) in lines(figures) {
        say!("  {name:<12} {value}");
    }
}

fn file_as_json(path: &Path, figures: &Figures) -> Value {
    json!({
        "path": path.display().to_string(),
        "codec": figures.codec,
        "chunk_bytes": figures.chunk_bytes,
        "size_bytes": figures.size,
        "stored_bytes": figures.stored_bytes,
        "allocated_bytes": figures.allocated_bytes,
        "form": figures.form,
        "chunks": figures.chunks,
        "raw_chunks": figures.raw_chunks,
        "tail_pieces": figures.segments,
        "live_bytes": figures.live_bytes,
        "garbage_bytes": figures.garbage_bytes,
        "kept_frames": figures.kept,
        "is_incomplete": figures.is_incomplete,
        "chunks_by_tenth_of_size": figures.histogram,
    })
}

fn lines(figures: &Figures) -> Vec<(&'static str, String)> {
    let size = |bytes: u64| format!("{bytes} ({})", Size::of(bytes));
    let ratio = ratio(figures.size, figures.stored_bytes);
    let tenths = figures.histogram.iter().enumerate().filter(|(_, count)| **count > 0);
    let histogram: Vec<String> = tenths
        .map(|(tenth, count)| match tenth {
            10 => format!("100 % or more: {count}"),
            tenth => format!("below {} %: {count}", (tenth + 1) * 10),
        })
        .collect();
    vec![
        ("codec", format!("{}, chunks of {}", figures.codec, size(figures.chunk_bytes))),
        ("content", size(figures.size)),
        ("stored", format!("{}, ratio {ratio:.2}", size(figures.stored_bytes))),
        ("on disk", size(figures.allocated_bytes)),
        ("form", figures.form.to_owned()),
        ("chunks", format!("{}, of these raw {}", figures.chunks, figures.raw_chunks)),
        ("tail", counted(figures.segments, "raw piece")),
        ("live", size(figures.live_bytes)),
        ("garbage", size(figures.garbage_bytes)),
        ("set aside", counted(figures.kept, "frame")),
        ("encoded to", histogram.join("; ")),
    ]
}
