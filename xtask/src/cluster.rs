//! `cargo xtask cluster`: Slurm on two nodes in namespaces of this machine, and a campaign on them.

mod demo;
mod nodes;

use anyhow::Result;

use crate::setup;
use nodes::Cluster;

/// What is done with the cluster.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Install Slurm from the distribution, and start a controller and two nodes
    Up,
    /// End the cluster, and remove what it has written
    Down,
    /// Run a campaign on two nodes, kill one in the middle, and compare with a serial run
    Demo,
}

impl Args {
    /// Does it.
    pub fn run(&self) -> Result<bool> {
        let cluster = Cluster::of_user()?;
        match self.action {
            Action::Up => up(&cluster),
            Action::Down => cluster.down().map(|()| true),
            Action::Demo => demo(&cluster),
        }
    }
}

fn up(cluster: &Cluster) -> Result<bool> {
    if !setup::install(setup::Purpose::Cluster)?.is_empty() {
        return Ok(false);
    }
    let started = cluster.up();
    if started.is_err() {
        println!("cluster: `cargo xtask cluster down` ends what was started");
    }
    started.map(|()| true)
}

/// On a cluster of its own.
fn demo(cluster: &Cluster) -> Result<bool> {
    if !up(cluster)? {
        return Ok(false);
    }
    let ran = demo::run(cluster);
    let ended = cluster.down();
    ran.and(ended).map(|()| true)
}
