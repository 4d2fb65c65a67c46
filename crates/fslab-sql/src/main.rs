//! The program that `fslab sql` starts. It has no command line.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;

use fslab_sql::{Error, Result};

fn main() -> ExitCode {
    // Panics are caught and reported as an error of one line, so the hook prints nothing.
    std::panic::set_hook(Box::new(|_panic| {}));
    match answer() {
        Ok(()) => ExitCode::SUCCESS,
        // The reader closed the pipe, because it needs no more output.
        Err(Error::Output(error)) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // If the message can't be written, the exit code still reports the error.
            writeln!(io::stderr(), "{error}").ok();
            ExitCode::from(error.code())
        }
    }
}

fn answer() -> Result<()> {
    let input = io::stdin();
    if std::env::args_os().len() > 1 || input.is_terminal() {
        return Err(Error::Request("this program is started by `fslab sql`".to_owned()));
    }
    let query = fslab_sql::read(input.lock())?;
    fslab_sql::restrict(&query)?;
    fslab_sql::run(&query, &mut BufWriter::new(io::stdout()))
}
