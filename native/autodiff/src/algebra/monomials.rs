//! Nodes of a graph as monomials.

use arrow::datatypes::DataType;
use datafusion_common::{DFSchema, Result};
use datafusion_expr::{Expr, Operator};
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::monomial::Monomial;
use super::powers::{as_power, as_written_power};
use crate::graph::{Graph, NodeId};
use crate::table::Algebraic;

/// A graph with the algebra of its numeric nodes.
#[derive(Debug)]
pub struct Algebra<'a> {
    graph: Graph<'a>,
    monomials: HashMap<(NodeId, Depth), Arc<Monomial>>,
    primal_products: Option<Products>,
    primal_powers: Option<Powers>,
}

impl<'a> Algebra<'a> {
    /// Creates a graph without nodes, for expressions over the columns of a schema.
    pub fn new(schema: &'a DFSchema) -> Self {
        Self { graph: Graph::new(schema), monomials: HashMap::new(), primal_products: None, primal_powers: None }
    }

    /// Sets the type of derivatives.
    pub fn start_derivative(&mut self, working_type: DataType) {
        if *self.graph.working_type() != working_type {
            // A node of another type is no product.
            self.monomials.clear();
            self.primal_products = None;
            self.primal_powers = None;
            self.graph.set_working_type(working_type);
        }
    }
}

impl<'a> Deref for Algebra<'a> {
    type Target = Graph<'a>;

    fn deref(&self) -> &Self::Target {
        &self.graph
    }
}

impl DerefMut for Algebra<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.graph
    }
}

/// Nodes that are products, with their factors.
pub type Products = Arc<[(NodeId, Arc<Monomial>)]>;

/// Powers whose exponents are numbers: base, exponent, and the power itself.
pub type Powers = Arc<[(NodeId, f64, NodeId)]>;

/// The depth to which nodes are expanded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Depth {
    /// Products of the primal stay whole, since the query may compute them anyway.
    Derivative,
    /// Down to nodes that are no product.
    Full,
}

/// Products of more factors are not expanded.
const MAX_FACTORS: usize = 64;
/// Nor are powers with larger exponents.
const MAX_EXPONENT: f64 = 1e6;

impl Algebra<'_> {
    /// Returns a node as a monomial; a node that is no product is a monomial of itself.
    #[recursive::recursive]
    pub fn monomial(&mut self, id: NodeId, depth: Depth) -> Result<Arc<Monomial>> {
        if let Some(known) = self.monomials.get(&(id, depth)) {
            return Ok(Arc::clone(known));
        }
        let expanded = self.expand_node(id, depth)?;
        let expanded = self.merge_roots(expanded, depth)?;
        let fits = expanded.factors.len() <= MAX_FACTORS
            && expanded.coefficient.is_normal()
            && expanded.factors.values().all(|exponent| exponent.abs() <= MAX_EXPONENT);
        let monomial = Arc::new(if fits || self.as_number(id).is_some() { expanded } else { Monomial::power(id, 1.0) });
        self.monomials.insert((id, depth), Arc::clone(&monomial));
        Ok(monomial)
    }

    /// Replaces the square of `sqrt(w)` by `w`, and `w / sqrt(w)` by `sqrt(w)`.
    fn merge_roots(&mut self, mut monomial: Monomial, depth: Depth) -> Result<Monomial> {
        for (root, exponent) in monomial.factors.clone() {
            let node = self.node(root);
            let is_root = node.line().is_some_and(|line| line.algebraic == Some(Algebraic::SquareRoot));
            if !is_root || node.field.data_type() != self.working_type() {
                continue;
            }
            let radicand = node.children[0];
            let square = self.monomial(radicand, depth)?;
            // x^0.5 * sqrt(x) is x.
            let is_half = |power: &f64| power.fract().abs() == 0.5;
            let half = square.as_single() == Some(radicand) && monomial.factors.get(&radicand).is_some_and(is_half);
            let all = if half { exponent / 2.0 } else { 0.0 };
            for pairs in [(exponent / 2.0).trunc(), exponent.signum(), all] {
                let merged = monomial.times(&square, pairs).times(&Monomial::power(root, 1.0), -2.0 * pairs);
                if merged.degree() < monomial.degree() {
                    monomial = merged;
                }
            }
        }
        Ok(monomial)
    }

    fn expand_node(&mut self, id: NodeId, depth: Depth) -> Result<Monomial> {
        if let Some(value) = self.as_number(id) {
            return Ok(Monomial::number(value));
        }
        let node = self.node(id);
        let children = node.children.clone();
        if node.field.data_type() != self.working_type() {
            return Ok(Monomial::power(id, 1.0));
        }
        if matches!(node.shape, Expr::Negative(_)) {
            return Ok(self.monomial(children[0], depth)?.times(&Monomial::number(-1.0), 1.0));
        }
        if depth == Depth::Derivative && self.is_primal(id) {
            return Ok(Monomial::power(id, 1.0));
        }
        match &node.shape {
            Expr::BinaryExpr(binary) if matches!(binary.op, Operator::Multiply | Operator::Divide) => {
                let sign = if binary.op == Operator::Multiply { 1.0 } else { -1.0 };
                let (a, b) = (self.monomial(children[0], depth)?, self.monomial(children[1], depth)?);
                Ok(a.times(&b, sign))
            }
            _ => match as_power(self, id).or_else(|| as_written_power(self, id)) {
                // A product is expanded only under an integer power: (x * x)^0.5 is not x.
                Some((base, exponent)) if exponent.fract() == 0.0 => {
                    let base = self.monomial(base, depth)?;
                    Ok(Monomial::number(1.0).times(&base, exponent))
                }
                Some((base, exponent)) => Ok(Monomial::power(base, exponent)),
                None => Ok(Monomial::power(id, 1.0)),
            },
        }
    }

    /// Returns the products and powers of the primal, at most a maximum number.
    pub fn primal_products(&mut self) -> Result<Products> {
        if let Some(known) = &self.primal_products {
            return Ok(Arc::clone(known));
        }
        let mut products = vec![];
        for node in self.primal() {
            let monomial = self.monomial(node, Depth::Full)?;
            if monomial.as_single() != Some(node) && !monomial.factors.is_empty() && products.len() < MAX_FACTORS {
                products.push((node, monomial));
            }
        }
        let products: Products = products.into();
        self.primal_products = Some(Arc::clone(&products));
        Ok(products)
    }

    /// Returns the powers of the primal with constant exponents.
    pub fn primal_powers(&mut self) -> Powers {
        if let Some(known) = &self.primal_powers {
            return Arc::clone(known);
        }
        let of_working_type = |id: &NodeId| self.data_type(*id) == self.working_type();
        let powers = self.primal().filter(of_working_type);
        let powers = powers.filter_map(|id| as_power(self, id).map(|(base, exponent)| (base, exponent, id)));
        let powers: Powers = powers.collect();
        self.primal_powers = Some(Arc::clone(&powers));
        powers
    }
}
