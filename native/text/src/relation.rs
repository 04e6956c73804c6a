//! Plans as queries.
//!
//! Every node becomes a part of a `SELECT`, or a `SELECT` over that of its input where the language wants it so. What a derivative
//! reads several times is a common table expression. What cannot be written is an error that names it.

use arrow::datatypes::FieldRef;
use datafusion_catalog::cte_worktable::CteWorkTable;
use datafusion_catalog::default_table_source::source_as_provider;
use datafusion_common::config::ConfigOptions;
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{
    Column, DFSchema, DataFusionError, NullEquality, Result, TableReference, plan_datafusion_err, plan_err,
};
use datafusion_expr::expr::Sort as SortExpr;
use datafusion_expr::utils::grouping_set_to_exprlist;
use datafusion_expr::{
    Aggregate, Distinct, DistinctOn, EmptyRelation, Expr, Filter, GroupingSet, Join, JoinType, Limit, LogicalPlan,
    Operator, Projection, RecursiveQuery, Sort, SubqueryAlias, TableScan, Union, Values, Window, WindowFrameUnits,
};
use std::collections::HashSet;
use std::sync::Arc;
use xql_relations::SharedRelation;

use crate::derive::{simplified, tidied};
use crate::expr::{LINE_BREAK, Surroundings, closed_sql, order_sql, sql};
use crate::names::{numbered, plain, quoted_if_needed};
use crate::select::{Item, Select, Stage, indented};

/// The text of a query whose columns have the names that the plan gives them.
pub fn query_sql(plan: &LogicalPlan, options: &Arc<ConfigOptions>) -> Result<String> {
    let mut writer = Writer::new(plan, options)?;
    let select = writer.select(plan)?;
    let names = plan.schema().fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>();
    let body = select.text(&names);
    let text = writer.with_tables(body, 0);
    Ok(text.replace(LINE_BREAK, "\n"))
}

/// A common table expression.
#[derive(Debug)]
struct Table {
    name: String,
    text: String,
    is_recursive: bool,
}

/// A recursive query in whose second term the writer is.
#[derive(Debug)]
struct Open {
    /// What the plan calls it.
    name: String,
    written: String,
    columns: Vec<String>,
    /// What its second term computes by itself.
    tables: Vec<Table>,
    reads: usize,
}

/// The common table expression of a shared relation.
#[derive(Debug, Clone)]
struct Shared {
    relation: Arc<SharedRelation>,
    name: String,
    columns: Vec<String>,
    /// How often it reads the rows of each of the open recursions.
    reads: Vec<usize>,
}

struct Writer<'a> {
    options: &'a Arc<ConfigOptions>,
    tables: Vec<Table>,
    shared: Vec<Shared>,
    open: Vec<Open>,
    taken: HashSet<String>,
    /// Names of tables in the plan, which no common table expression may have.
    scanned: HashSet<String>,
    /// The columns of the queries around, the outermost first.
    outer: Vec<Vec<Select>>,
    /// In how many shared relations the writer is. Hosts compute a common table expression anew wherever it is read, so that there
    /// has to be one order of its rows only.
    inside_shared: usize,
}

impl<'a> Writer<'a> {
    fn new(plan: &LogicalPlan, options: &'a Arc<ConfigOptions>) -> Result<Self> {
        let mut scanned = HashSet::new();
        names_of_tables(plan, &mut scanned)?;
        Ok(Self {
            options,
            tables: vec![],
            shared: vec![],
            open: vec![],
            taken: HashSet::new(),
            scanned,
            outer: vec![],
            inside_shared: 0,
        })
    }

    /// A name for a relation in FROM that no other has.
    fn alias(&mut self, wanted: &str) -> String {
        let name = numbered(wanted, |name| !self.taken.contains(name));
        self.taken.insert(name.clone());
        name
    }

    /// A name for a common table expression.
    fn table_name(&mut self, wanted: &str) -> String {
        let name = numbered(wanted, |name| !self.scanned.contains(name) && !self.taken.contains(name));
        self.taken.insert(name.clone());
        self.scanned.insert(name.clone());
        name
    }

    /// A query after the common table expressions of a depth: 0 for those of all, n for those of the n-th open recursion.
    fn with_tables(&mut self, body: String, depth: usize) -> String {
        let tables = match depth.checked_sub(1) {
            None => std::mem::take(&mut self.tables),
            Some(index) => std::mem::take(&mut self.open[index].tables),
        };
        if tables.is_empty() {
            return body;
        }
        let recursive = if tables.iter().any(|table| table.is_recursive) { "RECURSIVE " } else { "" };
        let written =
            tables.iter().map(|table| format!("{} AS (\n{}\n)", quoted_if_needed(&table.name), indented(&table.text)));
        format!("WITH {recursive}{}\n{body}", written.collect::<Vec<_>>().join(", "))
    }

