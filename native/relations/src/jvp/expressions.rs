//! The tangents of expressions that a node computes over its input.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Column, DFSchema, DFSchemaRef, Result, TableReference};
use datafusion_expr::Expr;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::direction::Direction;
use super::propagate::{ColumnRequest, NodeRequest, WithTangents};
use crate::tangents::linearize::LinearizedExpr;
use crate::tangents::tangent::{self, Inactive, Linearized, Tangent, Tangents};
use crate::vocabulary::names::Names;

/// The expressions of a node, of which some are linearized.
#[derive(Debug)]
pub struct Expressions {
    /// All of them, and behind them what computes tangents.
    pub exprs: Vec<Expr>,
    /// The types of what computes tangents. To find them again takes longer than all else.
    pub added: Vec<(Option<TableReference>, FieldRef)>,
    input: DFSchemaRef,
    functions: BTreeMap<usize, LinearizedExpr>,
}

impl Expressions {
    /// Creates those of a node over columns of this schema, with the tangents that are asked for to be found.
    pub fn new(exprs: Vec<Expr>, input: &DFSchemaRef, requests: &[NodeRequest]) -> Result<Self> {
        let mut functions = BTreeMap::new();
        for index in requests.iter().flat_map(|request| &request.output.columns) {
            if !functions.contains_key(index) {
                functions.insert(*index, LinearizedExpr::try_new(exprs[*index].clone(), input)?);
            }
        }
        Ok(Self { exprs, added: vec![], input: Arc::clone(input), functions })
    }

    /// Returns what they ask of the input.
    pub fn input_requests(&self, directions: &[Direction], requests: &[NodeRequest]) -> Result<Vec<ColumnRequest>> {
        let to_input = directions.iter().zip(requests).map(|(direction, request)| {
            let mut needs = std::collections::BTreeSet::new();
            for index in &request.output.columns {
                let function = &self.functions[index];
                if function.has_subquery() {
                    direction.check(&self.exprs[*index], request.inputs[0])?;
                }
                needs.extend(function.reads());
            }
            Ok(request.of_input(0, needs))
        });
        to_input.collect()
    }

    /// Adds what computes the tangents in each direction, and gives these.
    pub fn add_tangents(
        &mut self,
        directions: &[Direction],
        requests: &[NodeRequest],
        propagated: &WithTangents,
        names: &mut Names,
    ) -> Result<Vec<Tangents>> {
        let mut known = names.given_to(&self.exprs);
        let schema = propagated.plan.schema();
        let mut all = vec![];
        for ((direction, request), below) in directions.iter().zip(requests).zip(&propagated.tangents) {
            let mut tangents = Tangents::default();
            for index in &request.output.columns {
                let function = &self.functions[index];
                let tangent = match function.linearize(&self.input, below, &direction.jvp)? {
                    Linearized::Known(Tangent::Column(tangent)) => {
                        let inactive = tangent.inactive.iter().map(|inactive| &inactive.column);
                        for column in [&tangent.column].into_iter().chain(inactive) {
                            self.pass_on(column, schema)?;
                        }
                        Tangent::Column(tangent)
                    }
                    Linearized::Known(constant) => constant,
                    Linearized::Derived(derived) => {
                        let field = function.field_of_derived(&derived, schema)?;
                        let inactive = function.inactive(&self.input, below, schema)?;
                        let own = self.exprs[*index].qualified_name().1;
                        let column =
                            self.computed(derived, &field, &mut known, || names.tangent(&own, &direction.variable));
                        let mut inactive_column = None;
                        if let Some(condition) = inactive {
                            let number = Inactive::number(condition)?;
                            let truth = Field::new("", DataType::Int64, false);
                            let column = self.computed(number, &truth, &mut known, || names.part("inactive"));
                            inactive_column = Some(Inactive { column, data_type: field.data_type().clone() });
                        }
                        Tangent::Column(tangent::TangentColumn { column, inactive: inactive_column })
                    }
                };
                tangents.set(*index, tangent);
            }
            all.push(tangents);
        }
        Ok(all)
    }

    /// Passes a column of the input on, unless the node does so.
    fn pass_on(&mut self, column: &Column, schema: &DFSchema) -> Result<()> {
        let passed = Expr::Column(column.clone());
        if !self.exprs.contains(&passed) {
            let (table, field) = schema.qualified_field(schema.index_of_column(column)?);
            self.added.push((table.cloned(), Arc::clone(field)));
            self.exprs.push(passed);
        }
        Ok(())
    }

    /// Returns the column that computes what is added, of this type, unless there is one already.
    fn computed(
        &mut self,
        expr: Expr,
        field: &Field,
        known: &mut HashMap<Expr, String>,
        name: impl FnOnce() -> String,
    ) -> Column {
        let name = known.get(&expr).cloned().unwrap_or_else(|| {
            let name = name();
            self.added.push((None, Arc::new(field.clone().with_name(&name))));
            self.exprs.push(expr.clone().alias(name.clone()));
            known.insert(expr, name.clone());
            name
        });
        Column::new_unqualified(name)
    }
}
