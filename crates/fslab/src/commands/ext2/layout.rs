//! `fslab ext2 layout`: measures how contiguous the files of an image are, as one score and as a
//! table by size. The score is that of `fslab age score`.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result};
use fslab_age::score::{Rules, Score, ScoredFile, Sums, score_files};
use serde_json::{Value, json};

use super::map::Map;
use super::walk::Image;

/// Arguments of `fslab ext2 layout`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print every fragmented file too
    #[arg(long, short_alias = 'f')]
    files: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "files")]
    json: bool,
    /// Write a picture of the blocks of all files to this new file, as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// The image or device
    image: PathBuf,
}

impl Args {
    /// Prints the scores. A score is the share of blocks that directly follow their predecessor;
    /// the first block of each file is not counted. A file of one block has no score.
    pub fn run(self) -> Result<()> {
        let image = Image::read(&self.image)?;
        let block_bytes = u64::from(image.ext2.superblock().geometry().block_size.bytes_u32());
        let rules = Rules { block_bytes, group_bytes: None, map_bytes: None };
        let mut map = Map::default();
        let score = score_files(&image.ext2, rules, &mut |file| {
            map.add(file.extents, block_bytes);
            if self.files && file.layout.breaks > 0 {
                tell(file);
            }
        })?;
        if self.json {
            say!("{:#}", as_json(&score));
        } else {
            print(&score);
        }
        self.svg.map_or(Ok(()), |path| {
            let shown = path.display().to_string();
            let mut file = File::create_new(&path).with_context(|| shown.clone())?;
            file.write_all(map.picture(&image.ext2)?.as_bytes()).context(shown)
        })
    }
}

fn tell(file: &ScoredFile<'_>) {
    let mut sums = Sums::default();
    sums.add(&file.layout, false);
    let Sums { breaks, blocks, .. } = sums;
    say!("{} {breaks} breaks in {blocks} blocks: /{}", shown(&sums), file.path.escape_ascii());
}

fn as_json(score: &Score) -> Value {
    let sums = |sums: &Sums| {
        let Sums { files, blocks, breaks, .. } = sums;
        json!({ "files": files, "blocks": blocks, "breaks": breaks, "score": sums.score() })
    };
    let classes = score.classes().into_iter().map(|class| {
        let mut value = sums(&class.sums);
        value["from_blocks"] = class.from_blocks.into();
        value
    });
    let classes: Vec<Value> = classes.collect();
    json!({ "classes": classes, "all": sums(&score.total) })
}

fn print(score: &Score) {
    say!("{:>12} {:>10} {:>12} {:>10} {:>7}", "from blocks", "files", "blocks", "breaks", "score");
    for class in score.classes() {
        print_line(&class.from_blocks.to_string(), &class.sums);
    }
    print_line("all", &score.total);
}

fn print_line(label: &str, sums: &Sums) {
    let Sums { files, blocks, breaks, .. } = sums;
    say!("{label:>12} {files:>10} {blocks:>12} {breaks:>10} {:>7}", shown(sums));
}

fn shown(sums: &Sums) -> String {
    sums.score().map_or_else(|| "-".to_owned(), |score| format!("{score:.4}"))
}
