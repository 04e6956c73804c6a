//! Tangents by several variables, carried up together.
//!
//! To carry one variable after the other is to carry the tangents by those before it as well: with `n` variables, every node is put
//! together `n` times with up to `n` tangents. Here each is, once; what only one variable needs is left to its [`Carrier`].

use arrow::datatypes::DataType;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, Result, internal_err};
use datafusion_expr::{Aggregate, Expr, LogicalPlan, Projection, ScalarUDF, SubqueryAlias};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_volatile;
use xql_autodiff::vocabulary::types::can_vary;

use super::carrier::{Carried, Carrier, Reading, Variable};
use super::combine::Agreements;
use super::shared_tangents::Grown;
use crate::rows::arguments;
use crate::shared::SharedRelation;
use crate::tangents::linearize::Function;
use crate::tangents::tangent::{Linearized, Tangent, Tangents};
use crate::vocabulary::expressions::unaliased;
use crate::vocabulary::names::{Names, columns};
use crate::vocabulary::nodes::{computed, has_subquery};
use crate::vocabulary::origin::{Origin, origin};

/// A variable among several.
#[derive(Debug)]
pub struct Direction {
    /// The operator that linearizes an expression.
    pub jvp: Arc<ScalarUDF>,
    /// The variable's own name and type.
    pub name: String,
    pub data_type: DataType,
    /// The relations that it comes from.
    pub origins: Vec<LogicalPlan>,
}

/// Carries tangents by several variables.
///
/// They are carried through [plain](is_plain) plans only.
pub struct Several<'a> {
    pub names: &'a mut Names,
    pub grown: &'a mut Grown,
    pub directions: Vec<Direction>,
}

/// A column that a node sees as a variable, and the columns whose tangents by it are wanted.
#[derive(Debug, Clone)]
pub struct Asked {
    pub variable: Variable,
    pub wanted: BTreeSet<usize>,
}

impl Asked {
    /// The tangent of the variable itself, if that is wanted.
    fn of_variable(&self) -> Tangents {
        let mut tangents = Tangents::default();
        if let Variable::Column(index) = self.variable
            && self.wanted.contains(&index)
        {
            tangents.set(index, Tangent::One);
        }
        tangents
    }
}

/// A node whose columns have tangents by each of the variables.
#[derive(Debug)]
pub struct CarriedAll {
    pub plan: LogicalPlan,
    pub tangents: Vec<Tangents>,
}

