//! `COPY ... TO`, whose file format the host alone reads.

use datafusion_proto::protobuf::LogicalPlanNode;
use datafusion_proto::protobuf::logical_plan_node::LogicalPlanType;

/// What stands around a plan as the host has written it: the file that `COPY ... TO` writes, in a format that the host alone reads.
pub struct Around(pub Option<LogicalPlanNode>);

impl Around {
    /// What stands around a plan, and the plan.
    pub fn taken_from(mut node: LogicalPlanNode) -> (Self, LogicalPlanNode) {
        if let Some(LogicalPlanType::CopyTo(copy)) = &mut node.logical_plan_type
            && let Some(input) = copy.input.take()
        {
            return (Self(Some(node)), *input);
        }
        (Self(None), node)
    }

    /// It around another plan.
    pub fn put(&self, input: LogicalPlanNode) -> LogicalPlanNode {
        let Some(mut node) = self.0.clone() else { return input };
        if let Some(LogicalPlanType::CopyTo(copy)) = &mut node.logical_plan_type {
            copy.input = Some(Box::new(input));
        }
        node
    }
}
