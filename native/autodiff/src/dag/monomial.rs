//! Products, quotients and powers as monomials: a number times nodes with exponents.

use datafusion_common::Result;
use datafusion_expr::{Expr, Operator};
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Dag, NodeId};
use crate::vocabulary::functions;

/// `coefficient * base^exponent * ...`
#[derive(Debug, Clone, PartialEq)]
pub struct Monomial {
    pub coefficient: f64,
    pub factors: BTreeMap<NodeId, f64>,
}

/// Nodes that are products, with their factors.
pub type Products = Arc<[(NodeId, Arc<Monomial>)]>;

/// How far nodes are taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Depth {
    /// The primal's own products stay whole, since the query may compute them anyway.
    Derivative,
    /// Down to what is no product.
    Full,
}

/// More factors than this are not looked through.
const MOST_FACTORS: usize = 64;
/// Neither are larger exponents.
const LARGEST_EXPONENT: f64 = 1e6;
/// Powers up to this one are products.
const LARGEST_PRODUCT: f64 = 4.0;

impl Monomial {
    pub fn number(coefficient: f64) -> Self {
        Self { coefficient, factors: BTreeMap::new() }
    }

    fn of(base: NodeId, exponent: f64) -> Self {
        Self { coefficient: 1.0, factors: BTreeMap::from([(base, exponent)]) }
    }

    /// This times the `exponent`-th power of the other.
    pub fn times(&self, other: &Self, exponent: f64) -> Self {
        let mut product = self.clone();
        if exponent == -1.0 {
            // What divides itself is 1 to the last bit.
            product.coefficient /= other.coefficient;
        } else {
            product.coefficient *= other.coefficient.powf(exponent);
        }
        for (base, e) in &other.factors {
            let sum = product.factors.entry(*base).or_default();
            *sum += e * exponent;
            if is_close(*sum, 0.0) {
                product.factors.remove(base);
            }
        }
        product
    }

    /// This divided by the other.
    pub fn over(&self, other: &Self) -> Self {
        self.times(other, -1.0)
    }

    /// The factors that both have, each with the exponent closer to 0; or the least one, which makes a common denominator.
    pub fn common(&self, other: &Self, denominator: bool) -> Self {
        let exponent = |of: &Self, base| of.factors.get(base).copied().unwrap_or(0.0);
        let mut common =
            Self::number(if self.coefficient.abs() == other.coefficient.abs() { self.coefficient.abs() } else { 1.0 });
        for base in self.factors.keys().chain(other.factors.keys()) {
            let (a, b) = (exponent(self, base), exponent(other, base));
            let shared = if a > 0.0 && b > 0.0 || denominator {
                a.min(b)
            } else if a < 0.0 && b < 0.0 {
                a.max(b)
            } else {
                0.0
            };
            if shared != 0.0 {
                common.factors.insert(*base, shared);
            }
        }
        common
    }

    /// Whether this product contains the other as a whole, so that taking it out divides by nothing new.
    fn contains(&self, other: &Self) -> bool {
        other.factors.iter().all(|(base, part)| {
            let whole = self.factors.get(base).copied().unwrap_or(0.0);
            whole * part > 0.0 && whole.abs() >= part.abs()
        })
    }

    /// How many factors there are, powers written out.
    fn degree(&self) -> f64 {
        self.factors.values().map(|exponent| exponent.abs()).sum()
    }

    /// The only factor, if there is just one and it is no power.
    pub fn single(&self) -> Option<NodeId> {
        match self.factors.iter().next() {
            Some((base, &1.0)) if self.factors.len() == 1 => Some(*base),
            _ => None,
        }
    }

    pub fn is_one(&self) -> bool {
        self.coefficient == 1.0 && self.factors.is_empty()
    }
}

