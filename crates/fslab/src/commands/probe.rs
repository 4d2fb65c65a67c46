//! `fslab probe`: finds out from outside what a file system is.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use bytesize::ByteSize;
use comfy_table::{ContentArrangement, Table, presets};
use fslab_measure::probe::{
    ATTRIBUTES, Answer, Attribute, Confidence, Ground, Method, Options, find,
};
use serde_json::json;

use crate::exit::{Code, Coded};

mod verify;

/// Arguments of `fslab probe`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A directory on the file system; everything happens in a new one below it
    #[arg(required_unless_present = "verify_matrix")]
    path: Option<PathBuf>,
    /// Only these attributes, separated by commas; `fslab list` shows all
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Print JSON, with the evidence
    #[arg(long)]
    json: bool,
    /// Say how each value was found
    #[arg(long)]
    explain: bool,
    /// Judge the answers by what superblocks, sysfs and statx say; an error where one is wrong
    #[arg(long, conflicts_with_all = ["only", "json", "explain"])]
    verify: bool,
    /// Make file systems of every kind in PATH (else in the directory for temporary files) and
    /// judge the answers on each
    #[arg(long, conflicts_with_all = ["only", "json", "explain", "verify"])]
    verify_matrix: bool,
    /// Leave out what makes many files or flushes the device often
    #[arg(long)]
    gentle: bool,
    /// Bytes that the prober's files may take at one time
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    budget: ByteSize,
}

/// Less room than this shows no read-ahead window at all.
const BUDGET_LEAST: ByteSize = ByteSize::mib(16);

impl Args {
    /// Probes.
    pub fn run(self) -> Result<()> {
        let attributes = self.chosen()?;
        if self.budget < BUDGET_LEAST {
            bail!(bad_input(format!("--budget {}: must be at least 16 MiB", self.budget)));
        }
        let path = self.path.clone().unwrap_or_else(std::env::temp_dir);
        if !path.is_dir() {
            bail!(bad_input(format!(
                "{}: no directory; name one on the file system to probe",
                path.display()
            )));
        }
        if self.verify_matrix {
            return verify::matrix(&path);
        }
        if self.verify {
            return verify::directory(&path);
        }
        self.probe(&path, attributes)
    }

    fn probe(&self, path: &Path, attributes: Vec<&'static Attribute>) -> Result<()> {
        let options = Options { budget: self.budget.as_u64(), gentle: self.gentle };
        let ground = Ground::prepare(path, options)?;
        let answers: Vec<_> =
            attributes.into_iter().map(|attribute| find(attribute, &ground)).collect();
        let file_system = ground.file_system().to_owned();
        ground.clear()?;
        let mut out = std::io::stdout().lock();
        if self.json {
            writeln!(out, "{:#}", as_json(&file_system, path, &answers))?;
        } else {
            writeln!(out, "{} at {}\n", file_system, path.display())?;
            writeln!(out, "{}", as_table(&answers, self.explain))?;
        }
        Ok(())
    }

    fn chosen(&self) -> Result<Vec<&'static Attribute>> {
        if self.only.is_empty() {
            return Ok(ATTRIBUTES.to_vec());
        }
        let named = |name: &String| {
            ATTRIBUTES.iter().copied().find(|attribute| attribute.name == name).ok_or_else(|| {
                let names: Vec<_> = ATTRIBUTES.iter().map(|attribute| attribute.name).collect();
                bad_input(format!("no attribute '{name}'; there is: {}", names.join(", "))).into()
            })
        };
        self.only.iter().map(named).collect()
    }
}

fn bad_input(message: String) -> Coded {
    Coded { code: Code::BadInput, message }
}

fn as_table(answers: &[Answer], explain: bool) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(["attribute", "value", "sure by"]);
    for Answer { attribute, finding } in answers {
        match &finding.answer {
            Ok((value, confidence)) => {
                table.add_row([attribute.name, &value.to_string(), sureness(*confidence)]);
            }
            Err(reason) => {
                table.add_row([attribute.name, &format!("not applicable: {reason}"), ""]);
            }
        }
        if explain {
            table.add_row(["", attribute.help, ""]);
            for method in &finding.methods {
                table.add_row(["", &explained(method), ""]);
            }
        }
    }
    table
}

fn sureness(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Agreed => "two methods",
        Confidence::Single => "one method",
    }
}

fn explained(method: &Method) -> String {
    let evidence: Vec<_> =
        method.series.iter().take(24).map(|point| format!("{}:{}", point.x, point.y)).collect();
    let more = if method.series.len() > 24 { " ..." } else { "" };
    let outcome = match &method.outcome {
        Ok(value) => value.to_string(),
        Err(reason) => reason.clone(),
    };
    format!("  by {}: {outcome}  {}{more}", method.name, evidence.join(" "))
}

fn as_json(file_system: &str, path: &Path, answers: &[Answer]) -> serde_json::Value {
    let attributes: Vec<_> = answers
        .iter()
        .map(|Answer { attribute, finding }| {
            let (value, confidence, reason) = match &finding.answer {
                Ok((value, confidence)) => (Some(value), Some(confidence), None),
                Err(reason) => (None, None, Some(reason)),
            };
            json!({
                "name": attribute.name,
                "answer": value,
                "confidence": confidence,
                "not_applicable": reason,
                "methods": finding.methods,
            })
        })
        .collect();
    json!({
        "path": path,
        "file_system": file_system,
        "attributes": attributes,
    })
}
