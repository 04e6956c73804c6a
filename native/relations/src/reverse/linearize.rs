//! Regions and stages of plans.

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, JoinType, NullEquality, Result, internal_err, plan_err};
use datafusion_expr::builder::unnest_with_options;
use datafusion_expr::expr::{AggregateFunction, Exists, InSubquery, SetComparison};
use datafusion_expr::logical_plan::{JoinConstraint, Sort, Subquery};
use datafusion_expr::{
    Aggregate, Distinct, Expr, ExprSchemable, Filter, Join, Limit, LogicalPlan, Projection, Union, Unnest, lit, when,
};
use datafusion_functions_aggregate::count::count_all;
use datafusion_functions_aggregate::first_last::first_value;
use std::collections::HashSet;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::{columns_read, is_volatile};
use xql_autodiff::vocabulary::messages::abbreviated;
use xql_autodiff::vocabulary::types::can_vary;

use super::grouping;
use super::nodes::Node;
use super::partials::Partials;
use super::region::{Leaf, Region, StageId, told_apart};
use super::stage::{Rows, Stages, renamed};
use super::variable::{RowVariable, named};
use crate::shared::SharedRelation;
use crate::vocabulary::expressions::{failing, unaliased};
use crate::vocabulary::names::{Names, columns, with_columns};
use crate::vocabulary::origin::is_unnested;

/// How many rows a group has.
#[derive(Debug, Clone, Copy)]
pub enum Members {
    /// One, or it is an error when the query runs.
    One,
    Any,
}

/// Makes regions of plans, and stages of what they read.
pub struct Linearizer<'a> {
    pub names: &'a mut Names,
    pub variables: &'a [RowVariable],
    pub stages: &'a mut Stages,
    /// How many readers the relation has of which a region is being made.
    pub readers: usize,
}

