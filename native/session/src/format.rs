//! What `datafusion-proto` 55 loses of the file format of `COPY ... TO`.
//!
//! It writes neither the options of a statement nor what its session has set for files, and takes one style of quotes in CSV for another.
//! So the format of a statement is made here, of its text. What a method of a frame writes has its own options in the plan.
//!
//! ```sql
//! COPY (SELECT grad(x * x, x) AS g FROM t) TO 'slopes.csv' OPTIONS ('format.delimiter' ';')
//! ```

use datafusion::common::parsers::CsvQuoteStyle;
use datafusion::common::{DataFusionError, Result, internal_err, plan_err};
use datafusion::datasource::file_format::csv::{CsvFormat, CsvFormatFactory};
use datafusion::datasource::file_format::json::{JsonFormat, JsonFormatFactory};
use datafusion::datasource::file_format::parquet::{ParquetFormat, ParquetFormatFactory};
use datafusion::datasource::file_format::{FileFormatFactory, file_type_to_format};
use datafusion::execution::context::SessionState;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::{CopyToSource, CopyToStatement, DFParser, Statement};
use datafusion_proto::logical_plan::{DefaultLogicalExtensionCodec, LogicalExtensionCodec};
use datafusion_proto::protobuf::{CsvOptions, CsvQuoteStyle as Written, FileFormatKind, FileFormatProto};
use prost::Message;
use std::collections::HashMap;
use std::sync::Arc;

/// The `COPY ... TO` statements of a session, by target file.
#[derive(Debug, Default)]
pub struct CopyStatements(HashMap<String, Vec<CopyToStatement>>);

impl CopyStatements {
    /// Records a statement without its source.
    ///
    /// # Errors
    /// If the parser has changed.
    pub fn record(&mut self, statement: &CopyToStatement) -> Result<()> {
        let entry = CopyToStatement { source: placeholder_source()?, partitioned_by: vec![], ..statement.clone() };
        let entries = self.0.entry(statement.target.clone()).or_default();
        if !entries.contains(&entry) {
            entries.push(entry);
        }
        Ok(())
    }

    /// Finds the statement that writes a file.
    ///
    /// # Errors
    /// If statements of several formats write it.
    pub fn find(&self, target: &str) -> Result<Option<CopyToStatement>> {
        match self.0.get(target).map_or(&[][..], Vec::as_slice) {
            [] => Ok(None),
            [one] => Ok(Some(one.clone())),
            _ => plan_err!(
                "statements of this session copy to {target} in several formats, and a plan does not say which one it is of. Write to \
                 another file, or CREATE TABLE ... AS SELECT and copy that"
            ),
        }
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}

fn placeholder_source() -> Result<CopyToSource> {
    match DFParser::parse_sql("COPY (SELECT 1) TO 'f'")?.pop_front() {
        Some(Statement::CopyTo(statement)) => Ok(statement.source),
        _ => internal_err!("COPY is no statement of its own"),
    }
}

/// Encodes the file format of a statement, with its options and those of the session. Returns `None` for a format without options.
///
/// # Errors
/// If the format has no such option.
pub async fn statement_format(statement: CopyToStatement, state: &SessionState) -> Result<Option<Vec<u8>>> {
    let LogicalPlan::Copy(copy) = state.statement_to_plan(Statement::CopyTo(statement)).await? else {
        return internal_err!("COPY is planned as something else");
    };
    let format = file_type_to_format(&copy.file_type)?.create(state, &copy.options)?;
    let mut quotes = CsvQuoteStyle::Necessary;
    let factory: Arc<dyn FileFormatFactory> = if let Some(csv) = format.downcast_ref::<CsvFormat>() {
        quotes = csv.options().quote_style;
        Arc::new(CsvFormatFactory::new_with_options(csv.options().clone()))
    } else if let Some(json) = format.downcast_ref::<JsonFormat>() {
        Arc::new(JsonFormatFactory::new_with_options(json.options().clone()))
    } else if let Some(parquet) = format.downcast_ref::<ParquetFormat>() {
        Arc::new(ParquetFormatFactory::new_with_options(parquet.options().clone()))
    } else {
        return Ok(None);
    };
    let mut bytes = vec![];
    DefaultLogicalExtensionCodec {}.try_encode_file_format(&mut bytes, factory)?;
    with_quote_style(bytes, quotes).map(Some)
}

/// Sets the style of quotes of an encoded format, if it is CSV.
///
/// # Errors
/// If the bytes are only the beginning of a format.
pub fn with_quote_style(bytes: Vec<u8>, style: CsvQuoteStyle) -> Result<Vec<u8>> {
    let Ok(mut format) = FileFormatProto::decode(bytes.as_slice()) else { return Ok(bytes) };
    if format.kind() != FileFormatKind::Csv {
        return Ok(bytes);
    }
    let mut options = CsvOptions::decode(format.encoded_file_format.as_slice())
        .map_err(|error| DataFusionError::External(Box::new(error)))?;
    options.set_quote_style(match style {
        CsvQuoteStyle::Always => Written::Always,
        CsvQuoteStyle::Necessary => Written::Necessary,
        CsvQuoteStyle::NonNumeric => Written::NonNumeric,
        CsvQuoteStyle::Never => Written::Never,
    });
    format.encoded_file_format = options.encode_to_vec();
    Ok(format.encode_to_vec())
}
