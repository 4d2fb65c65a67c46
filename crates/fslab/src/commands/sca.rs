//! `fslab sca`: stored files of SCA layers, looked at and mended while nothing is mounted.

mod convert;
mod pack;
mod recovery;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use fslab_sca::{Figures, Finding, Tool};
use fslab_vfs::Size;
use indicatif::{ProgressBar, ProgressStyle};

use crate::exit::{Code, one_line};
use crate::output::output;
use crate::units::counted;

/// Arguments of `fslab sca`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Figures of stored files: ratio, form, garbage, tails, what encoding left of chunks
    Stat {
        /// Stored files, by their paths in the lower directory
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Check every checksum of stored files, and that their content can be decoded
    Check {
        /// Stored files, by their paths in the lower directory
        #[arg(required = true)]
        files: Vec<PathBuf>,
    },
    /// Write the content of a stored file to standard output
    Cat {
        /// A stored file, by its path in the lower directory
        file: PathBuf,
    },
    /// List every part of a stored file, without a gap
    Dump {
        /// A stored file, by its path in the lower directory
        file: PathBuf,
    },
    /// Put the content of rewritten stored files in order, and give back all other space
    Pack {
        /// Stored files, or directories of them, by their paths in the lower directory
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Encode the files of a directory in place, for a layer to be mounted over it
    ///
    /// A mount of the layer then shows the same bytes, also of files that are stored files
    /// themselves. In a directory that a layer was mounted over, stored files are encoded already.
    /// Run the command again to resume an interrupted run. Ordinary users can convert own files.
    Encode(convert::Encode),
    /// Decode the stored files of a directory in place
    ///
    /// Decoding an encoded directory leaves it as it was before: content, times, modes, owners,
    /// xattrs, ACLs and links. Run the command again to resume an interrupted run.
    Decode(convert::Decode),
    /// Time how a file is found after a crash, beside reading it; makes and removes the file
    Recovery(recovery::Recovery),
    /// Write what can be decoded of a damaged stored file to a new, plain file
    Repair {
        /// A stored file, by its path in the lower directory; it is not changed
        file: PathBuf,
        /// The new file, which must not exist
        #[arg(short, long)]
        output: PathBuf,
    },
}

impl Args {
    /// Does what was asked.
    pub fn run(self) -> Result<()> {
        match self.command {
            Command::Stat { files } => files.iter().try_for_each(|file| stat(file)),
            Command::Check { files } => check(&files),
            Command::Cat { file } => {
                let mut out = output();
                Tool::open(&file)?.cat(&mut out)?;
                out.flush().context("can't write to standard output")
            }
            Command::Dump { file } => Ok(Tool::open(&file)?.dump(&mut output())?),
            Command::Encode(args) => args.run(),
            Command::Decode(args) => args.run(),
            Command::Pack { paths } => pack::run(&paths),
            Command::Recovery(args) => args.run(),
            Command::Repair { file, output } => repair(&file, &output),
        }
    }
}

fn stat(file: &Path) -> Result<()> {
    let figures = Tool::open(file)?.figures()?;
    say!("{}", file.display());
    for (name, value) in lines(&figures) {
        say!("  {name:<12} {value}");
    }
    Ok(())
}

fn lines(figures: &Figures) -> Vec<(&'static str, String)> {
    let size = |bytes: u64| format!("{bytes} ({})", Size::of(bytes));
    let ratio = figures.size as f64 / figures.stored_bytes.max(1) as f64;
    let tenths = figures.histogram.iter().enumerate().filter(|(_, count)| **count > 0);
    let histogram: Vec<String> = tenths
        .map(|(tenth, count)| match tenth {
            10 => format!("100 % or more: {count}"),
            tenth => format!("below {} %: {count}", (tenth + 1) * 10),
        })
        .collect();
    vec![
        ("codec", format!("{}, chunks of {}", figures.codec, size(figures.chunk_bytes))),
        ("size", size(figures.size)),
        ("stored", format!("{}, ratio {ratio:.2}", size(figures.stored_bytes))),
        ("takes", size(figures.allocated_bytes)),
        ("form", figures.form.to_owned()),
        ("chunks", format!("{}, of these raw {}", figures.chunks, figures.raw_chunks)),
        ("tail", format!("{} pieces", figures.segments)),
        ("of use", size(figures.live_bytes)),
        ("garbage", size(figures.garbage_bytes)),
        ("kept aside", format!("{} frames", figures.kept)),
        ("encoded to", histogram.join("; ")),
    ]
}

fn check(files: &[PathBuf]) -> Result<()> {
    let (mut damaged, mut unknown) = (0, Vec::new());
    for file in files {
        match findings(file) {
            Ok(findings) => damaged += usize::from(!findings.is_empty()),
            Err(error) => unknown.push(code_of_unknown(file, &error)),
        }
    }
    let all = files.len();
    match (damaged, unknown.as_slice()) {
        (0, []) => {
            say!("{}: whole", counted(all as u64, "stored file"));
            Ok(())
        }
        (0, [code, ..]) => {
            Err(code.error(format!("{} of {all} files could not be checked", unknown.len())))
        }
        _ => bail!(
            "{damaged} of {all} stored files are damaged; `fslab sca repair` saves what can be \
             decoded"
        ),
    }
}

/// Checks a file and tells what was found. An empty file is one of a layer below.
fn findings(file: &Path) -> Result<Vec<Finding>> {
    if file.metadata().is_ok_and(|found| found.is_file() && found.len() == 0) {
        return Ok(Vec::new());
    }
    let style = ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} frames")?;
    let bar = ProgressBar::new(0).with_style(style).with_message(file.display().to_string());
    let findings = Tool::open(file)?.check(&|done, total| {
        bar.set_length(total);
        bar.set_position(done);
    })?;
    bar.finish_and_clear();
    for finding in &findings {
        let chunk = finding.chunk.map(|chunk| format!(", chunk {chunk}")).unwrap_or_default();
        say!("{}: offset {}{chunk}: {}", file.display(), finding.offset, finding.what);
    }
    Ok(findings)
}

