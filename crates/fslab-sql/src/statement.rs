//! Parses and plans a single SELECT statement, which can read only the tables of the query.

use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};
use datafusion::prelude::{SQLOptions, SessionContext};
use datafusion::sql::parser::{DFParser, Statement};
use datafusion::sql::sqlparser::ast;

use crate::error::{Error, Result};

/// Maximum length of a statement in bytes. It limits the depth of a chain of operators.
const BYTES_MAX: usize = 64 << 10;

/// Parses and plans a statement.
///
/// # Errors
/// [`Error::Statement`] if it is not one SELECT statement over the tables of `context`.
pub async fn plan(context: &SessionContext, sql: &str, limit_bytes: u64) -> Result<LogicalPlan> {
    let statement = parse(sql)?;
    let invalid = |error| Error::of_engine(error, limit_bytes);
    let plan = context.state().statement_to_plan(statement).await.map_err(invalid)?;
    let only_reads =
        SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    only_reads.verify_plan(&plan).map_err(invalid)?;
    LogicalPlanBuilder::from(plan).build().map_err(invalid)
}

/// Parses a statement and refuses all but SELECT.
fn parse(sql: &str) -> Result<Statement> {
    if sql.len() > BYTES_MAX {
        return Err(Error::Statement("a statement has at most 64 KiB".to_owned()));
    }
    let parsed = DFParser::parse_sql(sql);
    let mut statements = parsed.map_err(|error| Error::of_engine(error, 0))?;
    let Some(statement) = statements.pop_front() else {
        return Err(Error::Statement("the statement is empty".to_owned()));
    };
    if !statements.is_empty() {
        let what = "a query has one statement; run further statements on their own";
        return Err(Error::Statement(what.to_owned()));
    }
    let is_query = matches!(&statement, Statement::Statement(inner)
        if matches!(&**inner, ast::Statement::Query(_)));
    if is_query {
        return Ok(statement);
    }
    let text = statement.to_string();
    let first = text.split_whitespace().next().unwrap_or_default().to_uppercase();
    let what = format!(
        "{first} is not allowed: `fslab sql` runs only SELECT statements over the given tables"
    );
    Err(Error::Statement(what))
}
