//! Opaque expressions, which keep their text in the dialect of another engine.

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, Result, TableReference, exec_err, plan_err};
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::{
    ColumnarValue, Expr, ExprSchemable, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::columns::{columns_read, is_volatile};
use super::types::is_float;

/// An expression as a function of the parts that it reads, named after its source fragment.
///
/// Plans carry it as they carry any function. The calculus differentiates its reading, the expression that it is in DataFusion. Two are
/// equal if their readings are, so relations that differ only in source text are recognized as the same.
#[derive(Debug)]
pub struct OpaqueExpr {
    name: String,
    /// The expression, with a column of [`PART_PREFIX`] for each part.
    reading: Expr,
    field: FieldRef,
    signature: Signature,
}

impl PartialEq for OpaqueExpr {
    fn eq(&self, other: &Self) -> bool {
        self.reading == other.reading
    }
}

impl Eq for OpaqueExpr {}

impl Hash for OpaqueExpr {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.reading.hash(state);
    }
}

/// No table has this name: its columns are the numbers of parts.
const PART_PREFIX: &str = "∂part";

impl OpaqueExpr {
    /// Creates an opaque expression over parts, outside of which it reads nothing.
    ///
    /// # Errors
    /// If the expression reads a column that is in none of the parts, or has no type over the columns.
    pub fn call(name: &str, reading: &Expr, parts: Vec<Expr>, schema: &DFSchema) -> Result<Expr> {
        let field = reading.to_field(schema)?.1;
        let reading = reading.clone().transform_down(|inside| {
            let number = parts.iter().position(|part| *part == inside);
            Ok(number.map_or_else(|| Transformed::no(inside), |number| Transformed::yes(part(number))))
        })?;
        let is_part = |column: &Column| column.relation.as_ref().is_some_and(|table| table.table() == PART_PREFIX);
        if let Some(column) = columns_read(&reading.data).iter().find(|column| !is_part(column)) {
            return plan_err!("the words of an expression do not show that it reads {column}");
        }
        let volatility = if is_volatile(&reading.data) { Volatility::Volatile } else { Volatility::Immutable };
        let signature = Signature::user_defined(volatility);
        let function = Self { name: name.to_owned(), reading: reading.data, field, signature };
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::new(ScalarUDF::new_from_impl(function)), parts)))
    }
}

/// Replaces opaque expressions by their readings.
///
/// # Errors
/// If one lacks a part, which does not happen.
pub fn unwrap_opaque(expr: Expr) -> Result<Transformed<Expr>> {
    expr.transform_down(|expr| {
        let Expr::ScalarFunction(call) = &expr else { return Ok(Transformed::no(expr)) };
        let Some(spelled) = call.func.inner().downcast_ref::<OpaqueExpr>() else { return Ok(Transformed::no(expr)) };
        let reading = spelled.reading.clone().transform_up(|inside| {
            let number = match &inside {
                Expr::Column(Column { relation: Some(TableReference::Bare { table }), name, .. })
                    if table.as_ref() == PART_PREFIX =>
                {
                    name.parse::<usize>().ok()
                }
                _ => None,
            };
            match number.and_then(|number| call.args.get(number)) {
                Some(part) => Ok(Transformed::yes(part.clone())),
                None => Ok(Transformed::no(inside)),
            }
        })?;
        Ok(Transformed::yes(reading.data))
    })
}

/// Returns the part that an opaque expression casts to another float type, if it does nothing else.
pub fn cast_operand(expr: &Expr) -> Option<&Expr> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let mut reading = &call.func.inner().downcast_ref::<OpaqueExpr>()?.reading;
    loop {
        reading = match reading {
            Expr::Cast(cast) if is_float(cast.field.data_type()) => &cast.expr,
            Expr::TryCast(cast) if is_float(cast.field.data_type()) => &cast.expr,
            reading => return call.args.first().filter(|_| *reading == part(0)),
        }
    }
}

fn part(number: usize) -> Expr {
    Expr::Column(Column::new(Some(TableReference::bare(PART_PREFIX)), number.to_string()))
}

impl ScalarUDFImpl for OpaqueExpr {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        Ok(self.field.data_type().clone())
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        // An outer join above what the expression read first may add NULL.
        let nullable = self.field.is_nullable() || args.arg_fields.iter().any(|field| field.is_nullable());
        Ok(Arc::new(Field::new(&self.name, self.field.data_type().clone(), nullable)))
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("only the engine of these words can run them")
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion_common::{DFSchema, Result};
    use datafusion_expr::{Expr, cast, col, lit};

    use super::{OpaqueExpr, cast_operand, unwrap_opaque};

    fn schema() -> Result<DFSchema> {
        let columns = ["x", "y"].map(|name| Field::new(name, DataType::Float64, true));
        DFSchema::try_from(Schema::new(columns.to_vec()))
    }

    fn spelled(reading: &Expr, parts: &[&str]) -> Result<Expr> {
        OpaqueExpr::call("∂ 0", reading, parts.iter().map(|name| col(*name)).collect(), &schema()?)
    }

    #[test]
    fn the_reading_is_of_the_parts_where_they_are() -> Result<()> {
        let expr = spelled(&(col("x") * lit(2.0) + col("y")), &["x", "y"])?;
        let Expr::ScalarFunction(mut call) = expr else { panic!("no function: {expr}") };
        call.args = vec![col("a"), col("b")];
        assert_eq!(unwrap_opaque(Expr::ScalarFunction(call))?.data, col("a") * lit(2.0) + col("b"));
        Ok(())
    }

    #[test]
    fn a_column_that_is_no_part_is_an_error() {
        assert!(spelled(&(col("x") + col("y")), &["x"]).is_err());
    }

    #[test]
    fn expressions_with_other_fragments_are_equal() -> Result<()> {
        let reading = col("x") + lit(0.5);
        let again = OpaqueExpr::call("∂ 1", &reading, vec![col("x")], &schema()?)?;
        assert_eq!(spelled(&reading, &["x"])?, again);
        assert_ne!(spelled(&(col("x") + lit(0.25)), &["x"])?, again);
        Ok(())
    }

    #[test]
    fn a_conversion_between_floats_passes_its_part_on() -> Result<()> {
        let single = cast(cast(col("x"), DataType::Float32), DataType::Float64);
        assert_eq!(cast_operand(&spelled(&single, &["x"])?), Some(&col("x")));
        let rounded = cast(cast(col("x"), DataType::Int64), DataType::Float64);
        assert_eq!(cast_operand(&spelled(&rounded, &["x"])?), None);
        assert_eq!(cast_operand(&spelled(&-col("x"), &["x"])?), None);
        Ok(())
    }
}
