//! Stand-ins in the provider for what only the consumer has.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion_common::{Result, internal_err, plan_err};
use datafusion_expr::{ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility};

/// A function of the consumer, or an expression of it that the provider is not shown.
///
/// It has the name and the type of what it stands for and cannot be evaluated. It is valid within the `simplify` it was
/// given to; one made by [`from_name`](Self::from_name) is valid in all.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ForeignFunction {
    name: String,
    aliases: Vec<String>,
    role: Role,
    signature: Signature,
    return_field: Option<FieldRef>,
}

/// The role of a stand-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// A function, by its index in the request.
    Function(u32),
    /// An expression, by its entry.
    Opaque(u32),
    /// An extra function of the request, by its name.
    Named,
}

impl ForeignFunction {
    /// Creates a stand-in of this name. With a field it returns that, whatever its arguments are.
    pub(crate) fn new(name: String, role: Role, volatility: Volatility, return_field: Option<FieldRef>) -> Self {
        Self { name, aliases: vec![], role, signature: Signature::user_defined(volatility), return_field }
    }

    /// Creates a stand-in for the function that the consumer has under this name, for calls in answers.
    ///
    /// It takes any number of floats, all of one type, and returns that type, Float64 without arguments: the consumer coerces them to the
    /// types of its function.
    pub fn from_name(name: impl Into<String>) -> Self {
        Self::new(name.into(), Role::Named, Volatility::Immutable, None)
    }

    /// Adds other names.
    pub(crate) fn with_aliases(self, aliases: Vec<String>) -> Self {
        Self { aliases, ..self }
    }

    /// Returns the role.
    pub(crate) fn role(&self) -> Role {
        self.role
    }

    /// Returns whether this stands for an expression rather than for a function: then the name is that expression as printed, the arguments
    /// are the columns it reads, and a call with other arguments is an error.
    pub fn is_opaque(&self) -> bool {
        matches!(self.role, Role::Opaque(_))
    }

    /// Returns the index in the request: of a function among its functions, of an opaque expression in its table. A function that is known
    /// by name has none before it is called.
    pub fn index(&self) -> Option<u32> {
        match self.role {
            Role::Function(index) | Role::Opaque(index) => Some(index),
            Role::Named => None,
        }
    }
}

impl ScalarUDFImpl for ForeignFunction {
    fn name(&self) -> &str {
        &self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        if self.is_opaque() {
            return Ok(self.name.clone());
        }
        let args: Vec<_> = args.iter().map(|arg| arg.schema_name().to_string()).collect();
        Ok(format!("{}({})", self.name, args.join(",")))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _arg_types: &[DataType]) -> Result<DataType> {
        internal_err!("return_field_from_args is implemented instead")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs) -> Result<FieldRef> {
        match (&self.return_field, self.role) {
            (Some(field), _) => Ok(field.clone()),
            (None, Role::Named) => {
                let data_type = args.arg_fields.first().map_or(DataType::Float64, |field| field.data_type().clone());
                Ok(Arc::new(Field::new(&self.name, data_type, true)))
            }
            (None, _) => plan_err!("The type of '{}' is not known", self.name),
        }
    }

    fn invoke_with_args(&self, _args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("'{}' belongs to another library and cannot be evaluated in this one", self.name)
    }
}
