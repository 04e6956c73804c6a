//! `COPY ... TO`, whose file format the host alone reads.

use datafusion::common::Result;
use datafusion::common::parsers::CsvQuoteStyle;
use datafusion_proto::protobuf::LogicalPlanNode;
use datafusion_proto::protobuf::logical_plan_node::LogicalPlanType;

use crate::format::with_quote_style;

/// What stands around a plan as the host has written it: the file that `COPY ... TO` writes, in a format that the host alone reads.
pub struct CopyTarget(pub Option<LogicalPlanNode>);

impl CopyTarget {
    /// What stands around a plan, and the plan.
    pub fn split_from(mut node: LogicalPlanNode) -> (Self, LogicalPlanNode) {
        if let Some(LogicalPlanType::CopyTo(copy)) = &mut node.logical_plan_type
            && let Some(input) = copy.input.take()
        {
            return (Self(Some(node)), *input);
        }
        (Self(None), node)
    }

    /// The file that is written.
    pub fn url(&self) -> Option<&str> {
        match &self.0.as_ref()?.logical_plan_type {
            Some(LogicalPlanType::CopyTo(copy)) => Some(&copy.output_url),
            _ => None,
        }
    }

    /// The same with this format of the file, or with the one that it has, in which quotes stand where they have to: a frame says
    /// nothing else, and `datafusion-proto` writes another style.
    ///
    /// # Errors
    /// If the format cannot be read.
    pub fn with_format(mut self, format: Option<Vec<u8>>) -> Result<Self> {
        if let Some(node) = &mut self.0
            && let Some(LogicalPlanType::CopyTo(copy)) = &mut node.logical_plan_type
        {
            copy.file_type = match format {
                Some(format) => format,
                None => with_quote_style(std::mem::take(&mut copy.file_type), CsvQuoteStyle::Necessary)?,
            };
        }
        Ok(self)
    }

    /// It around another plan.
    pub fn wrap(&self, input: LogicalPlanNode) -> LogicalPlanNode {
        let Some(mut node) = self.0.clone() else { return input };
        if let Some(LogicalPlanType::CopyTo(copy)) = &mut node.logical_plan_type {
            copy.input = Some(Box::new(input));
        }
        node
    }
}
