//! The SQL engine of `fslab sql`: DataFusion over data sets.
//!
//! The program `fslab-sql` reads one [`fslab_dataset::Query`] from standard input and writes its
//! answer to standard output. `docs/decisions/0020-sql-in-a-separate-program.md` explains why the
//! engine is in a separate program.

mod answer;
mod chain;
mod damage;
mod engine;
mod error;
mod pool;
mod request;
mod spill;
mod statement;
mod table;

pub use engine::{plan_text, run};
pub use error::{Error, Result};
pub use request::{read, restrict};
