//! The tangent of an aggregate or window function, from others over the same rows.

pub mod calls;
pub mod formulas;
pub mod frame_sums;
pub mod frames;
pub mod own_row;
pub mod quantiles;
pub mod without_formula;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{DFSchema, Result, plan_err};
use datafusion_expr::expr::{AggregateFunction, NullTreatment, WindowFunction, WindowFunctionParams};
use datafusion_expr::{Expr, ExprSchemable, Operator, ScalarUDF, WindowFunctionDefinition, binary_expr, lit, when};
use std::sync::Arc;

use crate::tangents::dual::{pair, tangent_in};
use crate::tangents::linearize::{LinearizedExpr, linearize, tangent_to_expr};
use crate::tangents::tangent::{Inactive, Linearized, Tangent, Tangents};
use crate::vocabulary::expressions::one_zero;
use crate::vocabulary::names::Names;
use calls::{Extremum, FormulaCall, is_choice};
use formulas::{Input, TangentFormula};
use frame_sums::FrameSum;
use frames::is_whole;
use quantiles::{Percentile, is_quantile, keys_of_partitions, ranks, share};
use without_formula::{DISTINCT_BEFORE, way_without};
use xql_autodiff::vocabulary::columns::{has_subquery, is_volatile};
use xql_autodiff::vocabulary::messages::abbreviate;
use xql_autodiff::vocabulary::types::is_float;

/// The rows that aggregates and window functions are over, with the tangents of their columns by a variable.
pub struct AggregateRows<'a> {
    /// The columns of the rows.
    pub columns: &'a DFSchema,
    /// The tangents of the columns.
    pub tangents: &'a Tangents,
    /// The columns with those of their tangents.
    pub with_tangents: &'a DFSchema,
    /// The operator that linearizes an expression.
    pub jvp: &'a Arc<ScalarUDF>,
    /// The variable's name.
    pub variable: &'a str,
    /// The names of added columns.
    pub names: &'a mut Names,
    /// The keys of the groups that aggregates are over.
    pub keys: &'a [Expr],
    /// The window functions over the rows that tangents read, below those that are computed.
    pub ranks: &'a mut Vec<Expr>,
    /// The functions over the rows. Those that tangents are computed from are added.
    pub computed: &'a mut Vec<Expr>,
}

/// A tangent, and where it is 0 because branches are taken that do not vary.
#[derive(Debug)]
pub struct Guarded {
    /// The tangent.
    pub tangent: Expr,
    /// The condition, if there may be such rows.
    pub inactive: Option<Expr>,
}

impl Guarded {
    /// Creates the tangent of a function from that of its formula, which may be NaN where no row varies.
    fn new(function: &Expr, tangent: Expr, inactive: Option<Expr>) -> Result<Self> {
        let is_linear = LINEAR.contains(&AggregateOrWindow::from_expr(function)?.definition().name());
        let tangent = match &inactive {
            Some(inactive) if !is_linear => when(inactive.clone(), lit(0.0)).otherwise(tangent)?,
            _ => tangent,
        };
        Ok(Self { tangent, inactive })
    }
}

/// Functions whose tangent is a tangent of a row or a sum of them, and so is 0 where these are.
const LINEAR: [&str; 11] =
    ["sum", "avg", "min", "max", "median", "percentile_cont", "first_value", "last_value", "nth_value", "lag", "lead"];

/// A function that varies, with the formula of its tangent.
struct VaryingFunction {
    call: AggregateOrWindow,
    inputs: Vec<Input>,
    formula: &'static TangentFormula,
}

