//! Submits the shares of a campaign to Slurm, as an array job with one element per share.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::campaign::Campaign;
use crate::error::{Error, Result};
use crate::writer::replace;

/// The name of the script in the campaign's directory.
const SCRIPT: &str = "slurm.sh";

/// The settings of the Slurm job.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// The number of shares.
    pub shares: u32,
    /// The path of the program, the same on every node.
    pub program: PathBuf,
    /// Additional options of `fslab campaign run`.
    pub options: Vec<String>,
    /// Licences that each share needs, such as `disk:1`.
    pub licences: Option<String>,
    /// The Slurm partition in which the shares run.
    pub partition: Option<String>,
}

impl Slurm {
    /// Returns the batch script. Each element of the array runs one share on a node of its own, and
    /// is queued again if its node fails.
    ///
    /// # Errors
    /// Fails if an option or path has characters that a batch script can't contain.
    pub fn script(&self, campaign: &Campaign) -> Result<String> {
        let directory = absolute(campaign.directory())?;
        // The job name appears in Slurm's own lists, so it has only plain characters.
        let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || "-_".contains(*letter);
        let name: String = campaign.frozen().name.chars().filter(is_plain).take(40).collect();
        // Slurm expands a percent sign and the character after it.
        let log = text("directory", &directory)?.replace('%', "%%");
        let mut lines = vec![
            "#!/bin/sh".to_owned(),
            format!("#SBATCH --job-name=fslab-{name}"),
            format!("#SBATCH --array=1-{}", self.shares),
            "#SBATCH --nodes=1".to_owned(),
            "#SBATCH --ntasks=1".to_owned(),
            "#SBATCH --exclusive".to_owned(),
            "#SBATCH --requeue".to_owned(),
            "#SBATCH --open-mode=append".to_owned(),
            format!("#SBATCH --output=\"{log}/share-%a.log\""),
        ];
        for (option, what, value) in
            [("licenses", "licences", &self.licences), ("partition", "partition", &self.partition)]
        {
            if let Some(value) = value {
                lines.push(format!("#SBATCH --{option}=\"{}\"", text(what, value)?));
            }
        }
        let mut words = vec![
            "exec".to_owned(),
            quoted("program", &absolute(&self.program)?)?,
            "campaign run".to_owned(),
            quoted("directory", &directory)?,
            format!("--share \"$SLURM_ARRAY_TASK_ID/{}\"", self.shares),
        ];
        for option in &self.options {
            words.push(quoted("option", option)?);
        }
        lines.push(words.join(" "));
        Ok(lines.join("\n") + "\n")
    }

    /// Writes the script into the campaign's directory, submits it and returns the job number.
    ///
    /// # Errors
    /// Fails if the script can't be written, if `sbatch` is missing, or if Slurm refuses the job.
    pub fn submit(&self, campaign: &Campaign) -> Result<String> {
        let path = campaign.directory().join(SCRIPT);
        replace(&path, self.script(campaign)?.as_bytes())?;
        let mut command = Command::new("sbatch");
        command.arg("--parsable").arg(&path).stdin(Stdio::null());
        let output = command.output().map_err(|source| Error::NoSlurm { source })?;
        let one_line = |bytes: &[u8]| {
            String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ")
        };
        if output.status.success() {
            return Ok(one_line(&output.stdout));
        }
        Err(Error::Slurm { status: output.status, message: one_line(&output.stderr) })
    }
}

fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).map_err(Error::file(path))?;
    match path.to_str() {
        Some(text) => Ok(text.to_owned()),
        None => Err(Error::NotUtf8 { path }),
    }
}

/// Checks that a text may appear between the double quotes of an option.
fn text<'a>(what: &'static str, text: &'a str) -> Result<&'a str> {
    if text.contains(|letter: char| letter.is_control() || "\"'\\".contains(letter)) {
        return Err(Error::OddText { what, text: text.to_owned() });
    }
    Ok(text)
}

fn quoted(what: &'static str, word: &str) -> Result<String> {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:=".contains(letter);
    let word = text(what, word)?;
    Ok(if word.chars().all(is_plain) { word.to_owned() } else { format!("'{word}'") })
}
