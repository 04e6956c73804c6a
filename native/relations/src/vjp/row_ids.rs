//! Row numbers of the relations in which variables originate.
//!
//! A gradient by row has a cotangent for each row of such a relation. The relation is materialized with a number for
//! each row, and FROM and the subqueries read that. So the cotangents can be joined to the rows of FROM by number, even
//! if two rows are equal.

use arrow::datatypes::FieldRef;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{
    Column, DFSchema, DFSchemaRef, Result, ScalarValue, TableReference, UnnestOptions, internal_err, plan_err,
};
use datafusion_expr::expr::AggregateFunction;
use datafusion_expr::{Aggregate, Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Projection, TableSource, Union};
use datafusion_functions_aggregate::array_agg::array_agg_udaf;
use datafusion_functions_aggregate::expr_fn::min;
use std::cell::RefCell;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::plan::pull_up_column::pull_up_column;
use crate::plan::union::widened_union;
use crate::shared_relation::{SharedRelation, common_rewritten};
use crate::vocabulary::identity::{Occurrence, PlanPath, Relation, is_same, occurrences};
use crate::vocabulary::names::{Names, columns, named};
use crate::vocabulary::nodes::{draws_itself, non_query_nodes};
use crate::vocabulary::origin::{Origin, origin};
use crate::vocabulary::source::{Source, sources_of};

/// Columns of one relation that are the variables of derivatives by row.
///
/// FROM and the subqueries read the same numbered rows of the relation.
pub struct RowVariable {
    /// The identity of the relation in the statement.
    origin: Relation,
    /// The columns of the numbered rows.
    shown: DFSchemaRef,
    /// The positions of the columns in it.
    pub columns: Vec<usize>,
    relation: Arc<SharedRelation>,
    /// The numbered rows as a table, the same object for all scans.
    table: Arc<dyn TableSource>,
    /// The scan that replaces each occurrence of the origin. Copies of a query get the same scan, and stay copies.
    scans: RefCell<HashMap<Vec<Occurrence>, LogicalPlan>>,
}

impl RowVariable {
    /// Creates the variables for columns of a node `shown` in FROM. The node may have more columns than the `origin`
    /// that subqueries read: the numbers of the rows from which it is computed. `computed` is the node without calls of
    /// the operators.
    pub fn try_new(
        origin: Relation,
        shown: &LogicalPlan,
        computed: LogicalPlan,
        variables: &[usize],
        names: &mut Names,
    ) -> Result<Self> {
        let shown = Arc::clone(shown.schema());
        let variables = variables.iter().map(|index| position(&shown, origin.node.schema().qualified_field(*index)));
        let variables = variables.collect::<Result<_>>()?;
        let relation = match numbered_before(&computed) {
            Some(known) => known,
            None => {
                let exprs = columns(computed.schema());
                let computed = named(computed, &exprs, names)?;
                let table = names.part("rows");
                Arc::new(SharedRelation::numbered(table, computed, &names.part("row")))
            }
        };
        let table = relation.read_as(relation.columns());
        Ok(Self { origin, shown, columns: variables, relation, table, scans: RefCell::default() })
    }

    /// Returns the numbered rows.
    pub fn relation(&self) -> &Arc<SharedRelation> {
        &self.relation
    }

    /// Returns a scan of the numbered rows: the columns of the origin in their order, and the number of the row.
    pub fn scan(&self) -> Result<LogicalPlan> {
        self.relation.scan_of(&self.table)
    }

    /// Returns whether a node scans the numbered rows.
    pub fn is_scan(&self, plan: &LogicalPlan) -> bool {
        self.relation.is_scan(plan)
    }

    /// Returns whether a plan, a subquery or a shared relation in it reads the numbered rows.
    pub fn is_read_by(&self, plan: &LogicalPlan) -> Result<bool> {
        self.relation.is_read_by(plan)
    }

    /// Rewrites a relation that is computed from this one to read the numbered rows.
    pub fn rewrite_relation(&self, other: &mut Relation) -> Result<()> {
        let node = std::mem::take(&mut other.node);
        other.node = self.rewrite_at(node, other.path())?;
        Ok(())
    }

    /// Rewrites every reference to the relation in a plan to read the numbered rows.
    pub fn rewrite_readers(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        self.rewrite_at(plan, &PlanPath::default())
    }

    /// Rewrites a plan at this path, and the CTEs that it scans, to read the numbered rows.
    fn rewrite_at(&self, plan: LogicalPlan, path: &PlanPath) -> Result<LogicalPlan> {
        let replaced = |plan, path: &PlanPath| self.origin.replaced(plan, path, &|node| self.scan_for(node, None));
        let plan = common_rewritten(plan, &mut |plan| replaced(plan, &PlanPath::default()))?;
        Ok(replaced(plan, path)?.data)
    }