impl AggregateRows<'_> {
    /// Returns the tangent of an aggregate or window function.
    pub fn tangent(&mut self, function: &Expr) -> Result<Linearized> {
        let Some(VaryingFunction { call, inputs, formula }) = self.varying(function)? else {
            return Ok(Linearized::Known(Tangent::Zero));
        };
        let complete = if formula.pairs { self.present(&inputs)? } else { None };
        let mut rows = self.rows(call, complete);
        let tangent = formula.evaluate(&inputs, |call| rows.value(call))?;
        Ok(tangent.map_or(Linearized::Known(Tangent::Zero), Linearized::Derived))
    }

    /// Returns the tangent of an aggregate or window function, and where its rows take branches that do not vary; nothing if it is zero.
    pub fn guarded(&mut self, function: &Expr) -> Result<Option<Guarded>> {
        let Linearized::Derived(tangent) = self.tangent(function)? else { return Ok(None) };
        let inactive = self.inactive(function)?;
        Guarded::new(function, tangent, inactive).map(Some)
    }

    /// Returns where an aggregate or window function does not vary by the branches that its rows take, over functions that are added;
    /// none if that is known of no row.
    ///
    /// It does not where none of its rows varies, or where the one that it chooses does not.
    fn inactive(&mut self, function: &Expr) -> Result<Option<Expr>> {
        let call = AggregateOrWindow::from_expr(function)?;
        let Some(condition) = self.inactive_rows(&call)? else { return Ok(None) };
        let name = call.definition().name().to_owned();
        let mut number = Inactive::number(condition)?;
        let (all, _) = if is_choice(&name) {
            if call.null_treatment() == Some(NullTreatment::IgnoreNulls) {
                number = when(call.args()[0].clone().is_not_null(), number).end()?;
            }
            let mut arguments = vec![number];
            arguments.extend(call.args().get(1).cloned());
            // The default of lag and lead is a constant.
            arguments.extend(call.args().get(2).map(|_| lit(1_i64)));
            self.rows(call, None).call(&name, arguments)?
        } else {
            self.rows(call.unordered(), None).call("min", vec![number])?
        };
        Ok(Some(all.eq(lit(1_i64))))
    }

    /// Returns which rows of a function do not vary by the branches that they take, if that is known of some.
    fn inactive_rows(&self, call: &AggregateOrWindow) -> Result<Option<Expr>> {
        if matches!(call, AggregateOrWindow::Window(call) if FrameSum::from_function(&call.fun).is_some()) {
            return Ok(None);
        }
        let mut conditions = vec![];
        for argument in call.args() {
            let Some(tangent) = self.argument(argument)?.tangent else { continue };
            let function = LinearizedExpr::try_new(argument.clone(), self.columns)?;
            let Some(inactive) = function.inactive(self.columns, self.tangents, self.with_tangents)? else {
                return Ok(None);
            };
            let is_zero = one_zero(tangent, &DataType::Float64)?.eq(lit(0.0));
            conditions.push(inactive.and(is_zero));
        }
        Ok(conditions.into_iter().reduce(Expr::and))
    }

    /// Returns a function by its arguments and their tangents; nothing if none of them varies.
    fn varying(&self, function: &Expr) -> Result<Option<VaryingFunction>> {
        let call = AggregateOrWindow::from_expr(function)?;
        let inputs = call.args().iter().map(|argument| self.argument(argument)).collect::<Result<Vec<_>>>()?;
        if inputs.iter().all(|input| input.tangent.is_none()) {
            return Ok(None);
        }
        let definition = call.definition();
        let formula = formulas::tangent_formula(&definition, inputs.len())?;
        if call.distinct() && !formula.is_some_and(|formula| formula.ignores_repetition) {
            return plan_err!(
                "{}: no derivative by {} is known for an aggregate of DISTINCT values. {DISTINCT_BEFORE}",
                abbreviate(function),
                self.variable
            );
        }
        let Some(formula) = formula else {
            return plan_err!(
                "{} varies with {}, and no derivative is known for the function {}. {}",
                abbreviate(function),
                self.variable,
                definition.name(),
                way_without(definition.name())
            );
        };
        if is_quantile(definition.name()) {
            self.check_ranked(function, &call)?;
        }
        Ok(Some(VaryingFunction { call, inputs, formula }))
    }

    /// Refuses a quantile whose rows cannot be ranked below it.
    fn check_ranked(&self, function: &Expr, call: &AggregateOrWindow) -> Result<()> {
        let over = match call {
            AggregateOrWindow::Window(call) if !is_whole(&call.params) => {
                "a frame that is not the whole partition. Take it in the subquery of a gradient by row, grad((SELECT ...), x), or join \
                 each row with those of its frame, and GROUP BY"
            }
            AggregateOrWindow::Aggregate(_) if self.keys.iter().any(|key| matches!(key, Expr::GroupingSet(_))) => {
                "grouping sets. Write these as a UNION ALL of groups"
            }
            AggregateOrWindow::Aggregate(_) if self.keys.iter().any(is_volatile) => {
                "groups by a random key. Draw the key in a CTE"
            }
            _ => return Ok(()),
        };
        let (function, variable) = (abbreviate(function), self.variable);
        plan_err!("{function}: no derivative by {variable} is known for a quantile over {over}")
    }

    /// Returns whether none of the inputs of a row is NULL, if that is not known.
    fn present(&self, inputs: &[Input]) -> Result<Option<Expr>> {
        let mut present = vec![];
        for input in inputs {
            if input.value.nullable(self.with_tangents)? {
                present.push(input.value.clone().is_not_null());
            }
        }
        Ok(present.into_iter().reduce(Expr::and))
    }

    fn rows(&mut self, call: AggregateOrWindow, complete: Option<Expr>) -> CalledRows<'_> {
        let Self { with_tangents: schema, keys, ranks, computed, names, .. } = self;
        CalledRows { call, complete, schema, keys, ranks, computed, names }
    }

    /// Returns an argument and its tangent, both DOUBLE if they are floats.
    fn argument(&self, argument: &Expr) -> Result<Input> {
        let double = |expr: Expr| -> Result<Expr> {
            let data_type = expr.get_type(self.with_tangents)?;
            if is_float(&data_type) { expr.cast_to(&DataType::Float64, self.with_tangents) } else { Ok(expr) }
        };
        let tangent = match linearize(argument, self.columns, self.tangents, self.jvp)? {
            Linearized::Known(Tangent::Zero) => None,
            tangent => Some(double(tangent_to_expr(&tangent, argument, self.columns, &DataType::Float64)?)?),
        };
        Ok(Input { value: double(argument.clone())?, tangent })
    }
}