impl Linearizer<'_> {
    /// The region of the one row that a scalar subquery is, none if it does not read the rows of a variable.
    pub fn value(&mut self, subquery: &Subquery) -> Result<Option<Region>> {
        let node = self.stages.nodes.enter(&subquery.subquery, self.variables)?;
        node.reads.then(|| self.subquery(subquery)).transpose()
    }

    fn subquery(&mut self, subquery: &Subquery) -> Result<Region> {
        if !subquery.outer_ref_columns.is_empty() {
            return plan_err!(
                "the correlated subquery {} reads the relation of the variable. Write it as a join",
                abbreviated(&Expr::ScalarSubquery(subquery.clone()))
            );
        }
        self.only_row(&subquery.subquery)
    }

    /// What is known of a node of the value.
    fn node(&mut self, plan: &LogicalPlan) -> Result<Node> {
        self.stages.nodes.of(plan, self.variables)
    }

    /// The region of a plan that always has one row.
    fn only_row(&mut self, plan: &LogicalPlan) -> Result<Region> {
        let region = self.region(plan)?;
        if region.single { Ok(region) } else { self.first_of_one(region) }
    }

    /// The region of a plan.
    #[recursive::recursive]
    pub fn region(&mut self, plan: &LogicalPlan) -> Result<Region> {
        let node = self.node(plan)?;
        let variable = self.variables.iter().position(|variable| variable.is_scan(plan));
        // What an inner gradient reads is computed anew with what a sweep through it reads.
        if let Some(shared) = SharedRelation::scanned_by(plan).filter(|_| node.reads && variable.is_none()) {
            return self.shared(node, &shared);
        }
        if let Some((stage, width)) = self.stages.of(node) {
            return self.stages.reader(stage, width, self.names);
        }
        if !node.reads {
            return self.constant(plan, node);
        }
        if let Some(number) = variable {
            let relation = Arc::clone(self.variables[number].relation());
            let columns = self.variables[number].columns.clone();
            let stage = self.stages.scanned(relation, false, columns, Rows::Variable(number));
            let width = plan.schema().fields().len();
            self.stages.know(node, stage, width);
            return self.stages.reader(stage, width, self.names);
        }
        match plan {
            LogicalPlan::SubqueryAlias(alias) => self.relation(node, &alias.input),
            LogicalPlan::Subquery(Subquery { subquery, .. }) => self.region(subquery),
            LogicalPlan::Repartition(repartition) => self.region(&repartition.input),
            LogicalPlan::Projection(Projection { expr, input, .. }) => {
                let mut region = self.region(input)?;
                region.columns = self.computed(&mut region, expr, input.schema())?;
                if expr.iter().any(is_volatile) { self.settled(node, region) } else { Ok(region) }
            }
            LogicalPlan::Filter(Filter { predicate, input, .. }) => {
                let mut region = self.region(input)?;
                let predicate = self.inside(&mut region, predicate, input.schema())?;
                region.plan = LogicalPlan::Filter(Filter::try_new(predicate.clone(), Arc::new(region.plan))?);
                region.single = false;
                if is_volatile(&predicate) { self.settled(node, region) } else { Ok(region) }
            }
            LogicalPlan::Sort(Sort { expr, input, fetch }) => {
                let mut region = self.region(input)?;
                let mut order = vec![];
                for sort in expr {
                    order.push(sort.with_expr(self.inside(&mut region, &sort.expr, input.schema())?));
                }
                region.plan = LogicalPlan::Sort(Sort { expr: order, input: Arc::new(region.plan), fetch: *fetch });
                region.single = region.single && fetch.is_none();
                if fetch.is_some() || expr.iter().any(|sort| is_volatile(&sort.expr)) {
                    self.settled(node, region)
                } else {
                    Ok(region)
                }
            }
            LogicalPlan::Limit(Limit { skip, fetch, input }) => {
                let mut region = self.region(input)?;
                let input = Arc::new(region.plan);
                region.plan = LogicalPlan::Limit(Limit { skip: skip.clone(), fetch: fetch.clone(), input });
                region.single = false;
                self.settled(node, region)
            }
            LogicalPlan::Join(join) => self.join(node, join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::Window(window) => self.window(node, window),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(node, aggregate),
            LogicalPlan::Distinct(Distinct::All(input)) => {
                let keys = columns(input.schema());
                self.aggregate(node, &Aggregate::try_new(Arc::clone(input), keys, vec![])?)
            }
            LogicalPlan::Distinct(Distinct::On(on)) => {
                let groups = self.stages.nodes.keep(grouping::first_rows(on)?);
                self.region(&groups)
            }
            LogicalPlan::Unnest(unnest) => self.unnest(unnest),
            LogicalPlan::RecursiveQuery(query) => plan_err!(
                "{} is a recursive query that reads the variable, and derivatives by row are not followed through its \
                 iterations. Differentiate by a column of one row, or by jvp along a direction",
                query.name
            ),
            other => plan_err!(
                "derivatives by row are not followed through {}",
                other.display().to_string().lines().next().unwrap_or_default()
            ),
        }
    }

    /// The region of a CTE, view or derived table. One that has several readers is computed once, unless that is cheap.
    fn relation(&mut self, node: Node, plan: &LogicalPlan) -> Result<Region> {
        if matches!(plan, LogicalPlan::SubqueryAlias(_)) {
            return self.region(plan);
        }
        // What it reads has its readers too, as parts of it.
        let around = self.readers;
        self.readers = around.max(self.stages.nodes.times(node));
        let region = self.region(plan);
        let several = std::mem::replace(&mut self.readers, around) > around;
        let region = region?;
        if several && !region.single && !is_read_again_as_it_is(&region.plan)? {
            return self.settled(node, region);
        }
        Ok(region)
    }

    /// What does not vary. It is computed once if it is much to compute, or if it might be other rows the second time.
    fn constant(&mut self, plan: &LogicalPlan, node: Node) -> Result<Region> {
        let single = matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty());
        if is_read_again_as_it_is(plan)? {
            let region = renamed(plan.clone(), self.names)?;
            return Ok(Region { single, ..region });
        }
        let width = plan.schema().fields().len();
        let region = renamed(plan.clone(), self.names)?;
        let stage = self.stages.add("constants", region.plan, true, vec![], Rows::Constant, self.names);
        self.stages.know(node, stage, width);
        let region = self.stages.reader(stage, width, self.names)?;
        Ok(Region { single, ..region })
    }

    /// The region of a shared relation. The numbers of its rows are those of the stage that it becomes.
    fn shared(&mut self, node: Node, relation: &SharedRelation) -> Result<Region> {
        let (stage, width) = match self.stages.of(node) {
            Some(known) => known,
            None => {
                let region = self.region(relation.plan())?;
                let width = region.columns.len();
                let stage = self.same(region)?;
                self.stages.know(node, stage, width);
                (stage, width)
            }
        };
        if relation.is_numbered() {
            return self.stages.numbered(stage, width, self.names);
        }
        self.stages.reader(stage, width, self.names)
    }

    /// The rows of a region computed once, because they might be others the second time.
    pub fn settled(&mut self, node: Node, region: Region) -> Result<Region> {
        let width = region.columns.len();
        let stage = self.same(region)?;
        self.stages.know(node, stage, width);
        self.stages.reader(stage, width, self.names)
    }

    /// A stage with the rows of a region. Its first columns are those of the node that the region stands for, the others what a
    /// sweep through the region reads.
    pub fn same(&mut self, mut region: Region) -> Result<StageId> {
        let repeated = std::mem::take(&mut region.columns);
        region.columns = region.apart(repeated, self.names)?;
        let mut all = region.columns.clone();
        let mut read: HashSet<_> = region.steps.iter().flat_map(|step| columns_read(&step.expr)).collect();
        read.extend(region.leaves.iter().filter_map(|leaf| leaf.row.clone()));
        let others = region.plan.schema().columns().into_iter();
        all.extend(others.filter(|column| !region.columns.contains(column) && read.contains(column)));
        for leaf in &mut region.leaves {
            leaf.own.clear();
        }
        let exprs: Vec<_> = all.iter().cloned().map(Expr::Column).collect();
        let plan = named(std::mem::take(&mut region.plan), &exprs, self.names)?;
        let table = self.names.part("rows");
        let relation = Arc::new(SharedRelation::numbered(table, plan, &self.names.part("row")));
        let scan = relation.scan()?;
        let own = columns(scan.schema()).into_iter().zip(&all);
        let own = own.map(|(column, own)| column.alias_qualified(own.relation.clone(), own.name.clone()));
        let mut own: Vec<_> = own.collect();
        let row = Column::new_unqualified(self.names.part("row"));
        own.extend(columns(scan.schema()).pop().map(|number| number.alias(row.name.clone())));
        region.plan = LogicalPlan::Projection(Projection::try_new(own, Arc::new(scan))?);
        let varying: Vec<_> =
            (0..region.columns.len()).filter(|index| region.varying.contains(&region.columns[*index].name)).collect();
        let columns = varying.iter().map(|index| region.columns[*index].clone()).collect();
        region.columns.push(row);
        Ok(self.stages.scanned(relation, false, varying, Rows::Same { below: region, columns }))
    }

    /// An expression over a node, over the region of that node. Subqueries in it that vary are joined to the region.
    pub fn inside(&mut self, region: &mut Region, expr: &Expr, schema: &DFSchema) -> Result<Expr> {
        let known = |column: &Column, region: &Region| {
            let index = schema.maybe_index_of_column(column)?;
            region.columns.get(index).cloned()
        };
        let inside = expr.clone().transform_down(|part| match part {
            Expr::Column(column) => {
                let Some(known) = known(&column, region) else {
                    return internal_err!("{column} is no column of the region ({schema})");
                };
                Ok(Transformed::yes(Expr::Column(known)))
            }
            Expr::ScalarSubquery(subquery) if self.node(&subquery.subquery)?.reads => {
                let value = self.subquery(&subquery)?;
                let Some(column) = value.columns.first().cloned() else {
                    return plan_err!("the subquery {} has no column", abbreviated(&Expr::ScalarSubquery(subquery)));
                };
                let width = region.columns.len();
                let own = std::mem::replace(region, Region::constant(LogicalPlan::default(), vec![], false));
                let nulls = NullEquality::NullEqualsNothing;
                let both = own.joined(value, vec![], None, JoinType::Inner, nulls)?;
                *region = both;
                region.columns.truncate(width);
                Ok(Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump))
            }
            part => {
                let renamed = with_outer_columns(part, &|column| known(column, region))?;
                Ok(Transformed::yes(renamed))
            }
        })?;
        Ok(inside.data)
    }

    /// Adds expressions over a node to the region of that node, and gives the columns that they are.
    pub fn computed(&mut self, region: &mut Region, exprs: &[Expr], schema: &DFSchema) -> Result<Vec<Column>> {
        let mut inside = vec![];
        for expr in exprs {
            inside.push((expr.qualified_name().1, self.inside(region, expr, schema)?));
        }
        region.add(inside, self.names)
    }

    fn join(&mut self, node: Node, join: &Join) -> Result<Region> {
        let [mut left, mut right] = [self.region(&join.left)?, self.region(&join.right)?];
        let mut on = vec![];
        for (a, b) in &join.on {
            on.push((self.inside(&mut left, a, join.left.schema())?, self.inside(&mut right, b, join.right.schema())?));
        }
        let filter = match &join.filter {
            None => None,
            Some(filter) => {
                let both = join.left.schema().join(join.right.schema())?;
                let columns = left.columns.iter().chain(&right.columns).cloned().collect();
                let mut region = Region::constant(LogicalPlan::default(), columns, false);
                let filter = self.inside(&mut region, filter, &both)?;
                if !region.leaves.is_empty() {
                    return plan_err!(
                        "the condition of a join has a subquery that reads the variable. Put it in WHERE"
                    );
                }
                Some(filter)
            }
        };
        let volatile = filter.iter().chain(on.iter().flat_map(|(a, b)| [a, b])).any(is_volatile);
        let is_cross = join.filter.is_none() && join.on.is_empty() && join.join_type == JoinType::Inner;
        let single = left.single && right.single && is_cross;
        let nulls = match join.null_equality {
            NullEquality::NullEqualsNull if join.join_type == JoinType::Inner => {
                on = told_apart(on, &left.plan, &right.plan)?;
                NullEquality::NullEqualsNothing
            }
            nulls => nulls,
        };
        let plan = LogicalPlan::Join(Join::try_new(
            Arc::new(std::mem::take(&mut left.plan)),
            Arc::new(std::mem::take(&mut right.plan)),
            on,
            filter,
            join.join_type,
            JoinConstraint::On,
            nulls,
            join.null_aware,
        )?);
        let region = match join.join_type {
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => {
                left.take_in(&mut right);
                left
            }
            JoinType::LeftSemi | JoinType::LeftAnti => left,
            JoinType::RightSemi | JoinType::RightAnti => right,
            other => return plan_err!("derivatives by row are not followed through a join of type {other}"),
        };
        let region = Region { plan, single, ..region };
        if volatile { self.settled(node, region) } else { Ok(region) }
    }

    /// Every row of a union is of one of its inputs. The others have no row there.
    ///
    /// ```text
    /// Union                 Union
    ///   Projection: a         Projection: a, ∂row of the first, NULL
    ///   Projection: b   ->    Projection: b, NULL, ∂row of the second
    /// ```
    fn union(&mut self, union: &Union) -> Result<Region> {
        let width = union.schema.fields().len();
        let mut readers = vec![];
        for input in &union.inputs {
            let region = self.region(input)?;
            let stage = self.same(region)?;
            readers.push(self.stages.reader(stage, width, self.names)?);
        }
        let names: Vec<_> = union.schema.fields().iter().map(|field| self.names.part(field.name())).collect();
        let rows: Vec<_> = readers.iter().map(|_| self.names.part("row")).collect();
        let mut inputs = vec![];
        let mut leaves = vec![];
        let mut varying = std::collections::BTreeSet::new();
        for (number, reader) in readers.into_iter().enumerate() {
            let columns = reader.columns.iter().zip(&names);
            let mut exprs: Vec<_> =
                columns.map(|(column, name)| Expr::Column(column.clone()).alias(name.clone())).collect();
            for (other, name) in rows.iter().enumerate() {
                let row = reader.leaves.first().and_then(|leaf| leaf.row.clone()).filter(|_| other == number);
                let none = || Expr::Literal(datafusion_common::ScalarValue::UInt64(None), None);
                exprs.push(row.map_or_else(none, Expr::Column).alias(name.clone()));
            }
            for leaf in reader.leaves {
                let columns = leaf.columns.iter().map(|column| {
                    let position = reader.columns.iter().position(|own| &own.name == column)?;
                    names.get(position).cloned()
                });
                let Some(columns) = columns.collect::<Option<Vec<_>>>() else {
                    return internal_err!("a stage has a column that varies and is not read");
                };
                varying.extend(columns.iter().cloned());
                leaves.push(Leaf { row: Some(Column::new_unqualified(&rows[number])), columns, own: vec![], ..leaf });
            }
            inputs.push(Arc::new(LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(reader.plan))?)));
        }
        let plan = LogicalPlan::Union(Union::try_new_with_loose_types(inputs)?);
        let columns = names.into_iter().map(Column::new_unqualified).collect();
        Ok(Region { plan, columns, varying, steps: vec![], leaves, single: false })
    }

    /// The rows of a region, each beside the elements of its lists, which do not vary.
    fn unnest(&mut self, unnest: &Unnest) -> Result<Region> {
        let mut region = self.region(&unnest.input)?;
        // Under their own names behind the columns of the region, all of which the node passes on.
        let mut lists = vec![];
        for (index, (table, field)) in unnest.input.schema().iter().enumerate() {
            if !is_unnested(unnest, index) {
                continue;
            }
            let list = region.columns[index].clone();
            if region.varying.contains(&list.name) {
                return plan_err!(
                    "{} is unnested and varies, and lists and structs are not differentiated",
                    field.name()
                );
            }
            lists.push(Expr::Column(list).alias_qualified(table.cloned(), field.name()));
        }
        let passed_on = region.plan.schema().columns();
        let plan = with_columns(std::mem::take(&mut region.plan), lists)?;
        let plan = unnest_with_options(plan, unnest.exec_columns.clone(), unnest.options.clone())?;
        let mut exprs: Vec<_> = passed_on.iter().cloned().map(Expr::Column).collect();
        let mut elements = vec![];
        for element in plan.schema().columns().split_off(passed_on.len()) {
            let name = self.names.part(&element.name);
            exprs.push(Expr::Column(element).alias(name.clone()));
            elements.push(Column::new_unqualified(name));
        }
        let mut elements = elements.into_iter();
        let passed_on = std::mem::take(&mut region.columns);
        for index in &unnest.dependency_indices {
            let own = if is_unnested(unnest, *index) { elements.next() } else { passed_on.get(*index).cloned() };
            region.columns.extend(own);
        }
        for leaf in &mut region.leaves {
            leaf.repeated = true;
        }
        let plan = LogicalPlan::Projection(Projection::try_new(exprs, Arc::new(plan))?);
        Ok(Region { plan, single: false, ..region })
    }

    fn aggregate(&mut self, node: Node, aggregate: &Aggregate) -> Result<Region> {
        let schema = aggregate.input.schema();
        if let Some(union) = grouping::apart(aggregate)? {
            let union = self.stages.nodes.keep(union);
            return self.region(&union);
        }
        let mut below = self.region(&aggregate.input)?;
        if aggregate.aggr_expr.iter().any(is_of_one_row) {
            // A row that is chosen by its place in an order is known again by its number.
            let width = below.columns.len();
            let stage = self.same(below)?;
            below = self.stages.reader(stage, width, self.names)?;
        }
        if aggregate.group_expr.iter().chain(&aggregate.aggr_expr).any(is_volatile) {
            return plan_err!(
                "an aggregate reads a volatile function, and would draw again for its derivative. Compute it before, in a CTE"
            );
        }
        let keys = self.computed(&mut below, &aggregate.group_expr, schema)?;
        let keys = below.apart(keys, self.names)?;
        let mut calls = vec![];
        for expr in &aggregate.aggr_expr {
            let Expr::AggregateFunction(call) = expr.clone().unalias_nested().data else {
                return plan_err!("{} is no aggregate", abbreviated(expr));
            };
            calls.push((self.over_columns(call, &mut below, schema)?, expr.clone()));
        }
        let stage = self.groups(below, keys, calls, Members::Any)?;
        let width = aggregate.schema.fields().len();
        self.stages.know(node, stage, width);
        self.stages.reader(stage, width, self.names)
    }

    /// A call that reads columns of a region only, and constants.
    pub fn over_columns(
        &mut self,
        mut call: AggregateFunction,
        below: &mut Region,
        schema: &DFSchema,
    ) -> Result<AggregateFunction> {
        let columns = self.computed(below, &call.params.args, schema)?;
        // A constant stays one: some aggregates take no column for it.
        for (argument, column) in call.params.args.iter_mut().zip(columns) {
            if !matches!(argument, Expr::Literal(..)) {
                *argument = Expr::Column(column);
            }
        }
        if let Some(filter) = &call.params.filter {
            let column = self.computed(below, std::slice::from_ref(filter), schema)?.pop();
            call.params.filter = column.map(|column| Box::new(Expr::Column(column)));
        }
        for sort in &mut call.params.order_by {
            if let Some(column) = self.computed(below, std::slice::from_ref(&sort.expr), schema)?.pop() {
                sort.expr = Expr::Column(column);
            }
        }
        Ok(call)
    }

    /// The one row of a region that has at most one, NULL if it has none. More are an error when the query runs.
    fn first_of_one(&mut self, below: Region) -> Result<Region> {
        let Some(value) = below.columns.first().cloned() else { return plan_err!("a subquery has no column") };
        let calls = [first_value(Expr::Column(value), vec![]), count_all()].into_iter().filter_map(|expr| {
            match expr.clone().unalias_nested().data {
                Expr::AggregateFunction(call) => Some((call, expr)),
                _ => None,
            }
        });
        let stage = self.groups(below, vec![], calls.collect(), Members::One)?;
        let mut region = self.stages.reader(stage, 2, self.names)?;
        let [value, count] = [0, 1].map(|index: usize| Expr::Column(region.columns[index].clone()));
        let data_type = value.get_type(region.plan.schema())?;
        let error = failing([count.clone(), lit(" rows of a scalar subquery")], data_type);
        let checked = when(count.gt(lit(1_i64)), error).otherwise(value)?;
        region.columns = region.add(vec![("value".to_owned(), checked)], self.names)?;
        Ok(region)
    }

    /// A stage with the groups of the rows of a region: first their keys, then the aggregates.
    pub fn groups(
        &mut self,
        below: Region,
        keys: Vec<Column>,
        calls: Vec<(AggregateFunction, Expr)>,
        members: Members,
    ) -> Result<StageId> {
        let mut aggregates = vec![];
        let mut varying = vec![];
        let mut partials = vec![];
        for (number, key) in keys.iter().enumerate() {
            if below.varying.contains(&key.name) {
                varying.push(number);
                partials.push(Partials::of_key(key));
            }
        }
        for (number, (call, original)) in calls.iter().enumerate() {
            let function = Expr::AggregateFunction(call.clone());
            let mut varies = false;
            for argument in &call.params.args {
                varies |= below.varies(argument)?;
            }
            if varies && can_vary(&function.get_type(below.plan.schema())?) {
                varying.push(keys.len() + number);
                partials.push(match (members, call.params.args.first()) {
                    (Members::One, Some(value)) => Partials::of_only(value),
                    (_, Some(value)) if is_of_one_row(original) => {
                        let row = below.leaves.first().and_then(|leaf| leaf.row.clone());
                        let Some(row) = row else { return internal_err!("the rows of a group have no numbers") };
                        Partials::of_chosen(call, value, row)?
                    }
                    _ => Partials::of(call, original, below.plan.schema())?,
                });
            }
            aggregates.push(function.alias(self.names.part(call.func.name())));
        }
        for partials in &mut partials {
            partials.add_statistics(&mut aggregates, keys.len(), self.names)?;
        }
        let group = keys.iter().cloned().map(Expr::Column).collect();
        let groups = Aggregate::try_new(Arc::new(below.plan.clone()), group, aggregates)?;
        let single = keys.is_empty();
        let exprs = columns(&groups.schema);
        let groups = LogicalPlan::Aggregate(groups);
        let groups = if single { groups } else { named(groups, &exprs, self.names)? };
        let rows = Rows::Groups { below, keys, aggregates: partials };
        Ok(self.stages.add("groups", groups, single, varying, rows, self.names))
    }
}

