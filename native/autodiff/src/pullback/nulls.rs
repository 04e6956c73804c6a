//! Where an expression is NULL, and how its derivative is made NULL exactly there.
//!
//! Arithmetic and most functions are strict: NULL exactly where an operand is. So an expression is NULL exactly where
//! one of its *sources* is: a nullable column, or a sub-expression that can be NULL for reasons of its own, such as
//! CASE. A derivative that lacks a source of its primal (`y` lacks `x` in the derivative of `x * y`) is guarded by it;
//! one that reads all of them costs nothing.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use std::collections::{BTreeSet, HashMap};

use crate::algebra::Algebra;
use crate::graph::NodeId;
use crate::rules::Rules;
use crate::table::Nulls;
use crate::vocabulary::types::is_float;

/// The nodes any of which being NULL makes an expression NULL.
pub type Sources = BTreeSet<NodeId>;

/// The sources of nodes, computed on first use.
#[derive(Debug)]
pub struct NullSets<'r> {
    rules: &'r Rules,
    known: HashMap<NodeId, Sources>,
}

impl<'r> NullSets<'r> {
    /// Creates empty sets; `rules` say which functions are strict.
    pub fn new(rules: &'r Rules) -> Self {
        Self { rules, known: HashMap::new() }
    }

    /// Returns the sources of a node.
    pub fn sources(&mut self, algebra: &Algebra, root: NodeId) -> Sources {
        if !self.known.contains_key(&root) {
            for id in algebra.reachable(root) {
                if !self.known.contains_key(&id) {
                    let sources = self.inherited_sources(algebra, id);
                    self.known.insert(id, sources);
                }
            }
        }
        self.known.get(&root).cloned().unwrap_or_default()
    }

    /// Records that a node is NULL exactly where `like` is.
    pub fn equate(&mut self, algebra: &Algebra, id: NodeId, like: NodeId) {
        let sources = self.sources(algebra, like);
        self.known.insert(id, sources);
    }

    /// Removes the sources of nodes that are not of the primal.
    pub fn forget_derivatives(&mut self, algebra: &Algebra) {
        self.known.retain(|id, _| algebra.is_primal(*id));
    }

    fn inherited_sources(&self, algebra: &Algebra, id: NodeId) -> Sources {
        let node = algebra.node(id);
        if let Some(sources) = self.case_sources(algebra, id) {
            sources
        } else if is_strict(self.rules, algebra, id) {
            node.children.iter().filter_map(|child| self.known.get(child)).flatten().copied().collect()
        } else if node.field.is_nullable() && !self.ignores_nulls(algebra, id) {
            Sources::from([id])
        } else {
            Sources::new()
        }
    }

    /// Returns whether a node is one of its children that is not NULL, of which there is always one.
    fn ignores_nulls(&self, algebra: &Algebra, id: NodeId) -> bool {
        let node = algebra.node(id);
        node.line().is_some_and(|line| line.nulls == Nulls::AllInputs)
            && node.children.iter().any(|child| self.known.get(child).is_some_and(Sources::is_empty))
    }

    /// Returns the sources of a guard, or those of ELSE if every other branch is NULL where ELSE is, or is chosen and a value only where ELSE
    /// is a value: `CASE WHEN x < 0 THEN 0 ELSE x END` is NULL exactly where `x` is.
    fn case_sources(&self, algebra: &Algebra, id: NodeId) -> Option<Sources> {
        let node = algebra.node(id);
        let Expr::Case(case) = &node.shape else { return None };
        if let (None, [condition, value], None) = (&case.expr, node.children.as_slice(), &case.else_expr) {
            let mut sources = self.tested_sources(algebra, *condition)?;
            sources.extend(self.known.get(value)?);
            return Some(sources);
        }
        let (otherwise, rest) = node.children.split_last()?;
        case.else_expr.as_ref()?;
        let sources = self.known.get(otherwise)?;
        let (operand, choices) = rest.split_at(usize::from(case.expr.is_some()));
        let has_same_nulls = |choice: &[NodeId]| {
            let &[condition, value] = choice else { return false };
            let Some(of_value) = self.known.get(&value) else { return false };
            let is_excluded = || operand.is_empty() && self.not_null_where(algebra, condition).is_superset(sources);
            of_value == sources || (of_value.is_subset(sources) && is_excluded())
        };
        choices.chunks(2).all(has_same_nulls).then(|| sources.clone())
    }