/// Returns whether an aggregate or window function varies, by which of its arguments vary. A function without a known
/// derivative counts as varying.
pub fn varies(function: &Expr, mut argument_varies: impl FnMut(&Expr) -> Result<bool>) -> Result<bool> {
    let call = AggregateOrWindow::from_expr(function)?;
    let mut inputs = vec![];
    for argument in call.args() {
        let tangent = argument_varies(argument)?.then(|| argument.clone());
        inputs.push(Input { value: argument.clone(), tangent });
    }
    if inputs.iter().all(|input| input.tangent.is_none()) {
        return Ok(false);
    }
    let Some(formula) = formulas::tangent_formula(&call.definition(), inputs.len())? else { return Ok(true) };
    let number: FieldRef = Arc::new(Field::new("value", DataType::Float64, true));
    Ok(formula.evaluate(&inputs, |_| Ok((call.args()[0].clone(), Arc::clone(&number))))?.is_some())
}

/// Returns the arguments on which an aggregate or window function depends smoothly. Any other expression is returned as
/// it is.
pub fn arguments(function: &Expr) -> Vec<&Expr> {
    match function {
        Expr::Alias(alias) => arguments(&alias.expr),
        Expr::AggregateFunction(call) => call.params.args.iter().collect(),
        Expr::WindowFunction(call) => call.params.args.iter().collect(),
        other => vec![other],
    }
}

/// Returns whether an argument of a window function stays as it is, where others become columns: for some of those of `lag(x, 1 + 1)`
/// and `quantile_cont(x, 1 - 0.1)` DataFusion takes constants only.
pub fn stays(argument: &Expr, function: &WindowFunctionDefinition) -> bool {
    let is_constant = !argument.contains_outer() && !has_subquery(argument) && !is_volatile(argument);
    let takes_constants = matches!(function, WindowFunctionDefinition::WindowUDF(_));
    argument.column_refs().is_empty() && (takes_constants || is_constant)
}

