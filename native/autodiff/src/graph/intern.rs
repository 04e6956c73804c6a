//! Nodes, each made once.
//!
//! A node is a *shape*, a DataFusion expression whose children are replaced by numbered placeholder columns, together
//! with the nodes of its children. Any kind of expression fits, typing is DataFusion's own, and two nodes are the same
//! exactly if their shapes and children are. Children come before parents.

use arrow::datatypes::{DataType, FieldRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, ExprSchema, Result, internal_datafusion_err};
use datafusion_expr::{Expr, ExprSchemable};
use std::collections::HashMap;

use crate::table::{self, Line, TableEntry, Treatment};
use crate::vocabulary::columns::{columns_read, is_opaque, is_volatile};

/// A node of a [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) usize);

/// A sub-expression.
#[derive(Debug)]
pub struct Node {
    /// The expression with placeholders for its children.
    pub shape: Expr,
    /// What the placeholders stand for.
    pub children: Vec<NodeId>,
    /// Its type, and whether it may be NULL.
    pub field: FieldRef,
    /// The entry of its function or operator in the rule table.
    pub known: Option<&'static TableEntry>,
    /// Whether each evaluation may give another value.
    pub volatile: bool,
}

impl Node {
    /// Returns the line of its function or operator in the rule table.
    pub fn line(&self) -> Option<&'static Line> {
        self.known.map(|known| known.line)
    }

    /// Returns whether it chooses among values: `CASE`, or a function that the table has as one.
    pub fn is_choice(&self) -> bool {
        let rule_cache = |line: &Line| matches!(line.treatment, Treatment::Choice(_));
        matches!(self.shape, Expr::Case(_)) || self.line().is_some_and(rule_cache)
    }
}

/// The nodes of an expression and of its derivative.
#[derive(Debug)]
pub struct Graph<'a> {
    /// The columns that expressions read.
    pub(super) schema: &'a DFSchema,
    /// The float type that derivatives are computed in.
    working_type: DataType,
    nodes: Vec<Node>,
    interned: HashMap<(Expr, Vec<NodeId>), NodeId>,
    /// The nodes of columns, by their indexes in the schema.
    pub(super) columns: HashMap<usize, NodeId>,
    /// The number of nodes of the query itself, which come first.
    primal: usize,
}

impl<'a> Graph<'a> {
    /// Creates a graph without nodes, for expressions over the columns of a schema.
    pub fn new(schema: &'a DFSchema) -> Self {
        Self {
            schema,
            working_type: DataType::Float64,
            nodes: vec![],
            interned: HashMap::new(),
            columns: HashMap::new(),
            primal: 0,
        }
    }

    /// Returns the float type of derivatives.
    pub fn working_type(&self) -> &DataType {
        &self.working_type
    }

    /// Sets the float type of derivatives.
    pub fn set_working_type(&mut self, working_type: DataType) {
        self.working_type = working_type;
    }

    /// Marks all nodes so far as the primal.
    pub fn end_primal(&mut self) {
        self.primal = self.nodes.len();
    }

    /// Iterates over the nodes of the primal.
    pub fn primal(&self) -> impl Iterator<Item = NodeId> + use<> {
        (0..self.primal).map(NodeId)
    }

    /// Returns whether a node is of the primal.
    pub fn is_primal(&self, id: NodeId) -> bool {
        id.0 < self.primal
    }

