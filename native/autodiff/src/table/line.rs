//! How the lines of the table are written.

/// What the page of all rules says of an expression.
#[derive(Debug)]
pub struct Description {
    /// The expression, in SQL over the names of its inputs: `atan2(y, x)`, `x / y`; `x1, ..., xn` for any number of them.
    pub signature: &'static str,
    /// Whether there is any number of inputs.
    pub variadic: bool,
    /// The partial derivative by each input, in SQL over the inputs and the output `Ω`.
    pub partials: &'static [&'static str],
    /// Where the partial derivatives hold, kinks aside: a condition in SQL over the inputs.
    pub domain: &'static str,
    /// The points in which they do not.
    pub kinks: &'static [Kink],
    /// The function, and what the planner has made of it by the time a derivative is taken, if nothing of it is left then.
    pub replaced: Option<(&'static str, &'static str)>,
}

/// A line of the table: a function or operator that the calculus looks up.
#[derive(Debug)]
pub struct Line {
    /// The expression with its partial derivatives, as it is shown.
    pub shown: Description,
    /// How the derivative is computed.
    pub treatment: Treatment,
    /// Where the function is NULL.
    pub nulls: Nulls,
    /// The least sign of all inputs, themselves finite, for which the function is finite, overflow aside.
    pub finite: Option<Sign>,
    /// The least sign of all inputs for which its derivatives are finite as well.
    pub smooth: Option<Sign>,
    /// The sign of its values.
    pub range: Range,
    /// What the algebra of products makes of it.
    pub algebraic: Option<Algebraic>,
    /// What it counts for where forms of an expression are compared; a product counts 1.
    pub cost: usize,
    /// Its value at a number. A formula that calls it with one has the value, which merges with the numbers around it.
    pub at_number: Option<fn(f64) -> f64>,
}

/// How the derivative of a function is computed.
#[derive(Debug)]
pub enum Treatment {
    /// The partial derivatives are put in.
    Partials,
    /// The `CASE` that the function stands for is differentiated in its place.
    Choice(Choice),
    /// The partial derivatives of the function of this name are 0, of any number of inputs.
    Constant(&'static str),
}

/// The `CASE` that a function stands for, which returns one of its inputs, or NULL.
#[derive(Debug)]
pub enum Choice {
    /// In SQL over the inputs and the output `Ω`.
    Case(&'static str),
    /// For any number of inputs of the function of this name, in SQL over the names given and the output `Ω`.
    Variadic(&'static str, fn(&[String]) -> String),
}

/// Where a function is NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nulls {
    /// Exactly where one of its inputs is: the function is strict.
    AnyInput,
    /// Exactly where all of its inputs are.
    AllInputs,
    /// Where it says so itself.
    Own,
}

/// What is known of the sign of a number without looking at the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// Nothing.
    Any,
    /// It is at least 0.
    NotNegative,
    /// It is greater than 0.
    Positive,
}

/// What is known of the sign of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Range {
    /// This, whatever the inputs are.
    Of(Sign),
    /// What all inputs have in common.
    OfInputs,
}

/// A function that is part of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algebraic {
    /// The power of its input by one half.
    SquareRoot,
    /// The power of its first input by its second.
    Power,
}

/// A function or expression that is not differentiated.
#[derive(Debug)]
pub struct Refusal {
    /// A call that would be refused, in SQL.
    pub signature: &'static str,
    /// Why, as the end of a sentence that begins with its name.
    pub reason: &'static str,
}

/// A point at which a function has no derivative, or one from one side only, and what is taken for it.
#[derive(Debug)]
pub struct Kink {
    /// `input = expression`, with any condition after an `AND`. `k` is any whole number.
    pub at: &'static str,
    /// The partial derivatives there. `Infinity` is the float.
    pub partials: &'static [&'static str],
    /// Why these.
    pub why: &'static str,
}

const EVERYWHERE: &str = "TRUE";

const fn line(shown: Description, treatment: Treatment, nulls: Nulls) -> Line {
    Line {
        shown,
        treatment,
        nulls,
        finite: None,
        smooth: None,
        range: Range::Of(Sign::Any),
        algebraic: None,
        cost: 1,
        at_number: None,
    }
}