    #[recursive::recursive]
    fn select(&mut self, plan: &LogicalPlan) -> Result<Select> {
        match plan {
            LogicalPlan::Projection(node) => self.projection(node),
            LogicalPlan::Filter(node) => self.filter(node),
            LogicalPlan::Window(node) => self.window(node),
            LogicalPlan::Aggregate(node) => self.aggregate(node),
            LogicalPlan::Sort(node) => self.sort(node),
            LogicalPlan::Limit(node) => self.limit(node),
            LogicalPlan::Join(node) => self.join(node),
            LogicalPlan::Union(node) => self.union(node),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Distinct(Distinct::On(node)) => self.distinct_on(node),
            LogicalPlan::TableScan(node) => self.scan(node, None),
            LogicalPlan::SubqueryAlias(node) => self.subquery_alias(node),
            LogicalPlan::EmptyRelation(node) => Ok(empty(node)?),
            LogicalPlan::Values(node) => self.values(node),
            LogicalPlan::RecursiveQuery(node) => self.recursive_query(node),
            // It is there for an optimizer of plans and moves no row to another place.
            LogicalPlan::Repartition(node) => self.select(&node.input),
            LogicalPlan::Subquery(node) if node.outer_ref_columns.is_empty() => self.select(&node.subquery),
            LogicalPlan::Subquery(_) => {
                plan_err!("LATERAL beside a derivative that sees through relations cannot be written as text")
            }
            other => {
                let shown = other.display().to_string();
                plan_err!("{shown} cannot be written as text beside a derivative that sees through relations")
            }
        }
    }

    /// A relation in FROM that has the rows of a `SELECT`.
    fn relation(&mut self, select: Select) -> Select {
        if select.is_relation() {
            return select;
        }
        let names = unique_names(&select.schema);
        self.derived(&select.text(&names), names, &select)
    }

    /// A text as a relation in FROM that stands for a `SELECT`.
    fn derived(&mut self, text: &str, names: Vec<String>, select: &Select) -> Select {
        let alias = self.alias(&select.hint);
        let from = format!("(\n{}\n) AS {}", indented(text), quoted_if_needed(&alias));
        let items = names.iter().map(|name| Item::column(&alias, name)).collect();
        Select::new(Arc::clone(&select.schema), Some(from), items, &select.hint)
    }