/// Whether an aggregate is the value of one row of a group, chosen by the order of the rows.
fn is_of_one_row(aggregate: &Expr) -> bool {
    match unaliased(aggregate) {
        Expr::AggregateFunction(call) => {
            matches!(call.func.name(), "first_value" | "last_value" | "nth_value")
        }
        _ => false,
    }
}

/// An expression whose subqueries read the columns of the query around them under other names.
fn with_outer_columns(mut expr: Expr, renamed: &dyn Fn(&Column) -> Option<Column>) -> Result<Expr> {
    let rename = |expr: Expr| {
        expr.transform_down(|part| match part {
            Expr::OuterReferenceColumn(field, column) => {
                let column = renamed(&column).unwrap_or(column);
                Ok(Transformed::yes(Expr::OuterReferenceColumn(field, column)))
            }
            part => Ok(Transformed::no(part)),
        })
    };
    if let Expr::ScalarSubquery(subquery)
    | Expr::Exists(Exists { subquery, .. })
    | Expr::InSubquery(InSubquery { subquery, .. })
    | Expr::SetComparison(SetComparison { subquery, .. }) = &mut expr
        && !subquery.outer_ref_columns.is_empty()
    {
        let plan = subquery.subquery.as_ref().clone();
        let plan = plan.transform_down(|node| node.map_expressions(rename))?;
        subquery.subquery = Arc::new(plan.data);
        for column in &mut subquery.outer_ref_columns {
            *column = rename(column.clone())?.data;
        }
    }
    Ok(expr)
}

/// Whether a plan that is computed twice is cheap to, and has the same rows both times.
pub fn is_read_again_as_it_is(plan: &LogicalPlan) -> Result<bool> {
    let mut cheap = true;
    plan.apply_with_subqueries(|node| {
        cheap &= matches!(
            node,
            LogicalPlan::TableScan(_)
                | LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::Values(_)
                | LogicalPlan::EmptyRelation(_)
        );
        node.apply_expressions(|expr| {
            cheap &= !is_volatile(expr);
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(if cheap { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    })?;
    Ok(cheap)
}