/// Creates the line of a function that is NULL exactly where one of its inputs is.
pub const fn rule(signature: &'static str, partials: &'static [&'static str]) -> Line {
    line(described(signature, partials), Treatment::Partials, Nulls::AnyInput)
}

/// Creates the line of a function that returns one of its inputs, or NULL.
pub const fn choice(signature: &'static str, case: &'static str, partials: &'static [&'static str]) -> Line {
    line(described(signature, partials), Treatment::Choice(Choice::Case(case)), Nulls::Own)
}

/// Creates the line of a function of any number of inputs that returns one of them.
pub const fn variadic_choice(name: &'static str, shown: Description, case: fn(&[String]) -> String) -> Line {
    line(shown, Treatment::Choice(Choice::Variadic(name, case)), Nulls::Own)
}

/// Creates the line of a function of any number of inputs that does not vary with them, and is NULL exactly where one of them is.
pub const fn constant(name: &'static str, shown: Description) -> Line {
    line(shown, Treatment::Constant(name), Nulls::AnyInput)
}

/// Describes an expression whose derivative follows from its structure. It is shown, and never looked up: the planner has replaced it by
/// simpler expressions, the sweep treats it itself, or it cannot vary because it is no float.
pub const fn described(signature: &'static str, partials: &'static [&'static str]) -> Description {
    Description { signature, variadic: false, partials, domain: EVERYWHERE, kinks: &[], replaced: None }
}

/// Describes a function that is not differentiated, with the reason.
pub const fn refusal(signature: &'static str, reason: &'static str) -> Refusal {
    Refusal { signature, reason }
}

/// Describes a kink with the partial derivatives that are used there, and the reason.
pub const fn kink(at: &'static str, partials: &'static [&'static str], why: &'static str) -> Kink {
    Kink { at, partials, why }
}

impl Description {
    /// Restricts the partial derivatives to a domain, a condition in SQL.
    pub const fn domain(self, domain: &'static str) -> Self {
        Self { domain, ..self }
    }

    /// Adds points in which the partial derivatives do not hold.
    pub const fn kinks(self, kinks: &'static [Kink]) -> Self {
        Self { kinks, ..self }
    }

    /// Allows any number of inputs, which the signature has as `x1, ..., xn`, with a partial derivative by each, `xi`.
    pub const fn variadic(self) -> Self {
        Self { variadic: true, ..self }
    }

    /// Marks a function that the planner replaces by another expression before a derivative is taken.
    pub const fn replaced(self, function: &'static str, by: &'static str) -> Self {
        Self { replaced: Some((function, by)), ..self }
    }
}

impl Line {
    /// Restricts the partial derivatives to a domain, a condition in SQL.
    pub const fn domain(self, domain: &'static str) -> Self {
        Self { shown: self.shown.domain(domain), ..self }
    }

    /// Adds points in which the partial derivatives do not hold.
    pub const fn kinks(self, kinks: &'static [Kink]) -> Self {
        Self { shown: self.shown.kinks(kinks), ..self }
    }

    /// Sets where the function is NULL.
    pub const fn nulls(self, nulls: Nulls) -> Self {
        Self { nulls, ..self }
    }

    /// Marks it as finite with its derivatives wherever all inputs are.
    pub const fn finite(self) -> Self {
        self.finite_if(Sign::Any).smooth_if(Sign::Any)
    }

    /// Marks it as finite wherever all inputs are and have this sign.
    pub const fn finite_if(self, inputs: Sign) -> Self {
        Self { finite: Some(inputs), ..self }
    }

    /// Marks its derivatives as finite wherever all inputs are and have this sign.
    pub const fn smooth_if(self, inputs: Sign) -> Self {
        Self { smooth: Some(inputs), ..self }
    }

    /// Sets the sign of its values.
    pub const fn range(self, range: Range) -> Self {
        Self { range, ..self }
    }

    /// Marks it as a part of products, which costs as much as this many of them.
    pub const fn algebraic(self, algebraic: Algebraic, cost: usize) -> Self {
        Self { algebraic: Some(algebraic), cost, ..self }
    }

    /// Sets its value at a constant.
    pub const fn at_number(self, value: fn(f64) -> f64) -> Self {
        Self { at_number: Some(value), ..self }
    }
}