impl Dag<'_> {
    /// A node as a monomial; what is no product is a monomial of itself.
    #[recursive::recursive]
    pub fn monomial(&mut self, id: NodeId, depth: Depth) -> Result<Arc<Monomial>> {
        if let Some(known) = self.monomials.get(&(id, depth)) {
            return Ok(Arc::clone(known));
        }
        let read = self.read(id, depth)?;
        let read = self.with_roots_merged(read, depth)?;
        let fits = read.factors.len() <= MOST_FACTORS
            && read.coefficient.is_normal()
            && read.factors.values().all(|exponent| exponent.abs() <= LARGEST_EXPONENT);
        let monomial = Arc::new(if fits || self.as_number(id).is_some() { read } else { Monomial::of(id, 1.0) });
        self.monomials.insert((id, depth), Arc::clone(&monomial));
        Ok(monomial)
    }

    /// The monomial with `w` for the square of `sqrt(w)`, and `sqrt(w)` for `w / sqrt(w)`.
    fn with_roots_merged(&mut self, mut monomial: Monomial, depth: Depth) -> Result<Monomial> {
        for (root, exponent) in monomial.factors.clone() {
            let node = self.node(root);
            let is_root = matches!(&node.shape, Expr::ScalarFunction(call) if call.func == *functions::function("sqrt")?);
            if !is_root || node.field.data_type() != &self.working_type {
                continue;
            }
            let square = self.monomial(node.children[0], depth)?;
            for pairs in [(exponent / 2.0).trunc(), exponent.signum()] {
                let merged = monomial.times(&square, pairs).times(&Monomial::of(root, 1.0), -2.0 * pairs);
                if merged.degree() < monomial.degree() {
                    monomial = merged;
                }
            }
        }
        Ok(monomial)
    }

    fn read(&mut self, id: NodeId, depth: Depth) -> Result<Monomial> {
        if let Some(value) = self.as_number(id) {
            return Ok(Monomial::number(value));
        }
        let node = self.node(id);
        let children = node.children.clone();
        if node.field.data_type() != &self.working_type {
            return Ok(Monomial::of(id, 1.0));
        }
        if matches!(node.shape, Expr::Negative(_)) {
            return Ok(self.monomial(children[0], depth)?.times(&Monomial::number(-1.0), 1.0));
        }
        if depth == Depth::Derivative && self.is_primal(id) {
            return Ok(Monomial::of(id, 1.0));
        }
        match &node.shape {
            Expr::BinaryExpr(binary) if matches!(binary.op, Operator::Multiply | Operator::Divide) => {
                let sign = if binary.op == Operator::Multiply { 1.0 } else { -1.0 };
                let (a, b) = (self.monomial(children[0], depth)?, self.monomial(children[1], depth)?);
                Ok(a.times(&b, sign))
            }
            Expr::ScalarFunction(call) if call.func == *functions::function("power")? => {
                match self.as_number(children[1]) {
                    // A product is taken apart only under a whole power: (x * x)^0.5 is not x.
                    Some(exponent) if exponent.fract() == 0.0 => {
                        let base = self.monomial(children[0], depth)?;
                        Ok(Monomial::number(1.0).times(&base, exponent))
                    }
                    Some(exponent) => Ok(Monomial::of(children[0], exponent)),
                    None => Ok(Monomial::of(id, 1.0)),
                }
            }
            _ => Ok(Monomial::of(id, 1.0)),
        }
    }

    /// The node of a monomial: a product, or a quotient of two.
    pub fn product_of(&mut self, monomial: &Monomial) -> Result<NodeId> {
        let magnitude = monomial.coefficient.abs();
        let mut numerator = if magnitude == 1.0 { None } else { Some(self.number(magnitude)?) };
        let mut denominator = None;
        for (base, exponent) in &monomial.factors {
            let positive = *exponent > 0.0;
            let exponent = self.written_exponent(*base, exponent.abs())?;
            let power = self.positive_power(*base, exponent)?;
            let side = if positive { &mut numerator } else { &mut denominator };
            *side = Some(match *side {
                None => power,
                Some(product) => self.binary(product, Operator::Multiply, power)?,
            });
        }
        let numerator = match numerator {
            Some(numerator) => numerator,
            None => self.number(1.0)?,
        };
        let quotient = match denominator {
            None => self.cast_to_working_type(numerator)?,
            Some(denominator) => self.binary(numerator, Operator::Divide, denominator)?,
        };
        if monomial.coefficient < 0.0 { self.negate(quotient) } else { Ok(quotient) }
    }

    /// The exponent as the query writes it for this base, or a whole number, if it differs by rounding only.
    fn written_exponent(&mut self, base: NodeId, exponent: f64) -> Result<f64> {
        if is_close(exponent.round(), exponent) {
            return Ok(exponent.round());
        }
        let products = self.primal_products()?;
        let mut written = products.iter().filter_map(|(_, product)| product.factors.get(&base)).map(|e| e.abs());
        Ok(written.find(|other| is_close(*other, exponent)).unwrap_or(exponent))
    }

    /// The same product with one of the primal's in place of a number: with `w = 8.3 * t` in the query, `a / (8.3 * t^2)` is
    /// `a / (w * t)`.
    pub fn absorb_coefficient(&mut self, product: &Monomial) -> Result<Vec<Monomial>> {
        let mut found = vec![];
        if product.coefficient.abs() == 1.0 {
            return Ok(found);
        }
        for (node, factor) in self.primal_products()?.iter() {
            for exponent in [1.0, -1.0] {
                let coefficient = product.times(factor, -exponent).coefficient;
                let contained = product.contains(&Monomial::number(1.0).times(factor, exponent));
                if contained && is_close(coefficient.abs(), 1.0) {
                    let rest = Monomial { coefficient: coefficient.signum(), ..product.times(factor, -exponent) };
                    found.push(rest.times(&Monomial::of(*node, 1.0), exponent));
                }
            }
        }
        Ok(found)
    }

    /// The products and powers of the primal, the first if there are many.
    fn primal_products(&mut self) -> Result<Products> {
        if let Some(known) = &self.primal_products {
            return Ok(Arc::clone(known));
        }
        let mut products = vec![];
        for node in (0..self.primal).map(NodeId) {
            let monomial = self.monomial(node, Depth::Full)?;
            if monomial.single() != Some(node) && !monomial.factors.is_empty() && products.len() < MOST_FACTORS {
                products.push((node, monomial));
            }
        }
        let products: Products = products.into();
        self.primal_products = Some(Arc::clone(&products));
        Ok(products)
    }

    fn positive_power(&mut self, base: NodeId, exponent: f64) -> Result<NodeId> {
        if exponent.fract() == 0.0 && exponent <= LARGEST_PRODUCT {
            return self.small_power(base, exponent as u32);
        }
        let exponent = self.number(exponent)?;
        self.call(functions::function("power")?, &[base, exponent])
    }

    fn small_power(&mut self, base: NodeId, exponent: u32) -> Result<NodeId> {
        match exponent {
            0 => self.number(1.0),
            1 => Ok(base),
            _ if exponent.is_multiple_of(2) => {
                let root = self.small_power(base, exponent / 2)?;
                self.binary(root, Operator::Multiply, root)
            }
            _ => {
                let rest = self.small_power(base, exponent - 1)?;
                self.binary(rest, Operator::Multiply, base)
            }
        }
    }

    /// `base^exponent`; a negative power is a quotient, so that 0 is never raised to it, which DataFusion refuses.
    pub fn power(&mut self, base: NodeId, exponent: f64) -> Result<NodeId> {
        if exponent < 0.0 {
            let one = self.number(1.0)?;
            let positive = self.positive_power(base, -exponent)?;
            return self.divide(one, positive);
        }
        self.positive_power(base, exponent)
    }
}

/// Whether exponents that were added and subtracted are the same but for rounding.
fn is_close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 8.0 * f64::EPSILON * a.abs().max(b.abs()).max(1.0)
}