    /// Returns a scan of the numbered rows that replaces a node. With `row`, it also has the number of the row, under
    /// that name.
    fn scan_for(&self, node: &LogicalPlan, row: Option<&str>) -> Result<LogicalPlan> {
        let columns_of = node.schema();
        let scan = match self.scans.borrow_mut().entry(occurrences(node)) {
            Entry::Occupied(known) => known.get().clone(),
            Entry::Vacant(place) => place.insert(self.scan()?).clone(),
        };
        let read = columns(scan.schema());
        let number = read.last().cloned();
        let mut exprs = vec![];
        let is_all = columns_of.fields().len() == self.shown.fields().len();
        for (index, (table, field)) in columns_of.iter().enumerate() {
            // The node may have the same table under another alias.
            let index = if is_all { index } else { position(&self.shown, (table, field))? };
            exprs.push(read[index].clone().alias_qualified(table.cloned(), field.name()));
        }
        exprs.extend(row.and_then(|row| Some(number?.alias(row))));
        Ok(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(scan))?))
    }

    /// Pulls up the row number of a variable: returns the plan with a further column, the number of the row from which
    /// column number `index` comes. A column of a union has several sources, and `place` is the number of one of them.
    ///
    /// ```text
    /// Filter: w.val > 0                     Filter: w.val > 0
    ///   TableScan: w                 ->       Projection: w.k, w.val, ∂row
    ///                                           TableScan: ∂rows
    /// ```
    pub fn pull_up_number(
        &self,
        plan: LogicalPlan,
        index: usize,
        place: usize,
        names: &mut Names,
    ) -> Result<(LogicalPlan, Reference)> {
        let mut groups = None;
        let (plan, number) = pull_up_column(plan, index, names, &mut |node, index, names| {
            if origin(node, index)? == Origin::Here {
                let row = names.part("row");
                return Ok(Some((self.scan_for(node, Some(&row))?, Column::new_unqualified(row))));
            }
            let (plan, found) = match node {
                LogicalPlan::Projection(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Sort(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::Repartition(_)
                | LogicalPlan::Window(_)
                | LogicalPlan::Unnest(_)
                | LogicalPlan::Distinct(Distinct::On(_))
                | LogicalPlan::Join(_) => return Ok(None),
                LogicalPlan::Union(union) => self.in_branch(union, index, place, names)?,
                LogicalPlan::Aggregate(aggregate) => self.grouped(aggregate, index, place, names)?,
                LogicalPlan::Distinct(Distinct::All(input)) => {
                    let groups = Aggregate::try_new(Arc::clone(input), columns(input.schema()), vec![])?;
                    self.grouped(&groups, index, place, names)?
                }
                LogicalPlan::TableScan(_)
                | LogicalPlan::EmptyRelation(_)
                | LogicalPlan::Subquery(_)
                | LogicalPlan::Values(_)
                | LogicalPlan::RecursiveQuery(_)
                | LogicalPlan::Extension(_)
                | non_query_nodes!() => {
                    return plan_err!(
                        "xql-ffi cannot follow the rows of the variable through {}. Take the derivative below it, in a CTE",
                        node.display()
                    );
                }
            };
            groups = found.groups;
            Ok(Some((plan, found.number)))
        })?;
        Ok((plan, Reference { number, groups }))
    }

    /// Pulls the row number up from one branch of a union. It is NULL in the rows of the other branches.
    fn in_branch(
        &self,
        union: &Union,
        index: usize,
        mut place: usize,
        names: &mut Names,
    ) -> Result<(LogicalPlan, Reference)> {
        let mut found = None;
        let mut inputs = vec![];
        for input in &union.inputs {
            let places = sources_of(input, index)?.len();
            if found.is_none() && place < places {
                let (input, reference) = self.pull_up_number(input.as_ref().clone(), index, place, names)?;
                inputs.push((input, Expr::Column(reference.number)));
                found = Some(reference.groups);
            } else {
                place = place.saturating_sub(places);
                // DataFusion drops the qualifiers of a union's inputs, and may restore them later.
                let input = input.as_ref().clone().recompute_schema()?;
                inputs.push((input, Expr::Literal(ScalarValue::UInt64(None), None)));
            }
        }
        let Some(groups) = found else { return internal_err!("a union has no branch of a variable") };
        let name = names.part("row");
        let mut widened = vec![];
        for ((input, number), before) in inputs.into_iter().zip(&union.inputs) {
            let mut exprs = vec![];
            for (table, field) in before.schema().iter() {
                let column = input.schema().qualified_field(position(input.schema(), (table, field))?);
                exprs.push(Expr::Column(Column::from(column)).alias_qualified(table.cloned(), field.name()));
            }
            exprs.push(number.alias(name.clone()));
            widened.push(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(input))?)));
        }
        Ok((widened_union(union, widened)?, Reference { number: Column::new_unqualified(name), groups }))
    }

    /// Pulls row numbers up through an aggregation: each group gets the least row number of its rows as its own number.
    ///
    /// ```text
    /// Aggregate: groupBy=[[w.val]]            Aggregate: groupBy=[[w.val]], aggr=[[min(∂row) AS ∂group]]
    ///   TableScan: w                   ->       Projection: w.k, w.val, ∂row
    ///                                             TableScan: ∂rows
    /// ```
    fn grouped(
        &self,
        aggregate: &Aggregate,
        index: usize,
        place: usize,
        names: &mut Names,
    ) -> Result<(LogicalPlan, Reference)> {
        let node = LogicalPlan::Aggregate(aggregate.clone());
        let (Origin::Below(below), false) =
            (origin(&node, index)?, matches!(aggregate.group_expr.as_slice(), [Expr::GroupingSet(_)]))
        else {
            return plan_err!(
                "xql-ffi cannot follow the rows of the variable through grouping sets. Take the derivative below them"
            );
        };
        let Some((_, below)) = below.first() else { return internal_err!("a group has no rows") };
        // Each branch of a union is followed by itself: a row that reaches a group by two branches would count twice.
        let sources = sources_of(&aggregate.input, *below)?;
        let name = |source: &Source| source.origin.schema().field(source.position).name().clone();
        let is_repeated = sources.iter().enumerate().any(|(place, source)| {
            let same = |other: &Source| name(other) == name(source) && is_same(&other.origin, &source.origin);
            sources[..place].iter().any(same)
        });
        if is_repeated {
            return plan_err!(
                "rows of one variable come into {} by several branches of a UNION. Take the derivative below it, in a CTE",
                node.display()
            );
        }
        let (input, reference) = self.pull_up_number(aggregate.input.as_ref().clone(), *below, place, names)?;
        if reference.groups.is_some() || !is_in_one_group(&input, aggregate.group_expr.len() == 1)? {
            return plan_err!(
                "xql-ffi does not know which rows of a variable are in a group of {}. Take the derivative below it, in a CTE",
                node.display()
            );
        }
        let row = Expr::Column(reference.number);
        let groups = |aggregates: Vec<Expr>| {
            Aggregate::try_new(Arc::new(input.clone()), aggregate.group_expr.clone(), aggregates)
        };
        let [number, of, rows] = ["group", "group", "row"].map(|name| names.part(name));
        let mut aggregates = aggregate.aggr_expr.clone();
        aggregates.push(min(row.clone()).alias(number.clone()));
        let plan = LogicalPlan::Aggregate(groups(aggregates)?);
        let all = AggregateFunction::new_udf(array_agg_udaf(), vec![row.clone()], true, None, vec![], None);
        let members = groups(vec![min(row).alias(of.clone()), Expr::AggregateFunction(all).alias(rows.clone())])?;
        let [of, rows] = [of, rows].map(Column::new_unqualified);
        let members = LogicalPlanBuilder::from(LogicalPlan::Aggregate(members))
            .project([of, rows.clone()].map(Expr::Column))?
            .unnest_column_with_options(rows, UnnestOptions::default().with_preserve_nulls(false))?
            .build()?;
        Ok((plan, Reference { number: Column::new_unqualified(number), groups: Some(members) }))
    }
}

