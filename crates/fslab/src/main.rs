//! The `fslab` command: parses its arguments and runs one subcommand. An error becomes one line and
//! an exit code.

use std::process::ExitCode;

#[macro_use]
mod exit;
#[macro_use]
mod output;

mod commands;
mod layers;
mod leaves;
mod programs;
mod progress;
mod runtime;
mod stack_context;
mod units;

fn main() -> ExitCode {
    fslab_tier::archive::add_archive_kinds(layers::FOREIGN_ARCHIVES);
    let command = commands::Cli::from_command_line();
    match output::ended(command.run()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fslab: {}", output::harmless(&exit::one_line(&error)));
            ExitCode::from(exit::Code::of(&error) as u8)
        }
    }
}
