//! `cargo xtask cluster`: starts Slurm or Ballista on two nodes, which are namespaces of this
//! machine, and runs a campaign or a query there.

mod ballista;
mod demo;
mod nodes;
mod slurm;

use anyhow::{Result, bail};

use crate::setup;
use slurm::Slurm;

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
    /// Stop all nodes and remove their files
    Down,
    /// Run a campaign on two nodes, kill one during the run, and compare the result with a serial
    /// run
    Demo,
    /// Compare two large snapshots with Ballista on two nodes, DuckDB, `fslab sql` and `fslab age
    /// diff`
    Sql(ballista::Args),
}

impl Args {
    /// Runs the command.
    pub fn run(&self) -> Result<bool> {
        let cluster = Slurm::of_user()?;
        match &self.action {
            Action::Up => up(&cluster),
            Action::Down => cluster.nodes.down().and(ballista::down()).map(|()| true),
            Action::Demo => demo(&cluster),
            Action::Sql(args) => args.run().map(|()| true),
        }
    }
}

fn up(cluster: &Slurm) -> Result<bool> {
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
fn demo(cluster: &Slurm) -> Result<bool> {
    if cluster.nodes.is_up() {
        bail!("the cluster is running; `cargo xtask cluster down` stops it");
    }
    let (ran, ended) = match up(cluster) {
        Ok(true) => (demo::run(cluster).map(|()| true), cluster.nodes.down()),
        not_up => (not_up, cluster.nodes.end_all()),
    };
    ran.and_then(|is_done| ended.map(|()| is_done))
}