    fn projection(&mut self, node: &Projection) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let exprs: Vec<_> = node.expr.iter().collect();
        if input.stage == Stage::Distinct || !input.can_be_read_by(&exprs, 1) {
            input = self.relation(input);
        }
        let items = node.expr.iter().map(|expr| self.item(expr, &input)).collect::<Result<Vec<_>>>()?;
        Ok(Select { items, schema: Arc::clone(&node.schema), ..input })
    }

    fn item(&mut self, expr: &Expr, input: &Select) -> Result<Item> {
        let inside = unaliased(expr);
        if let Expr::Column(column) = inside
            && let Some(item) = input.item(column)
        {
            return Ok(item.clone());
        }
        let sql = closed_sql(inside, &mut self.over(std::slice::from_ref(input)))?;
        let is_simple = matches!(inside, Expr::Literal(..));
        Ok(Item { sql, name: None, is_simple, is_volatile: inside.is_volatile() })
    }

    /// The expressions of a node whose inputs these are.
    fn over<'w>(&'w mut self, inputs: &'w [Select]) -> Over<'w, 'a> {
        Over { writer: self, inputs }
    }

    fn filter(&mut self, node: &Filter) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        if input.stage > Stage::Group || !input.can_be_read_by(&[&node.predicate], 1) {
            input = self.relation(input);
        }
        check_found_again(&node.predicate, &[&node.input])?;
        let condition = sql(&node.predicate, &mut self.over(std::slice::from_ref(&input)))?;
        if input.stage == Stage::Group {
            input.having.push(condition);
        } else {
            input.filters.push(condition);
            input.stage = Stage::Where;
        }
        Ok(input)
    }

    fn window(&mut self, node: &Window) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let exprs: Vec<_> = node.window_expr.iter().collect();
        if input.stage > Stage::Window || input.stage == Stage::Group || !input.can_be_read_by(&exprs, 0) {
            input = self.relation(input);
        }
        for expr in &node.window_expr {
            let expr = if self.inside_shared > 0 { &totally_ordered(expr, &node.input)? } else { expr };
            let written = sql(unaliased(expr), &mut self.over(std::slice::from_ref(&input)))?;
            input.items.push(Item { sql: written, name: None, is_simple: false, is_volatile: expr.is_volatile() });
        }
        Ok(Select { stage: Stage::Window, schema: Arc::clone(&node.schema), ..input })
    }

    fn aggregate(&mut self, node: &Aggregate) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let exprs: Vec<_> = node.group_expr.iter().chain(&node.aggr_expr).collect();
        if input.stage > Stage::Where || !input.can_be_read_by(&exprs, 0) {
            input = self.relation(input);
        }
        let mut groups = vec![];
        let mut items = vec![];
        for key in grouping_set_to_exprlist(&node.group_expr)? {
            items.push(self.item(key, &input)?);
        }
        if let [Expr::GroupingSet(sets)] = node.group_expr.as_slice() {
            check_different(sets)?;
            groups.push(sql(&node.group_expr[0], &mut self.over(std::slice::from_ref(&input)))?);
            let keys = items.iter().map(|item| item.sql.as_str()).collect::<Vec<_>>().join(", ");
            let kind = crate::expr::type_sql(node.schema.field(items.len()).data_type())?;
            let sql = format!("CAST(grouping({keys}) AS {kind})");
            items.push(Item { sql, name: None, is_simple: true, is_volatile: false });
        } else {
            for expr in &node.group_expr {
                groups.push(match unaliased(expr) {
                    // A number would be taken for the place of a column.
                    Expr::Literal(value, _) if value.data_type().is_integer() => {
                        format!("CAST({value} AS {})", crate::expr::type_sql(&value.data_type())?)
                    }
                    expr => sql(expr, &mut self.over(std::slice::from_ref(&input)))?,
                });
            }
        }
        for expr in &node.aggr_expr {
            let expr = if self.inside_shared > 0 { &totally_ordered(expr, &node.input)? } else { expr };
            let written = sql(unaliased(expr), &mut self.over(std::slice::from_ref(&input)))?;
            items.push(Item { sql: written, name: None, is_simple: true, is_volatile: expr.is_volatile() });
        }
        let schema = Arc::clone(&node.schema);
        Ok(Select { stage: Stage::Group, groups: Some(groups), items, schema, ..input })
    }

    fn sort(&mut self, node: &Sort) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let keys: Vec<_> = node.expr.iter().map(|key| &key.expr).collect();
        if input.stage >= Stage::Distinct || !input.can_be_read_by(&keys, 1) {
            input = self.relation(input);
        }
        input.order = self.order(&node.expr, &input)?;
        input.stage = Stage::Order;
        if let Some(fetch) = node.fetch {
            self.order_by_all(&mut input)?;
            input.limit = Some(fetch.to_string());
            input.stage = Stage::Limit;
        }
        Ok(input)
    }

    fn order(&mut self, keys: &[SortExpr], input: &Select) -> Result<Vec<String>> {
        let over = &mut self.over(std::slice::from_ref(input));
        keys.iter().map(|key| order_sql(key, over)).collect()
    }

    fn limit(&mut self, node: &Limit) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        if input.stage == Stage::Limit {
            input = self.relation(input);
        }
        self.order_by_all(&mut input)?;
        let over = &mut self.over(&[]);
        input.limit = node.fetch.as_ref().map(|fetch| sql(fetch, over)).transpose()?;
        input.offset = node.skip.as_ref().map(|skip| sql(skip, over)).transpose()?;
        input.offset = input.offset.filter(|offset| offset != "0");
        input.stage = Stage::Limit;
        Ok(input)
    }

    /// Orders the rows of which a shared relation takes the first by all of their columns, after what they are ordered by: rows that
    /// are equal in all are one as good as the other.
    fn order_by_all(&mut self, input: &mut Select) -> Result<()> {
        if self.inside_shared == 0 {
            return Ok(());
        }
        if input.stage < Stage::Order && !input.items.iter().all(|item| item.is_simple) || input.distinct.is_some() {
            *input = self.relation(input.clone());
        }
        if !input.items.iter().all(|item| item.is_simple || !item.is_volatile) {
            return plan_err!("rows with volatile columns that are ordered and cut off cannot be written as text here");
        }
        for (item, field) in input.items.iter().zip(input.schema.fields()) {
            check_order(field)?;
            if !input.order.contains(&item.sql) {
                input.order.push(item.sql.clone());
            }
        }
        Ok(())
    }

    fn distinct(&mut self, input: &LogicalPlan) -> Result<Select> {
        let mut input = self.select(input)?;
        if input.stage >= Stage::Distinct {
            input = self.relation(input);
        }
        input.distinct = Some("DISTINCT".to_owned());
        input.stage = Stage::Distinct;
        Ok(input)
    }

    fn distinct_on(&mut self, node: &DistinctOn) -> Result<Select> {
        let mut input = self.select(&node.input)?;
        let sort = node.sort_expr.as_deref().unwrap_or_default();
        let exprs: Vec<_> =
            node.on_expr.iter().chain(&node.select_expr).chain(sort.iter().map(|key| &key.expr)).collect();
        if input.stage > Stage::Where || !input.can_be_read_by(&exprs, 1) {
            input = self.relation(input);
        }
        let over = &mut self.over(std::slice::from_ref(&input));
        let on = node.on_expr.iter().map(|expr| sql(expr, over)).collect::<Result<Vec<_>>>()?.join(", ");
        let order = self.order(sort, &input)?;
        let items = node.select_expr.iter().map(|expr| self.item(expr, &input)).collect::<Result<Vec<_>>>()?;
        let distinct = Some(format!("DISTINCT ON ({on})"));
        Ok(Select { stage: Stage::Limit, items, schema: Arc::clone(&node.schema), distinct, order, ..input })
    }

    fn join(&mut self, node: &Join) -> Result<Select> {
        let left = self.select(&node.left)?;
        let left = self.relation(left);
        let right = self.select(&node.right)?;
        let right = self.relation(right);
        let inputs = [left, right];
        let mut conditions = vec![];
        let equal = match node.null_equality {
            NullEquality::NullEqualsNothing => "=",
            NullEquality::NullEqualsNull => "IS NOT DISTINCT FROM",
        };
        for (a, b) in &node.on {
            check_found_again(&a.clone().eq(b.clone()), &[&node.left, &node.right])?;
            let over = &mut self.over(&inputs);
            let condition = format!("{} {equal} {}", closed_sql(a, over)?, closed_sql(b, over)?);
            // The parser takes all that follows IS NOT DISTINCT FROM for its right side.
            let is_open = node.null_equality == NullEquality::NullEqualsNull;
            conditions.push(if is_open { format!("({condition})") } else { condition });
        }
        if let Some(filter) = &node.filter {
            check_found_again(filter, &[&node.left, &node.right])?;
            let over = &mut self.over(&inputs);
            conditions.push(if conditions.is_empty() { sql(filter, over)? } else { closed_sql(filter, over)? });
        }
        let [left, right] = inputs;
        let kind = match node.join_type {
            JoinType::Inner if conditions.is_empty() => "CROSS JOIN",
            JoinType::Inner => "JOIN",
            JoinType::Left => "LEFT JOIN",
            JoinType::Right => "RIGHT JOIN",
            JoinType::Full => "FULL JOIN",
            JoinType::LeftSemi => "LEFT SEMI JOIN",
            JoinType::LeftAnti => "LEFT ANTI JOIN",
            JoinType::RightSemi => "RIGHT SEMI JOIN",
            JoinType::RightAnti => "RIGHT ANTI JOIN",
            JoinType::LeftMark | JoinType::RightMark => {
                return plan_err!("a {} join cannot be written as text", node.join_type);
            }
        };
        if conditions.is_empty() && node.join_type != JoinType::Inner {
            conditions.push("TRUE".to_owned());
        }
        let on = if conditions.is_empty() { String::new() } else { format!(" ON {}", conditions.join(" AND ")) };
        let right_from = right.from.unwrap_or_default();
        let right_from = if right.is_join { format!("(\n{}\n)", indented(&right_from)) } else { right_from };
        let from = format!("{}\n{kind} {right_from}{on}", left.from.unwrap_or_default());
        let items = match node.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti => left.items,
            JoinType::RightSemi | JoinType::RightAnti => right.items,
            _ => [left.items, right.items].concat(),
        };
        Ok(Select { is_join: true, ..Select::new(Arc::clone(&node.schema), Some(from), items, "joined") })
    }

    fn union(&mut self, node: &Union) -> Result<Select> {
        let names = unique_names(&node.schema);
        let mut parts = vec![];
        for input in &node.inputs {
            let mut select = self.select(input)?;
            if select.stage >= Stage::Order {
                select = self.relation(select);
            }
            parts.push(select.text(&names));
        }
        let whole = Select::new(Arc::clone(&node.schema), None, vec![], "united");
        Ok(self.derived(&parts.join("\nUNION ALL\n"), names, &whole))
    }

    fn scan(&mut self, node: &TableScan, alias: Option<&TableReference>) -> Result<Select> {
        let schema = Arc::clone(&node.projected_schema);
        let column = |index: usize| node.projection.as_ref().map_or(index, |projection| projection[index]);
        let width = schema.fields().len();
        let hint = alias.map_or_else(|| node.table_name.table(), TableReference::table);
        if let Some(relation) = SharedRelation::scanned(node) {
            let (table, columns) = self.shared(&relation)?;
            return Ok(self.named(&table, (0..width).map(|index| columns[column(index)].clone()), schema, hint));
        }
        if let Ok(provider) = source_as_provider(&node.source)
            && let Some(work) = provider.downcast_ref::<CteWorkTable>()
        {
            let open = self.open.iter_mut().rev().find(|open| open.name == work.name());
            let open =
                open.ok_or_else(|| plan_datafusion_err!("{} is read outside of its recursive term", work.name()))?;
            open.reads += 1;
            let (table, columns) = (open.written.clone(), open.columns.clone());
            return Ok(self.named(&table, (0..width).map(|index| columns[column(index)].clone()), schema, hint));
        }
        let columns: Vec<_> = schema.fields().iter().map(|field| field.name().clone()).collect();
        let table = table_sql(&node.table_name);
        let is_named = |alias: &str| node.table_name.table() == alias;
        let alias = self.alias(hint);
        let from = if is_named(&alias) { table } else { format!("{table} AS {}", quoted_if_needed(&alias)) };
        let items = columns.iter().map(|name| Item::column(&alias, name)).collect();
        let mut select = Select::new(schema, Some(from), items, hint);
        for filter in &node.filters {
            let condition = sql(filter, &mut self.over(std::slice::from_ref(&select)))?;
            select.filters.push(condition);
            select.stage = Stage::Where;
        }
        Ok(select)
    }

    /// A common table expression in FROM.
    fn named(
        &mut self,
        table: &str,
        columns: impl Iterator<Item = String>,
        schema: Arc<DFSchema>,
        hint: &str,
    ) -> Select {
        let alias = self.alias(&plain(hint));
        let from = if alias == table {
            quoted_if_needed(table)
        } else {
            format!("{} AS {}", quoted_if_needed(table), quoted_if_needed(&alias))
        };
        let items = columns.map(|name| Item::column(&alias, &name)).collect();
        Select::new(schema, Some(from), items, &alias)
    }

    /// The common table expression of a shared relation, and the names of its columns.
    fn shared(&mut self, relation: &Arc<SharedRelation>) -> Result<(String, Vec<String>)> {
        if let Some(known) = self.shared.iter().find(|known| Arc::ptr_eq(&known.relation, relation)) {
            let known = known.clone();
            for (open, reads) in self.open.iter_mut().zip(&known.reads) {
                open.reads += reads;
            }
            return Ok((known.name, known.columns));
        }
        let before: Vec<_> = self.open.iter().map(|open| open.reads).collect();
        let plan = tidied(simplified(relation.plan().clone(), self.options)?, self.options)?;
        let depth = self.depth(&plan)?;
        if let Some(volatile) = volatile_in(&plan)? {
            return plan_err!(
                "the derivative reads a relation several times that {volatile} makes another one each time: \
                 keep its rows in a table first"
            );
        }
        self.inside_shared += 1;
        let select = self.select(&plan);
        self.inside_shared -= 1;
        let select = select?;
        let mut columns: Vec<String> = unique(relation.columns());
        let text = if relation.is_numbered() {
            let select = self.relation(select);
            let row = columns.pop().unwrap_or_default();
            self.numbered(&select, &distinguishing(&plan), &columns, &row)?
        } else {
            select.text(&columns)
        };
        let columns = if relation.is_numbered() { unique(relation.columns()) } else { columns };
        let name = self.table_name(&plain(relation.name()));
        let table = Table { name: name.clone(), text, is_recursive: false };
        match depth.checked_sub(1) {
            None => self.tables.push(table),
            Some(index) => self.open[index].tables.push(table),
        }
        let reads = self.open.iter().zip(before).map(|(open, before)| open.reads - before).collect();
        let relation = Arc::clone(relation);
        self.shared.push(Shared { relation, name: name.clone(), columns: columns.clone(), reads });
        Ok((name, columns))
    }

    /// How many of the open recursions a plan is inside of: up to the last one whose rows it reads.
    fn depth(&self, plan: &LogicalPlan) -> Result<usize> {
        for (index, open) in self.open.iter().enumerate().rev() {
            let reads = |node: &LogicalPlan| match node {
                LogicalPlan::TableScan(scan) => source_as_provider(&scan.source).is_ok_and(|provider| {
                    provider.downcast_ref::<CteWorkTable>().is_some_and(|work| work.name() == open.name)
                }),
                _ => false,
            };
            if SharedRelation::any_node_in(plan, &reads)? {
                return Ok(index + 1);
            }
        }
        Ok(0)
    }

    /// Rows with numbers, which are the same wherever the text is read: rows that are equal in all columns are one as good as the
    /// other.
    fn numbered(&mut self, select: &Select, by: &[usize], columns: &[String], row: &str) -> Result<String> {
        let mut keys = vec![];
        for index in by {
            let (item, field) = (&select.items[*index], select.schema.field(*index));
            check_order(field)?;
            keys.push((field.data_type().is_floating(), item.sql.clone()));
        }
        // What is computed from floats may differ in its last digit the next time.
        keys.sort_by_key(|(is_float, _)| *is_float);
        let keys: Vec<_> = keys.into_iter().map(|(_, key)| key).collect();
        let over = if keys.is_empty() { String::new() } else { format!("ORDER BY {}", keys.join(", ")) };
        let number = format!("row_number() OVER ({over})");
        let mut select = select.clone();
        select.items.push(Item { sql: number, name: None, is_simple: false, is_volatile: false });
        Ok(select.text(&[columns, &[row.to_owned()]].concat()))
    }

    fn subquery_alias(&mut self, node: &SubqueryAlias) -> Result<Select> {
        let schema = Arc::clone(&node.schema);
        let select = match node.input.as_ref() {
            LogicalPlan::TableScan(scan) => self.scan(scan, Some(&node.alias))?,
            input => self.select(input)?,
        };
        Ok(Select { schema, hint: node.alias.table().to_owned(), ..select })
    }

    fn values(&mut self, node: &Values) -> Result<Select> {
        let rows = node.values.iter().map(|row| {
            let over = &mut self.over(&[]);
            let row = row.iter().map(|value| sql(value, over)).collect::<Result<Vec<_>>>()?;
            Ok(format!("({})", row.join(", ")))
        });
        let rows = rows.collect::<Result<Vec<_>>>()?;
        let alias = self.alias("rows");
        let names = unique_names(&node.schema);
        let listed = names.iter().map(|name| quoted_if_needed(name)).collect::<Vec<_>>().join(", ");
        let from = format!("(VALUES {}) AS {alias}({listed})", rows.join(", "));
        let items = names.iter().map(|name| Item::column(&alias, name)).collect();
        Ok(Select::new(Arc::clone(&node.schema), Some(from), items, "rows"))
    }

    fn recursive_query(&mut self, node: &RecursiveQuery) -> Result<Select> {
        let schema = Arc::clone(node.static_term.schema());
        let columns = unique_names(&schema);
        let depth = {
            let whole = LogicalPlan::RecursiveQuery(node.clone());
            self.depth(&whole)?
        };
        let first = self.select(&node.static_term)?;
        let first = if first.stage >= Stage::Order { self.relation(first) } else { first };
        let first = first.text(&columns);
        let written = self.table_name(&plain(&node.name));
        self.open.push(Open {
            name: node.name.clone(),
            written: written.clone(),
            columns: columns.clone(),
            tables: vec![],
            reads: 0,
        });
        let shared = self.shared.len();
        let next = self.select(&node.recursive_term);
        let next = next.map(|next| if next.stage >= Stage::Order { self.relation(next) } else { next });
        let next = next.map(|next| {
            let depth = self.open.len();
            let has_tables = !self.open[depth - 1].tables.is_empty();
            let text = self.with_tables(next.text(&columns), depth);
            if has_tables { format!("(\n{}\n)", indented(&text)) } else { text }
        });
        let closed = self.open.pop();
        // Those of this term are known in it only.
        let is_known = |name: &String, writer: &Self| writer.tables.iter().any(|table| table.name == *name);
        let kept: Vec<_> = self.shared.drain(shared..).collect();
        let kept: Vec<_> = kept.into_iter().filter(|shared| is_known(&shared.name, self)).collect();
        self.shared.extend(kept);
        let next = next?;
        if let Some(closed) = closed
            && closed.reads > 1
        {
            return plan_err!(
                "the derivative reads the rows of the last iteration of {} {} times, which a recursive query of SQL may not: \
                 write one step as a statement of its own, keep its rows in a table, and repeat it in a loop",
                node.name,
                closed.reads
            );
        }
        let union = if node.is_distinct { "UNION" } else { "UNION ALL" };
        let table = Table { name: written.clone(), text: format!("{first}\n{union}\n{next}"), is_recursive: true };
        match depth.checked_sub(1) {
            None => self.tables.push(table),
            Some(index) => self.open[index].tables.push(table),
        }
        Ok(self.named(&written, columns.into_iter(), schema, &node.name))
    }
}