    /// Returns the sources of `a` and `b` for the condition `a IS NOT NULL AND b IS NOT NULL`.
    #[recursive::recursive]
    fn tested_sources(&self, algebra: &Algebra, condition: NodeId) -> Option<Sources> {
        let node = algebra.node(condition);
        match &node.shape {
            Expr::IsNotNull(_) => self.known.get(&node.children[0]).cloned(),
            Expr::BinaryExpr(binary) if binary.op == Operator::And => {
                let mut sources = self.tested_sources(algebra, node.children[0])?;
                sources.extend(self.tested_sources(algebra, node.children[1])?);
                Some(sources)
            }
            _ => None,
        }
    }

    /// Makes `derivative` NULL wherever one of the `required` sources is.
    ///
    /// Instead of several sources of the `primal` it tests that itself, once for the derivatives by all of its variables.
    pub fn guard(
        &mut self,
        algebra: &mut Algebra,
        derivative: NodeId,
        required: &Sources,
        primal: Option<NodeId>,
    ) -> Result<NodeId> {
        if required.iter().any(|source| is_null(algebra, *source)) {
            return algebra.null();
        }
        let present = self.sources(algebra, derivative);
        let mut missing: Vec<_> = required.difference(&present).copied().collect();
        if let Some(primal) = primal {
            let of_primal = self.sources(algebra, primal);
            let others: Vec<_> = missing.iter().copied().filter(|source| !of_primal.contains(source)).collect();
            if missing.len() > others.len() + 1 {
                missing = [vec![primal], others].concat();
            }
        }
        let mut condition = None;
        for source in missing {
            let holds = algebra.is_not_null(source)?;
            condition = Some(match condition {
                None => holds,
                Some(others) => algebra.and(others, holds)?,
            });
        }
        match condition {
            None => Ok(derivative),
            Some(condition) => insert_guard(algebra, condition, derivative),
        }
    }

    /// Returns the sources that are not NULL where a condition holds.
    pub fn excluded_by(&mut self, algebra: &Algebra, condition: NodeId) -> Sources {
        self.sources(algebra, condition);
        self.not_null_where(algebra, condition)
    }

    /// Returns the sources that are not NULL where a condition holds, of which those of its parts are known.
    #[recursive::recursive]
    fn not_null_where(&self, algebra: &Algebra, condition: NodeId) -> Sources {
        let node = algebra.node(condition);
        let holds_only_for_values = match &node.shape {
            Expr::IsNotNull(_) => true,
            Expr::BinaryExpr(binary) => matches!(
                binary.op,
                Operator::Eq | Operator::NotEq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
            ),
            _ => false,
        };
        let conjunction = matches!(&node.shape, Expr::BinaryExpr(binary) if binary.op == Operator::And);
        let mut sources = Sources::new();
        for child in &node.children {
            if conjunction {
                sources.extend(self.not_null_where(algebra, *child));
            } else if holds_only_for_values {
                sources.extend(self.known.get(child).into_iter().flatten());
            }
        }
        sources
    }

    /// Rewrites `derivative`, which cannot be NULL, in a form that the planner knows not to be NULL.
    ///
    /// If a rule of the user's is NULL where its function is not, the derivative is NaN.
    pub fn assert_never(&mut self, algebra: &mut Algebra, derivative: NodeId) -> Result<NodeId> {
        let nan = algebra.number(f64::NAN)?;
        let holds = algebra.is_not_null(derivative)?;
        algebra.case(&[(holds, derivative)], Some(nan))
    }
}