/// The call of an aggregate or window function that is differentiated.
#[derive(Debug, Clone)]
enum AggregateOrWindow {
    Aggregate(AggregateFunction),
    Window(Box<WindowFunction>),
}

impl AggregateOrWindow {
    fn from_expr(expr: &Expr) -> Result<Self> {
        match expr.clone().unalias_nested().data {
            Expr::AggregateFunction(call) => Ok(Self::Aggregate(call)),
            Expr::WindowFunction(call) => Ok(Self::Window(call)),
            other => plan_err!("{} is neither an aggregate nor a window function", abbreviate(&other)),
        }
    }

    fn definition(&self) -> WindowFunctionDefinition {
        match self {
            Self::Aggregate(call) => WindowFunctionDefinition::AggregateUDF(call.func.clone()),
            Self::Window(call) => call.fun.clone(),
        }
    }

    fn args(&self) -> &[Expr] {
        match self {
            Self::Aggregate(call) => &call.params.args,
            Self::Window(call) => &call.params.args,
        }
    }

    fn distinct(&self) -> bool {
        match self {
            Self::Aggregate(call) => call.params.distinct,
            Self::Window(call) => call.params.distinct,
        }
    }

    fn null_treatment(&self) -> Option<NullTreatment> {
        match self {
            Self::Aggregate(call) => call.params.null_treatment,
            Self::Window(call) => call.params.null_treatment,
        }
    }

    fn filter(&self) -> Option<&Expr> {
        match self {
            Self::Aggregate(call) => call.params.filter.as_deref(),
            Self::Window(call) => call.params.filter.as_deref(),
        }
    }

    /// Returns whether an aggregate takes its rows from the greatest to the least.
    fn is_descending(&self) -> bool {
        match self {
            Self::Aggregate(call) => call.params.order_by.first().is_some_and(|sort| !sort.asc),
            Self::Window(_) => false,
        }
    }

    /// Returns the call without the order in which an aggregate takes its rows. That of a window has its frame.
    fn unordered(mut self) -> Self {
        if let Self::Aggregate(call) = &mut self {
            call.params.order_by.clear();
        }
        self
    }

    /// Returns the call of another function over the same rows, those that fulfil a condition.
    fn with(&self, name: &str, args: Vec<Expr>, condition: Option<Expr>) -> Result<Expr> {
        let and = |filter: &Option<Box<Expr>>| {
            let given = filter.as_deref().cloned();
            given.into_iter().chain(condition).reduce(Expr::and).map(Box::new)
        };
        Ok(match self {
            Self::Aggregate(AggregateFunction { params, .. }) => Expr::AggregateFunction(AggregateFunction::new_udf(
                formulas::aggregate(name)?,
                args,
                false,
                and(&params.filter),
                params.order_by.clone(),
                params.null_treatment,
            )),
            Self::Window(call) => {
                let fun = if call.fun.name() == name {
                    call.fun.clone()
                } else {
                    WindowFunctionDefinition::AggregateUDF(formulas::aggregate(name)?)
                };
                let filter = and(&call.params.filter);
                let params = WindowFunctionParams { args, filter, distinct: false, ..call.params.clone() };
                Expr::WindowFunction(Box::new(WindowFunction { fun, params }))
            }
        })
    }
}

/// The rows of a call, over which its formula calls others.
#[derive(Debug)]
pub struct CalledRows<'r> {
    call: AggregateOrWindow,
    /// The condition that none of the inputs of a row is NULL.
    complete: Option<Expr>,
    schema: &'r DFSchema,
    keys: &'r [Expr],
    ranks: &'r mut Vec<Expr>,
    computed: &'r mut Vec<Expr>,
    names: &'r mut Names,
}