impl Several<'_> {
    fn carrier(&mut self, number: usize) -> Carrier<'_> {
        let Direction { jvp, name, data_type, origins } = &self.directions[number];
        Carrier {
            names: &mut *self.names,
            jvp: Arc::clone(jvp),
            variable: name.clone(),
            variable_type: data_type.clone(),
            origins: origins.clone(),
            reading: Reading::Together,
            direction: None,
            cell: None,
            grown: &mut *self.grown,
            recursions: vec![],
        }
    }

    /// The node with the tangents that are asked for, by each of the variables.
    #[recursive::recursive]
    pub fn carry(&mut self, plan: LogicalPlan, asked: Vec<Asked>) -> Result<CarriedAll> {
        if asked.iter().all(|asked| asked.wanted.is_empty()) || computes_nothing(&plan) {
            let tangents = asked.iter().map(Asked::of_variable).collect();
            return Ok(CarriedAll { plan, tangents });
        }
        let varying: Vec<_> = plan.schema().fields().iter().map(|field| can_vary(field.data_type())).collect();
        let mut of_variables = vec![];
        let mut rest = vec![];
        for mut asked in asked {
            of_variables.push(asked.of_variable());
            asked.wanted.retain(|index| Variable::Column(*index) != asked.variable && varying[*index]);
            rest.push(asked);
        }
        let mut carried = self.node(plan, rest)?;
        for (tangents, of_variable) in carried.tangents.iter_mut().zip(of_variables) {
            for (index, tangent) in of_variable.iter() {
                tangents.set(index, tangent.clone());
            }
        }
        Ok(carried)
    }

    fn node(&mut self, plan: LogicalPlan, asked: Vec<Asked>) -> Result<CarriedAll> {
        let together = match &plan {
            LogicalPlan::Projection(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::Sort(_)
            | LogicalPlan::Limit(_) => true,
            LogicalPlan::Aggregate(aggregate) => !aggregate.aggr_expr.iter().any(is_volatile),
            _ => false,
        };
        if !together {
            return self.one_by_one(plan, asked);
        }
        let mut below = vec![];
        for Asked { variable, wanted } in asked {
            let source = match variable {
                Variable::Column(index) => match origin(&plan, index)? {
                    Origin::Below(sources) => sources.first().map(|(_, column)| *column),
                    Origin::Here => None,
                },
                Variable::Outer | Variable::Everywhere => None,
            };
            // What does not come from below has no tangents of other columns here.
            below.push(match source {
                Some(column) => Asked { variable: Variable::Column(column), wanted },
                None => Asked { variable: Variable::Outer, wanted: BTreeSet::new() },
            });
        }
        if below.iter().all(|asked| asked.wanted.is_empty()) {
            return Ok(CarriedAll { plan, tangents: vec![Tangents::default(); below.len()] });
        }
        match plan {
            LogicalPlan::Projection(projection) => self.projection(projection, below),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate, below),
            LogicalPlan::SubqueryAlias(alias) => {
                let carried = self.carry(Arc::unwrap_or_clone(alias.input), below)?;
                let tangents = carried.tangents.iter().map(|tangents| tangents.within(&alias.alias)).collect();
                let plan = SubqueryAlias::try_new(Arc::new(carried.plan), alias.alias)?;
                Ok(CarriedAll { plan: LogicalPlan::SubqueryAlias(plan), tangents })
            }
            other => {
                let exprs = other.expressions();
                let carried = self.carry(other.inputs()[0].clone(), below)?;
                let plan = other.with_new_exprs(exprs, vec![carried.plan])?;
                Ok(CarriedAll { plan, tangents: carried.tangents })
            }
        }
    }

    /// The node with tangents by one variable after the other.
    fn one_by_one(&mut self, plan: LogicalPlan, asked: Vec<Asked>) -> Result<CarriedAll> {
        let schema = Arc::clone(plan.schema());
        let mut plan = plan;
        let mut all = vec![];
        for (number, Asked { variable, wanted }) in asked.into_iter().enumerate() {
            if wanted.is_empty() {
                all.push(Tangents::default());
                continue;
            }
            // Tangents by other variables may have moved the columns.
            let now = |index: usize| plan.schema().index_of_column(&Column::from(schema.qualified_field(index)));
            let variable = match variable {
                Variable::Column(index) => Variable::Column(now(index)?),
                other => other,
            };
            let moved = wanted.iter().map(|index| Ok((now(*index)?, *index))).collect::<Result<BTreeMap<_, _>>>()?;
            let wanted = moved.keys().copied().collect();
            let carried = self.carrier(number).carry(plan, variable, &wanted)?;
            plan = carried.plan;
            let mut tangents = Tangents::default();
            for (index, tangent) in carried.tangents.iter() {
                if let Some(index) = moved.get(&index) {
                    tangents.set(*index, tangent.clone());
                }
            }
            all.push(tangents);
        }
        Ok(CarriedAll { plan, tangents: all })
    }

    /// ```text
    /// Projection: p.w, p.b, p.w * d.x + p.b AS q
    /// ```
    ///
    /// becomes
    ///
    /// ```text
    /// Projection: p.w, p.b, p.w * d.x + p.b AS q, jvp(p.w * d.x + p.b, p.w, 1) AS ∂q/∂w, jvp(p.w * d.x + p.b, p.b, 1) AS ∂q/∂b
    /// ```
    fn projection(&mut self, projection: Projection, asked: Vec<Asked>) -> Result<CarriedAll> {
        let Projection { mut expr, input, schema, .. } = projection;
        let mut functions = BTreeMap::new();
        for index in asked.iter().flat_map(|asked| &asked.wanted) {
            if !functions.contains_key(index) {
                functions.insert(*index, Function::of(expr[*index].clone(), input.schema())?);
            }
        }
        let below = asked.iter().map(|asked| {
            let wanted = asked.wanted.iter().flat_map(|index| functions[index].reads()).collect();
            Asked { variable: asked.variable, wanted }
        });
        let carried = self.carry(input.as_ref().clone(), below.collect())?;

        let mut fields: Vec<_> = schema.iter().map(|(table, field)| (table.cloned(), Arc::clone(field))).collect();
        let mut known = self.names.given_to(&expr);
        let mut all = vec![];
        for (number, (asked, below)) in asked.iter().zip(&carried.tangents).enumerate() {
            let mut tangents = Tangents::default();
            for index in &asked.wanted {
                let function = &functions[index];
                let linearized = function.linearize(input.schema(), below, &self.directions[number].jvp)?;
                let tangent = match linearized {
                    Linearized::Known(Tangent::Column(column)) => {
                        let passed = Expr::Column(column.clone());
                        if !expr.contains(&passed) {
                            let carried = carried.plan.schema();
                            let (table, field) = carried.qualified_field(carried.index_of_column(&column)?);
                            fields.push((table.cloned(), Arc::clone(field)));
                            expr.push(passed);
                        }
                        Tangent::Column(column)
                    }
                    Linearized::Known(constant) => constant,
                    Linearized::Derived(derived) => {
                        let name = match known.get(&derived) {
                            Some(name) => name.clone(),
                            None => {
                                let name =
                                    self.names.tangent(schema.field(*index).name(), &self.directions[number].name);
                                let field = function.field_of_derived(&derived, carried.plan.schema())?;
                                fields.push((None, Arc::new(field.as_ref().clone().with_name(&name))));
                                expr.push(derived.clone().alias(name.clone()));
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
        // The types are known: to find them again takes longer than all else.
        let dependencies = schema.functional_dependencies().clone();
        let schema = DFSchema::new_with_metadata(fields, schema.metadata().clone())?;
        let schema = Arc::new(schema.with_functional_dependencies(dependencies)?);
        let plan = Projection::try_new_with_schema(expr, Arc::new(carried.plan), schema)?;
        Ok(CarriedAll { plan: LogicalPlan::Projection(plan), tangents: all })
    }

    /// As [`Carrier::aggregate`], with arguments computed before, so that each is linearized in a projection.
    fn aggregate(&mut self, aggregate: Aggregate, asked: Vec<Asked>) -> Result<CarriedAll> {
        let aggregate = self.computed_before(aggregate)?;
        let Aggregate { input, group_expr, aggr_expr, schema, .. } = &aggregate;
        let computed = computed(&aggregate)?;
        let mut below = vec![];
        for (number, Asked { variable, wanted }) in asked.iter().enumerate() {
            let read = wanted.iter().filter_map(|index| computed[*index]).flat_map(arguments);
            let wanted = self.carrier(number).needs(input, *variable, read)?;
            below.push(Asked { variable: *variable, wanted });
        }
        let CarriedAll { mut plan, tangents } = self.carry(input.as_ref().clone(), below)?;
        let mut agreements = Agreements { aggregates: aggr_expr.clone(), exprs: vec![] };
        let mut exprs = columns(schema);
        let mut all = vec![];
        for (number, (asked, tangents)) in asked.iter().zip(tangents).enumerate() {
            let carried = Carried { plan, tangents };
            let mut carrier = self.carrier(number);
            all.push(carrier.grouped(&aggregate, &carried, &asked.wanted, &mut agreements, &mut exprs)?);
            plan = carried.plan;
        }
        exprs.extend(agreements.exprs);
        let grouped = Aggregate::try_new(Arc::new(plan), group_expr.clone(), agreements.aggregates)?;
        let plan = Projection::try_new(exprs, Arc::new(LogicalPlan::Aggregate(grouped)))?;
        Ok(CarriedAll { plan: LogicalPlan::Projection(plan), tangents: all })
    }

    /// The aggregate over an input that computes the arguments of its functions. Those of one with a FILTER stay, since they may
    /// fail on the rows that it leaves out.
    ///
    /// ```text
    /// Aggregate: aggr=[[avg(exp(w * x) + b) AS m]]            Aggregate: aggr=[[avg(∂argument) AS m]]
    ///   TableScan: t                                            Projection: w, b, x, exp(w * x) + b AS ∂argument
    ///                                                             TableScan: t
    /// ```
    fn computed_before(&mut self, aggregate: Aggregate) -> Result<Aggregate> {
        let Aggregate { input, group_expr, aggr_expr, .. } = aggregate;
        let mut exprs = columns(input.schema());
        let mut replaced = vec![];
        for function in aggr_expr {
            let plain = match unaliased(&function) {
                Expr::AggregateFunction(call) => call.params.filter.is_none() && call.params.order_by.is_empty(),
                _ => return internal_err!("{function} is no aggregate function"),
            };
            if !plain {
                replaced.push(function);
                continue;
            }
            let name = function.qualified_name().1;
            let names = &mut *self.names;
            let computed = unaliased(&function).clone().map_children(|argument| {
                let size = size_of(&argument)?;
                if size < LARGE {
                    return Ok(Transformed::no(argument));
                }
                let column = names.column(argument, &mut exprs, |names| names.part("argument"));
                Ok(Transformed::yes(Expr::Column(column)))
            })?;
            replaced.push(if computed.transformed { computed.data.alias(name) } else { function });
        }
        let added = exprs.len() > input.schema().fields().len();
        let input = if added { Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, input)?)) } else { input };
        Aggregate::try_new(input, group_expr, replaced)
    }
}

/// Whether a plan mixes rows by aggregates alone, so that all rows of a variable may move together, and reads no shared relations.
#[recursive::recursive]
pub fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::TableScan(scan) => return Ok(SharedRelation::scanned(scan).is_none()),
        LogicalPlan::Projection(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Filter(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Limit(_)
        | LogicalPlan::Join(_)
        | LogicalPlan::Values(_)
        | LogicalPlan::EmptyRelation(_) => {}
        _ => return Ok(false),
    }
    for input in plan.inputs() {
        if !is_plain(input)? {
            return Ok(false);
        }
    }
    Ok(!has_subquery(plan)? && !plan.contains_outer_reference())
}

/// Whether a plan passes on columns of tables only, so that none of them varies with another.
#[recursive::recursive]
fn computes_nothing(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::TableScan(_) => return true,
        LogicalPlan::Join(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Filter(_) | LogicalPlan::Sort(_) => {}
        _ => return false,
    }
    plan.inputs().into_iter().all(computes_nothing)
}

/// Arguments with so many parts are computed in a projection.
const LARGE: usize = 16;

fn size_of(expr: &Expr) -> Result<usize> {
    let mut size = 0;
    expr.apply(|_| {
        size += 1;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(size)
}