/// The surroundings of the expressions of a node.
struct Over<'w, 'a> {
    writer: &'w mut Writer<'a>,
    inputs: &'w [Select],
}

impl Surroundings for Over<'_, '_> {
    fn column(&mut self, column: &Column) -> Result<String> {
        let item = self.inputs.iter().find_map(|input| input.item(column));
        item.map(|item| item.sql.clone())
            .ok_or_else(|| plan_datafusion_err!("there is no column {column} to be written"))
    }

    fn outer_column(&mut self, column: &Column) -> Result<String> {
        let item = self.writer.outer.iter().rev().flatten().find_map(|input| input.item(column));
        item.map(|item| item.sql.clone())
            .ok_or_else(|| plan_datafusion_err!("there is no outer column {column} to be written"))
    }

    fn query(&mut self, plan: &LogicalPlan) -> Result<String> {
        self.writer.outer.push(self.inputs.to_vec());
        let select = self.writer.select(plan);
        self.writer.outer.pop();
        let select = select?;
        let text = select.text(&unique_names(&select.schema));
        Ok(if text.contains('\n') { format!("(\n{}\n)", indented(&text)) } else { format!("({text})") })
    }
}

fn empty(node: &EmptyRelation) -> Result<Select> {
    let fields = node.schema.fields().iter();
    let items = fields.map(|field| {
        let kind = crate::expr::type_sql(field.data_type())?;
        Ok(Item { sql: format!("CAST(NULL AS {kind})"), name: None, is_simple: true, is_volatile: false })
    });
    let items = items.collect::<Result<Vec<_>>>()?;
    let mut select = Select::new(Arc::clone(&node.schema), None, items, "nothing");
    if !node.produce_one_row {
        select.filters.push("FALSE".to_owned());
        select.stage = Stage::Where;
    }
    Ok(select)
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// Names for the columns of a relation that no two share.
fn unique_names(schema: &DFSchema) -> Vec<String> {
    unique(schema.fields().iter().map(|field| field.name().as_str()))
}

fn unique<'n>(wanted: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let unique = wanted.map(|wanted| {
        let name = numbered(&plain(wanted), |name| !taken.contains(name));
        taken.insert(name.clone());
        name
    });
    unique.collect()
}