impl CalledRows<'_> {
    /// Returns the value of a call of the formula over these rows, with its field.
    pub fn value(&mut self, call: FormulaCall) -> Result<(Expr, FieldRef)> {
        match call {
            FormulaCall::Statistic { function, arguments } | FormulaCall::OfRow { function, arguments } => {
                self.call(function, arguments)
            }
            FormulaCall::Pairs { input, tangent } => self.call("regr_count", vec![input, tangent]),
            FormulaCall::Sum { tangent } => self.call("sum", vec![tangent]),
            FormulaCall::Mean { tangent } => self.call("avg", vec![tangent]),
            FormulaCall::Deviations { input, tangent, is_tangent_first } => {
                self.call("regr_sxy", if is_tangent_first { vec![tangent, input] } else { vec![input, tangent] })
            }
            FormulaCall::Chosen { extremum, input, tangent } => self.chosen(extremum, &input, &tangent),
            FormulaCall::Quantile { percentile, input, tangent } => self.quantile(&percentile, &input, tangent),
        }
    }

    /// Returns the value of a function over these rows, with its field.
    pub fn call(&mut self, name: &str, args: Vec<Expr>) -> Result<(Expr, FieldRef)> {
        let call = self.call.with(name, args, self.complete.clone())?;
        let field = call.to_field(self.schema)?.1;
        Ok((Expr::Column(self.names.column(call, self.computed, |names| names.part(name))), field))
    }

    /// Returns the tangent of the row with the least or greatest value, and of those the least or greatest tangent.
    fn chosen(&mut self, extremum: Extremum, value: &Expr, tangent: &Expr) -> Result<(Expr, FieldRef)> {
        let field = tangent.to_field(self.schema)?.1;
        let present = Some(value.clone().is_not_null());
        // One order, not two: where value and tangent are the same expression, DataFusion panics on the second.
        let comparable = |expr: &Expr| one_zero(expr.clone(), &expr.get_type(self.schema)?);
        let both = pair(comparable(value)?, comparable(tangent)?);
        if let AggregateOrWindow::Aggregate(call) = &self.call {
            // In groups, DataFusion 54's first_value takes rows whose condition is NULL.
            let certain = call.params.filter.as_deref().map(|condition| condition.clone().is_not_null());
            let present = present.into_iter().chain(certain).reduce(Expr::and);
            let mut first = self.call.with("first_value", vec![tangent.clone()], present)?;
            if let Expr::AggregateFunction(call) = &mut first {
                call.params.order_by = vec![both.sort(extremum == Extremum::Min, false)];
            }
            let first = self.names.column(first, self.computed, |names| names.part("first_value"));
            return Ok((Expr::Column(first), field));
        }
        // A window has an order of its own.
        let extremum = extremum.function();
        let call = self.call.with(extremum, vec![both], present)?;
        let chosen = self.names.column(call, self.computed, |names| names.part(extremum));
        Ok((tangent_in(Expr::Column(chosen)), field))
    }

    /// Returns the tangents of the rows with a share in a quantile, each times its share. Equal values are taken in the order of their
    /// tangents, so that it is the derivative for a growing variable.
    fn quantile(&mut self, percentile: &Percentile, value: &Expr, tangent: Expr) -> Result<(Expr, FieldRef)> {
        let field = Arc::new(Field::new("quantile", DataType::Float64, true));
        let of_those = |expr: &Expr| of_rows(self.call.filter(), one_zero(expr.clone(), &DataType::Float64)?);
        let keys = match &self.call {
            AggregateOrWindow::Aggregate(_) => keys_of_partitions(self.keys, self.schema)?,
            AggregateOrWindow::Window(call) => call.params.partition_by.clone(),
        };
        let ranks = ranks(&keys, &of_those(value)?, Some(of_those(&tangent)?));
        let ranks = ranks.map(|rank| Expr::Column(self.names.column(rank, self.ranks, |names| names.part("rank"))));
        let share = share(ranks, percentile, self.call.is_descending());
        let term = binary_expr(share, Operator::Multiply, tangent);
        let sum = self.call.clone().unordered().with("sum", vec![term], None)?;
        Ok((Expr::Column(self.names.column(sum, self.computed, |names| names.part("sum"))), field))
    }
}

/// Returns a value of each row that fulfils a condition.
fn of_rows(condition: Option<&Expr>, value: Expr) -> Result<Expr> {
    match condition {
        Some(condition) => when(condition.clone(), value).end(),
        None => Ok(value),
    }
}
