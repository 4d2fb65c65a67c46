//! Finds a path for each inode that has a finding.

use std::collections::{HashMap, HashSet};

use super::finding::Subject;
use super::image::Image;
use crate::dir::entry::Entries;
use crate::error::Result;
use crate::types::InodeNo;

/// Maximum number of directories in a path.
const DEPTH_MAX: usize = 256;

/// Fills in the paths of the findings.
pub(super) fn fill_in(image: &mut Image) -> Result<()> {
    let wanted: HashSet<InodeNo> = image.report.findings.iter().filter_map(inode_of).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let mut places = places_of(image, &wanted)?;
    let mut above = HashSet::new();
    for (parent, _) in places.values() {
        let mut at = Some(*parent);
        while let Some(no) = at.filter(|no| above.insert(*no)) {
            at = image.directories.get(&no).and_then(|directory| directory.parent);
        }
    }
    places.extend(places_of(image, &above)?);
    for finding in &mut image.report.findings {
        finding.path = inode_of(finding).and_then(|no| path_of(&places, no));
    }
    Ok(())
}

fn inode_of(finding: &super::Finding) -> Option<InodeNo> {
    match finding.subject {
        Subject::Inode(no) => Some(no),
        _ => None,
    }
}

type Places = HashMap<InodeNo, (InodeNo, Vec<u8>)>;

/// Returns the parent directory and name of each of these inodes.
fn places_of(image: &Image, wanted: &HashSet<InodeNo>) -> Result<Places> {
    let mut places = Places::new();
    for (&no, directory) in &image.directories {
        for (index, block) in directory.blocks.iter().enumerate() {
            let bytes = image.cache.read(*block)?;
            let skipped = if index == 0 { 2 } else { 0 };
            for entry in Entries::of(&bytes).skip(skipped).flatten() {
                if let Some(target) = entry.inode.filter(|target| wanted.contains(target)) {
                    places.entry(target).or_insert_with(|| (no, entry.name.to_vec()));
                }
            }
        }
    }
    Ok(places)
}

fn path_of(places: &Places, no: InodeNo) -> Option<Vec<u8>> {
    if no == InodeNo::ROOT {
        return Some(b"/".to_vec());
    }
    let (mut at, mut names) = (no, Vec::new());
    while at != InodeNo::ROOT {
        let (parent, name) = places.get(&at)?;
        names.push(name.as_slice());
        if names.len() > DEPTH_MAX {
            return None;
        }
        at = *parent;
    }
    names.push(b"");
    names.reverse();
    Some(names.join(&b'/'))
}
