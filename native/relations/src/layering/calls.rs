//! The calls in the expressions of a node, and their derivatives as nodes of one graph.

use arrow::datatypes::{Field, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, DFSchema, Result};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion_expr::{Expr, ScalarUDF};
use datafusion_optimizer::simplify_expressions::ExprSimplifier;
use std::collections::HashMap;
use std::sync::Arc;
use xql_autodiff::vocabulary::columns::is_opaque;
use xql_autodiff::vocabulary::fields::{field_of, type_of};
use xql_autodiff::vocabulary::transform::Transform;
use xql_autodiff::vocabulary::types::result_type;
use xql_autodiff::{Call, Graph, batch_request, import_program};

use crate::vocabulary::names::Names;
use crate::vocabulary::operators::Operators;

/// The calls in expressions of a node, each once, as columns of their own beside those of the input.
pub struct Calls<'o> {
    operators: &'o Operators,
    input: &'o DFSchema,
    /// By the number of the function, the operator and its other arguments.
    known: HashMap<(usize, Transform, Vec<Expr>), Column>,
    /// The types of their columns, in their order.
    fields: Vec<Field>,
    /// The functions that are differentiated, each by the rules of one operator and one way.
    functions: Vec<BatchedFunction>,
}

struct BatchedFunction {
    expr: Expr,
    field: FieldRef,
    /// Whether its calls are of `jvp` as the analyzer rule emits it.
    total: bool,
    tangent: Arc<ScalarUDF>,
    calls: Vec<Call>,
    /// The numbers of their columns.
    columns: Vec<usize>,
}

impl<'o> Calls<'o> {
    /// Of a node with an input of this schema.
    pub fn over(input: &'o DFSchema, operators: &'o Operators) -> Self {
        Self { operators, input, known: HashMap::new(), fields: vec![], functions: vec![] }
    }

    /// Returns the columns of the input, and after them one for each call.
    pub fn schema(&self) -> Result<DFSchema> {
        let calls = DFSchema::from_unqualified_fields(self.fields.iter().cloned().collect(), HashMap::new())?;
        self.input.join(&calls)
    }

    /// Returns an expression with columns in the places of its calls; none if it has to be evaluated where it stands.
    pub fn taken_out(&mut self, expr: Expr, names: &mut Names) -> Result<Option<Expr>> {
        let mut stays = false;
        let taken = expr.transform_down(|part| {
            if stays || stays_in_place(&part) {
                stays = true;
                return Ok(Transformed::new(part, false, TreeNodeRecursion::Stop));
            }
            let Some((operator, transform)) = self.operators.called_by(&part) else { return Ok(Transformed::no(part)) };
            match self.column(&part, operator, transform, names)? {
                Some(column) => Ok(Transformed::new(Expr::Column(column), true, TreeNodeRecursion::Jump)),
                None => {
                    stays = true;
                    Ok(Transformed::new(part, false, TreeNodeRecursion::Stop))
                }
            }
        })?;
        Ok((!stays).then_some(taken.data))
    }

    /// Returns the column of a call; none if the call has another one in it.
    fn column(
        &mut self,
        call: &Expr,
        operator: usize,
        transform: Transform,
        names: &mut Names,
    ) -> Result<Option<Column>> {
        let Expr::ScalarFunction(ScalarFunction { args, .. }) = call else { return Ok(None) };
        let Some((expr, directions)) = args.split_first() else { return Ok(None) };
        let inside = |part: &Expr| Ok(stays_in_place(part) || self.operators.called_by(part).is_some());
        let total = transform == Transform::Tangent;
        let tangent = self.operators.tangent(operator);
        // Most often it is that of the call before.
        let known = self
            .functions
            .iter()
            .rposition(|known| known.total == total && Arc::ptr_eq(&known.tangent, tangent) && known.expr == *expr);
        for argument in if known.is_none() { args } else { directions } {
            if argument.exists(inside)? {
                return Ok(None);
            }
        }
        let number = match known {
            Some(number) => number,
            None => {
                let field = field_of(expr, self.input)?;
                let (expr, tangent) = (expr.clone(), Arc::clone(tangent));
                self.functions.push(BatchedFunction { expr, field, total, tangent, calls: vec![], columns: vec![] });
                self.functions.len() - 1
            }
        };
        let key = (number, transform, directions.to_vec());
        if let Some(known) = self.known.get(&key) {
            return Ok(Some(known.clone()));
        }
        let function = &mut self.functions[number];
        // As the function itself says, which may be one of another library that is slow to ask.
        let mut types = vec![];
        let mut nullable = function.field.is_nullable();
        for (column, factor) in transform.seeds(directions) {
            types.push(type_of(column, self.input)?);
            if let Some(factor) = factor.filter(|_| !total) {
                nullable |= field_of(factor, self.input)?.is_nullable();
            }
        }
        let data_type = result_type(function.field.data_type(), &types);
        let column = Column::new_unqualified(names.part("derivative"));
        function.calls.push(Call { transform, directions: directions.to_vec() });
        function.columns.push(self.input.fields().len() + self.fields.len());
        self.fields.push(Field::new(&column.name, data_type, nullable));
        self.known.insert(key, column.clone());
        Ok(Some(column))
    }

    /// Returns how many parts the calls have.
    pub fn size(&self) -> Result<usize> {
        let mut size = 0;
        for function in &self.functions {
            size += function.calls.iter().map(|call| call.directions.len()).sum::<usize>();
            function.expr.apply(|_| {
                size += function.calls.len();
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        Ok(size)
    }

    /// Binds the columns of the calls to their derivatives. Says whether there are all; where one is refused, `simplify` words it.
    pub fn differentiate(&self, graph: &mut Graph, info: &SimplifyContext) -> Result<bool> {
        let simplifier = ExprSimplifier::new(info.clone());
        let simplified = |expr: &Expr| match expr {
            Expr::Column(_) | Expr::Literal(..) => Ok(expr.clone()),
            expr => simplifier.simplify(expr.clone()),
        };
        for BatchedFunction { expr, tangent, calls, columns, .. } in &self.functions {
            let mut asked = vec![];
            for Call { transform, directions } in calls {
                let directions = directions.iter().map(simplified).collect::<Result<_>>()?;
                asked.push(Call { transform: *transform, directions });
            }
            // As DataFusion does before it asks for a derivative.
            let question = batch_request(simplified(expr)?, &asked);
            let Ok(ExprSimplifyResult::Simplified(program)) = tangent.simplify(question, info) else {
                return Ok(false);
            };
            for (column, derivative) in columns.iter().zip(import_program(graph, program, calls.len())?) {
                graph.bind(*column, derivative);
            }
        }
        Ok(true)
    }
}

/// Returns whether an expression is another value elsewhere, or reads what its children do not show.
fn stays_in_place(expr: &Expr) -> bool {
    is_opaque(expr) || expr.is_volatile_node() || matches!(expr, Expr::OuterReferenceColumn(..))
}