    /// Returns a node.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0]
    }

    /// Returns the type of a node.
    pub fn data_type(&self, id: NodeId) -> &DataType {
        self.node(id).field.data_type()
    }

    /// Returns the nodes that `root` is made of, children first, `root` last.
    pub fn reachable(&self, root: NodeId) -> Vec<NodeId> {
        self.reachable_from(&[root])
    }

    /// Returns the nodes that the roots are made of, children first.
    pub fn reachable_from(&self, roots: &[NodeId]) -> Vec<NodeId> {
        let count = roots.iter().map(|root| root.0 + 1).max().unwrap_or(0);
        let mut reached = vec![false; count];
        let mut open = roots.to_vec();
        let mut found = vec![];
        while let Some(id) = open.pop() {
            if !std::mem::replace(&mut reached[id.0], true) {
                found.push(id);
                open.extend(&self.node(id).children);
            }
        }
        found.sort_unstable();
        found
    }

    /// Returns whether a node that is kept whole, such as a subquery, reads one of the columns.
    pub fn reads_inside(&self, id: NodeId, columns: &[NodeId]) -> bool {
        let shape = &self.node(id).shape;
        is_opaque(shape) && {
            let read = columns_read(shape);
            columns.iter().any(|column| match &self.node(*column).shape {
                Expr::Column(column) | Expr::OuterReferenceColumn(_, column) => read.contains(column),
                _ => false,
            })
        }
    }

    /// Binds a column of the schema to a node.
    pub fn bind(&mut self, column: usize, id: NodeId) {
        self.columns.insert(column, id);
    }

    /// Returns the node of this shape over these children, and creates it if there is none.
    ///
    /// A volatile call is a new node each time: two samples of `random()` are two values.
    pub fn intern(&mut self, shape: Expr, children: Vec<NodeId>) -> Result<NodeId> {
        let key = (shape, children);
        if let Some(id) = self.interned.get(&key) {
            return Ok(*id);
        }
        let field = self.field_of(&key.0, &key.1)?;
        Ok(self.push(key, field))
    }

    /// Adds an expression that is kept whole, whatever it reads.
    pub fn leaf(&mut self, expr: Expr, field: FieldRef) -> NodeId {
        let key = (expr, vec![]);
        match self.interned.get(&key) {
            Some(id) => *id,
            None => self.push(key, field),
        }
    }

    fn push(&mut self, key: (Expr, Vec<NodeId>), field: FieldRef) -> NodeId {
        let id = NodeId(self.nodes.len());
        let (shape, children) = &key;
        let known = table::find_entry(shape, children.len());
        let volatile = is_volatile(shape);
        self.nodes.push(Node { shape: shape.clone(), children: children.clone(), field, known, volatile });
        if !volatile {
            self.interned.insert(key, id);
        }
        id
    }

    /// Finds the node of this shape over these children.
    pub fn find(&self, shape: Expr, children: Vec<NodeId>) -> Option<NodeId> {
        self.interned.get(&(shape, children)).copied()
    }

    fn field_of(&self, shape: &Expr, children: &[NodeId]) -> Result<FieldRef> {
        if children.is_empty() {
            return Ok(shape.to_field(self.schema)?.1);
        }
        let operands = Operands(children.iter().map(|id| self.node(*id).field.clone()).collect());
        if !matches!(shape, Expr::ScalarFunction(_)) {
            return Ok(shape.to_field(&operands)?.1);
        }
        // Some functions take their type from a constant argument: get_field(s, 'name').
        let mut ids = children.iter();
        let with_literals = shape.clone().map_children(|placeholder| {
            let literal = ids.next().map(|id| &self.node(*id).shape).filter(|shape| matches!(shape, Expr::Literal(..)));
            Ok(Transformed::yes(literal.cloned().unwrap_or(placeholder)))
        })?;
        Ok(with_literals.data.to_field(&operands)?.1)
    }

    /// Returns the placeholders for `count` children.
    pub fn operands(count: usize) -> Vec<Expr> {
        (0..count).map(operand).collect()
    }

    /// Interns an expression whose children are nodes.
    pub fn intern_with_children(&mut self, expr: Expr, children: Vec<NodeId>) -> Result<NodeId> {
        let mut next = 0;
        let shape = expr.map_children(|_| {
            next += 1;
            Ok(Transformed::yes(operand(next - 1)))
        })?;
        self.intern(shape.data, children)
    }
}

/// Returns the placeholder for a child.
pub fn operand(index: usize) -> Expr {
    Expr::Column(Column::new_unqualified(index.to_string()))
}

/// The fields of a node's children, as the schema its shape is typed against.
#[derive(Debug)]
struct Operands(Vec<FieldRef>);

impl ExprSchema for Operands {
    fn field_from_column(&self, column: &Column) -> Result<&FieldRef> {
        let index: Option<usize> = column.name.parse().ok();
        index
            .and_then(|index| self.0.get(index))
            .ok_or_else(|| internal_datafusion_err!("{column} is no operand of its expression"))
    }
}
