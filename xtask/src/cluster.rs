//! `cargo xtask cluster`: runs Slurm on two nodes in namespaces of this machine, and a campaign on
//! them.

mod demo;
mod nodes;

use anyhow::{Result, bail};

use crate::setup;
use nodes::Cluster;

/// The action on the cluster.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Install Slurm from the distribution, and start a controller and two nodes
    Up,
    /// Stop the cluster and remove its files
    Down,
    /// Run a campaign on two nodes, kill one during the run, and compare the result with a serial
    /// run
    Demo,
}

impl Args {
    /// Runs the command.
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
        println!("cluster: `cargo xtask cluster down` stops the cluster");
    }
    started.map(|()| true)
}

/// Runs the demonstration on a cluster of its own. All its nodes are stopped afterwards. The logs
/// of a cluster that failed to start are kept.
fn demo(cluster: &Cluster) -> Result<bool> {
    if cluster.is_up() {
        bail!("the cluster is running; `cargo xtask cluster down` stops it");
    }
    let (ran, ended) = match up(cluster) {
        Ok(true) => (demo::run(cluster).map(|()| true), cluster.down()),
        not_up => (not_up, cluster.end_all()),
    };
    ran.and_then(|is_done| ended.map(|()| is_done))
}
