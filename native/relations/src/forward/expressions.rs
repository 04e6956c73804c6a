//! The tangents of expressions that a node computes over its input.

use datafusion_common::{Column, DFSchemaRef, Result, TableReference};
use datafusion_expr::Expr;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::carrier::{Asked, Carried, Request};
use super::direction::Direction;
use crate::tangents::linearize::Function;
use crate::tangents::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::names::Names;
use arrow::datatypes::FieldRef;

/// The expressions of a node, of which some are linearized.
#[derive(Debug)]
pub struct Expressions {
    /// All of them, and behind them what computes tangents.
    pub exprs: Vec<Expr>,
    /// The types of what computes tangents. To find them again takes longer than all else.
    pub added: Vec<(Option<TableReference>, FieldRef)>,
    input: DFSchemaRef,
    functions: BTreeMap<usize, Function>,
}

impl Expressions {
    /// Those of a node over columns of this schema, with the tangents that are asked for to be found.
    pub fn new(exprs: Vec<Expr>, input: &DFSchemaRef, requests: &[Request]) -> Result<Self> {
        let mut functions = BTreeMap::new();
        for index in requests.iter().flat_map(|request| &request.asked.wanted) {
            if !functions.contains_key(index) {
                functions.insert(*index, Function::of(exprs[*index].clone(), input)?);
            }
        }
        Ok(Self { exprs, added: vec![], input: Arc::clone(input), functions })
    }

    /// What they ask of the input.
    pub fn asked(&self, directions: &[Direction], requests: &[Request]) -> Result<Vec<Asked>> {
        let asked = directions.iter().zip(requests).map(|(direction, request)| {
            let mut needs = std::collections::BTreeSet::new();
            for index in &request.asked.wanted {
                let function = &self.functions[index];
                if function.has_subquery() {
                    direction.check(&self.exprs[*index], request.inputs[0])?;
                }
                needs.extend(function.reads());
            }
            Ok(request.of_input(0, needs))
        });
        asked.collect()
    }

    /// Adds what computes the tangents in each direction, and gives these.
    pub fn add_tangents(
        &mut self,
        directions: &[Direction],
        requests: &[Request],
        carried: &Carried,
        names: &mut Names,
    ) -> Result<Vec<Tangents>> {
        let mut known = names.given_to(&self.exprs);
        let schema = carried.plan.schema();
        let mut all = vec![];
        for ((direction, request), below) in directions.iter().zip(requests).zip(&carried.tangents) {
            let mut tangents = Tangents::default();
            for index in &request.asked.wanted {
                let function = &self.functions[index];
                let tangent = match function.linearize(&self.input, below, &direction.jvp)? {
                    Linearized::Known(Tangent::Column(column)) => {
                        let passed = Expr::Column(column.clone());
                        if !self.exprs.contains(&passed) {
                            let (table, field) = schema.qualified_field(schema.index_of_column(&column)?);
                            self.added.push((table.cloned(), Arc::clone(field)));
                            self.exprs.push(passed);
                        }
                        Tangent::Column(column)
                    }
                    Linearized::Known(constant) => constant,
                    Linearized::Derived(derived) => {
                        let name = match known.get(&derived) {
                            Some(name) => name.clone(),
                            None => {
                                let column = self.exprs[*index].qualified_name().1;
                                let name = names.tangent(&column, &direction.variable);
                                let field = function.field_of_derived(&derived, schema)?;
                                self.added.push((None, Arc::new(field.as_ref().clone().with_name(&name))));
                                self.exprs.push(derived.clone().alias(name.clone()));
                                known.insert(derived, name.clone());
                                name
                            }
                        };
                        Tangent::Column(Column::new_unqualified(name))
                    }
                };
                tangents.set(*index, tangent);
            }
            all.push(tangents);
        }
        Ok(all)
    }
}