/// Tells of a file with which nothing could be done, which must not keep others from it; returns
/// the exit code that it alone would have.
fn code_of_unknown(file: &Path, error: &anyhow::Error) -> Code {
    let (shown, line) = (file.display().to_string(), one_line(error));
    let about = if line.contains(&shown) { String::new() } else { format!("{shown}: ") };
    say!("{about}{line}");
    Code::of(error)
}

/// Shows what is being worked on, to who looks.
fn spinner() -> Result<ProgressBar> {
    Ok(ProgressBar::new_spinner().with_style(ProgressStyle::with_template("{spinner} {msg}")?))
}

fn repair(file: &Path, output: &Path) -> Result<()> {
    let tool = Tool::open(file)?;
    let shown = output.display();
    let target = File::create_new(output).with_context(|| format!("can't create {shown}"))?;
    let saved = tool.salvage(&mut |offset, content| target.write_all_at(content, offset))?;
    let written = target.set_len(saved.size).and_then(|()| target.sync_all());
    written.with_context(|| format!("can't write {shown}"))?;
    for lost in &saved.lost {
        let end = (lost.offset + saved.chunk_bytes).min(saved.size);
        say!("lost: bytes {} to {end}, now zeros: {}", lost.offset, lost.what);
    }
    for missing in &saved.missing {
        say!("missing: offset {} of the stored file: {}", missing.offset, missing.what);
    }
    say!("{shown}: {} bytes", saved.size);
    match saved.lost.len() {
        0 if saved.missing.is_empty() => Ok(()),
        0 => bail!("not all frames were found; the stored file was not changed"),
        lost => bail!("{lost} chunks were lost; the stored file was not changed"),
    }
}