/// Makes `derivative` NULL where the condition does not hold.
///
/// DataFusion's common-subexpression elimination does not look inside CASE. So the CASE is put around a single operand, or around 1, and
/// leaves the parts that other derivatives share outside.
fn insert_guard(algebra: &mut Algebra, condition: NodeId, derivative: NodeId) -> Result<NodeId> {
    let node = algebra.node(derivative);
    let is_leaf = |id: &NodeId| algebra.node(*id).children.is_empty();
    match (&node.shape, node.children.as_slice()) {
        (Expr::BinaryExpr(binary), &[a, b]) => {
            let op = binary.op;
            if is_leaf(&b) {
                let guarded = algebra.case(&[(condition, b)], None)?;
                algebra.binary(a, op, guarded)
            } else if is_leaf(&a) {
                let guarded = algebra.case(&[(condition, a)], None)?;
                algebra.binary(guarded, op, b)
            } else {
                let one = algebra.number(1.0)?;
                let guarded = algebra.case(&[(condition, one)], None)?;
                algebra.binary(guarded, Operator::Multiply, derivative)
            }
        }
        _ => algebra.case(&[(condition, derivative)], None),
    }
}

fn is_null(algebra: &Algebra, id: NodeId) -> bool {
    matches!(&algebra.node(id).shape, Expr::Literal(scalar, _) if scalar.is_null())
}

/// Returns whether a node is NULL exactly where one of its children is.
fn is_strict(rules: &Rules, algebra: &Algebra, id: NodeId) -> bool {
    let node = algebra.node(id);
    match &node.shape {
        Expr::Cast(_) => true,
        // A cast between floats never fails.
        Expr::TryCast(_) => is_float(node.field.data_type()) && is_float(algebra.data_type(node.children[0])),
        Expr::ScalarFunction(call) => rules.is_strict(&call.func, call.args.len()),
        _ => node.line().is_some_and(|line| line.nulls == Nulls::AnyInput),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algebra::show;
    use crate::graph::import;
    use crate::vocabulary::testing::columns;
    use datafusion_expr::{Expr, col, lit, when};

    #[test]
    fn sources_of_nulls() -> Result<()> {
        let (schema, rules) = (columns()?, Rules::default());
        let mut algebra = Algebra::new(&schema);
        let n = import(&mut algebra, &col("n"))?;
        let chosen = when(col("x").gt(lit(0.0)), col("n")).otherwise(lit(1.0))?;
        let both = when(col("x").gt(lit(0.0)), col("n")).otherwise(-col("n"))?;
        let clamped = when(col("n").lt(lit(0.0)), lit(0.0)).otherwise(col("n"))?;
        let mixed = when(col("x").lt(lit(0.0)), lit(0.0)).otherwise(col("n"))?;
        let mut nulls = NullSets::new(&rules);
        for (expr, own) in [
            (col("x"), false),
            (col("x") * col("n"), false),
            (chosen, true),
            (both, false),
            (clamped, false),
            (mixed, true),
        ] {
            let id = import(&mut algebra, &expr)?;
            let reads_n = !matches!(expr, Expr::Column(_)) && !own;
            let expected = if own { Sources::from([id]) } else { reads_n.then_some(n).into_iter().collect() };
            assert_eq!(nulls.sources(&algebra, id), expected, "{expr}");
        }
        Ok(())
    }

    #[test]
    fn a_guard_asks_for_what_is_missing() -> Result<()> {
        let (schema, rules) = (columns()?, Rules::default());
        let mut algebra = Algebra::new(&schema);
        let (x, n) = (import(&mut algebra, &col("x"))?, import(&mut algebra, &col("n"))?);
        let mut nulls = NullSets::new(&rules);
        let required = Sources::from([n]);
        assert_eq!(nulls.guard(&mut algebra, n, &required, None)?, n);
        let guarded = nulls.guard(&mut algebra, x, &required, None)?;
        assert_eq!(show(&algebra, guarded)?, "CASE WHEN n IS NOT NULL THEN x END");
        assert_eq!(nulls.sources(&algebra, guarded), required);
        let condition = import(&mut algebra, &col("n").gt(lit(0.0)).and(col("x").gt(lit(0.0))))?;
        assert_eq!(nulls.excluded_by(&algebra, condition), required);
        Ok(())
    }
}