fn table_sql(name: &TableReference) -> String {
    name.to_vec().iter().map(|part| quoted_if_needed(part)).collect::<Vec<_>>().join(".")
}

fn names_of_tables(plan: &LogicalPlan, names: &mut HashSet<String>) -> Result<()> {
    let mut all = vec![];
    collect_tables(plan, &mut all)?;
    names.extend(all);
    Ok(())
}

fn collect_tables(plan: &LogicalPlan, names: &mut Vec<String>) -> Result<()> {
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::TableScan(scan) = node {
            match SharedRelation::scanned(scan) {
                Some(relation) => collect_tables(relation.plan(), names)?,
                None => names.push(scan.table_name.table().to_owned()),
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

/// Refuses grouping sets of which two are the same: only their places tell the rows of one from those of the other.
fn check_different(sets: &GroupingSet) -> Result<()> {
    let GroupingSet::GroupingSets(sets) = sets else { return Ok(()) };
    let sets: Vec<HashSet<_>> = sets.iter().map(|set| set.iter().collect()).collect();
    if sets.iter().enumerate().any(|(number, set)| sets[..number].contains(set)) {
        return plan_err!(
            "two grouping sets that are the same cannot be written beside a derivative that sees through relations"
        );
    }
    Ok(())
}

/// The columns in which rows differ that differ at all: those that are not computed from others of them.
///
/// DataFusion 54 cannot always order by both: `SanityCheckPlan ... does not satisfy order requirements`.
fn distinguishing(plan: &LogicalPlan) -> Vec<usize> {
    let all = 0..plan.schema().fields().len();
    match plan {
        LogicalPlan::SubqueryAlias(alias) => distinguishing(&alias.input),
        LogicalPlan::Projection(node) => {
            let is_passed = |column: &Column| {
                node.expr.iter().any(|expr| matches!(unaliased(expr), Expr::Column(passed) if passed == column))
            };
            let is_computed = |expr: &Expr| {
                let is_query =
                    |part: &Expr| matches!(part, Expr::ScalarSubquery(_) | Expr::Exists(_) | Expr::InSubquery(_));
                !matches!(unaliased(expr), Expr::Column(_))
                    && !expr.is_volatile()
                    && !expr.exists(|part| Ok(is_query(part))).unwrap_or(true)
                    && expr.column_refs().into_iter().all(is_passed)
            };
            all.filter(|index| !is_computed(&node.expr[*index])).collect()
        }
        _ => all.collect(),
    }
}

/// Refuses a column by which rows cannot be ordered.
fn check_order(field: &FieldRef) -> Result<()> {
    if field.data_type().is_nested() {
        return plan_err!(
            "the derivative orders rows by all of their columns, and {} is of the type {}, which has no order",
            field.name(),
            field.data_type()
        );
    }
    Ok(())
}

/// A function that depends on the order of rows, in one order of them only.
fn totally_ordered(expr: &Expr, input: &LogicalPlan) -> Result<Expr> {
    /// These have no frame.
    const PLACES: [&str; 4] = ["row_number", "ntile", "lag", "lead"];
    const AGGREGATES: [&str; 4] = ["first_value", "last_value", "nth_value", "array_agg"];
    let extended = |order_by: &mut Vec<SortExpr>| {
        for index in distinguishing(input) {
            check_order(input.schema().field(index))?;
            let column = Expr::Column(Column::from(input.schema().qualified_field(index)));
            if !order_by.iter().any(|key| key.expr == column) {
                order_by.push(column.sort(true, false));
            }
        }
        Ok::<_, DataFusionError>(())
    };
    let ordered = expr.clone().transform_up(|part| {
        let mut part = part;
        match &mut part {
            Expr::WindowFunction(call) => {
                let frame = &call.params.window_frame;
                let is_whole = frame.start_bound.is_unbounded() && frame.end_bound.is_unbounded();
                let moves = frame.units == WindowFrameUnits::Rows && !is_whole;
                if PLACES.contains(&call.fun.name()) || moves && !RANKS.contains(&call.fun.name()) {
                    extended(&mut call.params.order_by)?;
                }
            }
            Expr::AggregateFunction(call) if AGGREGATES.contains(&call.func.name()) => {
                extended(&mut call.params.order_by)?;
            }
            _ => return Ok(Transformed::no(part)),
        }
        Ok(Transformed::yes(part))
    })?;
    Ok(ordered.data)
}

/// Functions that count equal rows as one.
const RANKS: [&str; 4] = ["rank", "dense_rank", "percent_rank", "cume_dist"];

/// Refuses a condition of the derivative that finds rows again by a value whose last digits may be others the next time.
fn check_found_again(expr: &Expr, inputs: &[&LogicalPlan]) -> Result<()> {
    let is_rounded = |part: &Expr| match part {
        Expr::Column(column) if column.name.starts_with('∂') => is_rounded_in(column, inputs),
        _ => Ok(false),
    };
    let compares = expr.exists(|part| match part {
        Expr::BinaryExpr(binary) if matches!(binary.op, Operator::Eq | Operator::IsNotDistinctFrom) => {
            Ok(is_rounded(&binary.left)? || is_rounded(&binary.right)?)
        }
        _ => Ok(false),
    })?;
    if compares {
        return plan_err!(
            "the derivative finds the rows of a minimum, a maximum or a group again by the value of a sum, whose last digit may be \
             another when it is computed again: keep the sums in a table first"
        );
    }
    Ok(())
}

/// Whether a column of one of these plans is a sum of floats, or computed from one: rounded, and in an order of the rows that is not
/// known.
#[recursive::recursive]
fn is_rounded_in(column: &Column, plans: &[&LogicalPlan]) -> Result<bool> {
    for plan in plans {
        if let Some(index) = plan.schema().maybe_index_of_column(column) {
            return is_rounded(plan, index);
        }
    }
    Ok(false)
}

fn is_rounded(plan: &LogicalPlan, index: usize) -> Result<bool> {
    let field = plan.schema().field(index);
    let computed = |expr: &Expr, input: &LogicalPlan| {
        let rounds = expr.exists(|part| {
            let name = match part {
                Expr::AggregateFunction(call) => call.func.name(),
                Expr::WindowFunction(call) => call.fun.name(),
                _ => return Ok(false),
            };
            Ok(field.data_type().is_floating() && !EXACT.contains(&name))
        })?;
        if rounds {
            return Ok(true);
        }
        for column in expr.column_refs() {
            if is_rounded_in(column, &[input])? {
                return Ok(true);
            }
        }
        Ok(false)
    };
    match plan {
        LogicalPlan::Projection(node) => computed(&node.expr[index], &node.input),
        LogicalPlan::Aggregate(node) => {
            let exprs: Vec<_> = node.group_expr.iter().chain(&node.aggr_expr).collect();
            exprs.get(index).map_or(Ok(true), |expr| computed(expr, &node.input))
        }
        LogicalPlan::Window(node) => match index.checked_sub(node.input.schema().fields().len()) {
            Some(number) => computed(&node.window_expr[number], &node.input),
            None => is_rounded(&node.input, index),
        },
        LogicalPlan::TableScan(scan) => match SharedRelation::scanned(scan) {
            Some(relation) => {
                let index = scan.projection.as_ref().map_or(index, |projection| projection[index]);
                let plan = relation.plan();
                Ok(index < plan.schema().fields().len() && is_rounded(plan, index)?)
            }
            None => Ok(false),
        },
        LogicalPlan::Union(node) => {
            for input in &node.inputs {
                if is_rounded(input, index)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        LogicalPlan::SubqueryAlias(node) => is_rounded(&node.input, index),
        LogicalPlan::RecursiveQuery(_) => Ok(true),
        other => is_rounded_in(&plan.schema().columns()[index], &other.inputs()),
    }
}

/// Aggregates and window functions that do not round.
const EXACT: [&str; 13] = [
    "min",
    "max",
    "count",
    "first_value",
    "last_value",
    "nth_value",
    "lag",
    "lead",
    "row_number",
    "rank",
    "dense_rank",
    "ntile",
    "array_agg",
];

/// What in a plan gives other rows each time it is computed.
fn volatile_in(plan: &LogicalPlan) -> Result<Option<String>> {
    let mut found = None;
    plan.apply_with_subqueries(|node| {
        for expr in node.expressions() {
            if expr.is_volatile() {
                found = Some(expr.to_string());
            }
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}