/// Returns the numbered relation that a plan scans in full, if it does. Another node has the same variable then.
fn numbered_before(plan: &LogicalPlan) -> Option<Arc<SharedRelation>> {
    let relation = SharedRelation::scanned_by(plan).filter(|relation| relation.is_numbered())?;
    (relation.columns().count() == plan.schema().fields().len()).then_some(relation)
}

/// The columns by which a row of a plan refers to rows of a variable.
pub struct Reference {
    /// The number of the row, or of the group of rows.
    pub number: Column,
    /// For groups: pairs of the number of a group and the number of one of its rows.
    pub groups: Option<LogicalPlan>,
}

/// Returns whether each row of a variable is in only one group of the rows of a plan, and in the same group when the
/// plan is computed again. A join may repeat rows: the copies have the same variable as a key, but may differ in
/// further keys.
fn is_in_one_group(plan: &LogicalPlan, is_only_key: bool) -> Result<bool> {
    let mut is = true;
    plan.apply_with_subqueries(|node| {
        is &= match node {
            LogicalPlan::TableScan(_)
            | LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::Union(_)
            | LogicalPlan::Values(_)
            | LogicalPlan::EmptyRelation(_) => true,
            LogicalPlan::Sort(sort) => sort.fetch.is_none(),
            LogicalPlan::Join(_) => is_only_key,
            LogicalPlan::Window(_)
            | LogicalPlan::Aggregate(_)
            | LogicalPlan::Repartition(_)
            | LogicalPlan::Subquery(_)
            | LogicalPlan::Limit(_)
            | LogicalPlan::Distinct(_)
            | LogicalPlan::Unnest(_)
            | LogicalPlan::RecursiveQuery(_)
            | LogicalPlan::Extension(_)
            | non_query_nodes!() => false,
        };
        is &= !draws_itself(node);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(is)
}

fn position(schema: &DFSchema, (table, field): (Option<&TableReference>, &FieldRef)) -> Result<usize> {
    let found = schema.index_of_column_by_name(table, field.name());
    found.map_or_else(|| internal_err!("the rows of a variable have no column {}", field.name()), Ok)
}
