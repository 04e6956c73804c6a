//! The target of `COPY ... TO`, whose file format only the host can decode.

use datafusion::common::Result;
use datafusion::common::parsers::CsvQuoteStyle;
use datafusion_proto::protobuf::LogicalPlanNode;
use datafusion_proto::protobuf::logical_plan_node::LogicalPlanType;

use crate::format::with_quote_style;

/// The `COPY ... TO` node of a plan without its input, as the host has encoded it; `None` for other statements.
pub struct CopyTarget(pub Option<LogicalPlanNode>);

impl CopyTarget {
    /// Splits an encoded plan into its target and its input.
    pub fn split_from(mut node: LogicalPlanNode) -> (Self, LogicalPlanNode) {
        if let Some(LogicalPlanType::CopyTo(copy)) = &mut node.logical_plan_type
            && let Some(input) = copy.input.take()
        {
            return (Self(Some(node)), *input);
        }
        (Self(None), node)
    }

    /// Returns the URL of the file.
    pub fn url(&self) -> Option<&str> {
        match &self.0.as_ref()?.logical_plan_type {
            Some(LogicalPlanType::CopyTo(copy)) => Some(&copy.output_url),
            _ => None,
        }
    }

    /// Sets the file format. Without one, it keeps the format of the plan with quotes where necessary: a method of a data frame has no
    /// other style, and `datafusion-proto` encodes another one.
    ///
    /// # Errors
    /// If the format cannot be decoded.
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

    /// Puts the target on another input.
    pub fn wrap(&self, input: LogicalPlanNode) -> LogicalPlanNode {
        let Some(mut node) = self.0.clone() else { return input };
        if let Some(LogicalPlanType::CopyTo(copy)) = &mut node.logical_plan_type {
            copy.input = Some(Box::new(input));
        }
        node
    }
}
