//! `create-delete`: masses of empty files made, looked at and removed, in order of their names
//! and in an order drawn from the seed.
//!
//! Directories that keep names sorted or hashed treat the two orders differently. The random
//! order is a Fisher-Yates permutation, drawn anew for each phase.

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;

use super::{DefaultValue, Parameter, Spec, Workload};
use crate::error::Result;
use crate::runner::{CacheState, Phase, Session, Timed};

const FILES: Parameter =
    Parameter { name: "files", help: "files in all", default: DefaultValue::Count(10_000) };

const DIRECTORIES: Parameter = Parameter {
    name: "directories",
    help: "directories they are spread over, evenly",
    default: DefaultValue::Count(1),
};

/// The registry's entry.
pub(super) const SPEC: Spec = Spec {
    name: "create-delete",
    help: "create empty files, stat them, delete them; in order of names and in random order",
    parameters: &[FILES, DIRECTORIES],
    construct: |parameters, _seed| {
        Box::new(CreateDelete {
            files: parameters.number(&FILES),
            directories: parameters.number(&DIRECTORIES),
        })
    },
};

struct CreateDelete {
    files: u64,
    directories: u64,
}

/// The three phases of one order.
struct Names {
    create: &'static str,
    stat: &'static str,
    delete: &'static str,
}

impl Workload for CreateDelete {
    fn run(&self, session: &mut Session<'_>) -> Result<()> {
        let names = Names { create: "create", stat: "stat", delete: "delete" };
        self.run_order(session, "ordered", &names, |_, _| {})?;
        let names = Names { create: "create random", stat: "stat random", delete: "delete random" };
        self.run_order(session, "random", &names, |paths, random| paths.shuffle(random))
    }
}

impl CreateDelete {
    fn run_order(
        &self,
        session: &mut Session<'_>,
        prefix: &str,
        names: &Names,
        order: impl Fn(&mut [String], &mut Pcg64),
    ) -> Result<()> {
        let mut random = Pcg64::seed_from_u64(session.seed());
        let mut paths = self.make_directories(session, prefix)?;
        order(&mut paths, &mut random);
        session.measure(Phase::new(names.create), |timed| {
            for_each(timed, &paths, |timed, path| timed.tree().create(path)?.close())?;
            timed.flush()
        })?;
        order(&mut paths, &mut random);
        session.measure(Phase::new(names.stat).cache(CacheState::Warm), |timed| {
            for_each(timed, &paths, |timed, path| timed.tree().status(path).map(|_| ()))
        })?;
        order(&mut paths, &mut random);
        session.measure(Phase::new(names.delete), |timed| {
            for_each(timed, &paths, |timed, path| timed.tree().remove(path))?;
            timed.flush()
        })
    }

    /// Makes the directories, untimed, and answers the paths of the files to be.
    fn make_directories(&self, session: &mut Session<'_>, prefix: &str) -> Result<Vec<String>> {
        let tree = session.tree()?;
        for directory in 0..self.directories {
            tree.make_directory(&format!("{prefix}-{directory:04}"))?;
        }
        let per_directory = self.files.div_ceil(self.directories);
        let path = |file| format!("{prefix}-{:04}/file-{file:08}", file / per_directory);
        Ok((0..self.files).map(path).collect())
    }
}

fn for_each(
    timed: &mut Timed<'_>,
    paths: &[String],
    act: impl Fn(&Timed<'_>, &str) -> Result<()>,
) -> Result<()> {
    for path in paths {
        timed.check()?;
        act(timed, path)?;
    }
    timed.count(paths.len() as u64, 0);
    Ok(())
}
