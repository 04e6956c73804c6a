//! How the lines of the rule table are written.

/// A line of the rule table.
#[derive(Debug)]
pub struct Line {
    /// The call, in SQL over the names of its inputs: `atan2(y, x)`, `x / y`.
    pub signature: &'static str,
    /// The partial derivative by each input, in SQL over the inputs and the output `Ω`.
    pub partials: &'static [&'static str],
    pub treatment: Treatment,
    /// Where the partial derivatives hold, kinks aside: a condition in SQL over the inputs.
    pub domain: &'static str,
    pub kinks: &'static [Kink],
}

/// What is done when an expression of this kind varies with a variable.
#[derive(Debug)]
pub enum Treatment {
    /// The partial derivatives are put in. The result is NULL exactly where an input is.
    Rule,
    /// The `CASE` that the function stands for is differentiated in its place.
    Selection(&'static str),
    /// There is nothing to look up: the planner has replaced the call by simpler expressions, the pullback treats the
    /// expression itself, or the result cannot vary because it is no float.
    Structure,
    /// An error with this reason.
    Refusal(&'static str),
}

/// A point at which a function has no derivative, or one from one side only, and what is taken for it.
#[derive(Debug)]
pub struct Kink {
    /// `input = expression`, with any condition after an `AND`. `k` is any whole number.
    pub at: &'static str,
    /// The partial derivatives there. `Infinity` is the float.
    pub partials: &'static [&'static str],
    pub why: &'static str,
}

const EVERYWHERE: &str = "TRUE";

const fn line(signature: &'static str, partials: &'static [&'static str], treatment: Treatment) -> Line {
    Line { signature, partials, treatment, domain: EVERYWHERE, kinks: &[] }
}

/// A function that is NULL exactly where one of its inputs is.
pub const fn rule(signature: &'static str, partials: &'static [&'static str]) -> Line {
    line(signature, partials, Treatment::Rule)
}

/// A function that returns one of its inputs, or NULL.
pub const fn selection(signature: &'static str, case: &'static str, partials: &'static [&'static str]) -> Line {
    line(signature, partials, Treatment::Selection(case))
}

/// An expression whose derivative follows from how it is built.
pub const fn structure(signature: &'static str, partials: &'static [&'static str]) -> Line {
    line(signature, partials, Treatment::Structure)
}

/// A function that is not differentiated. The reason ends a sentence that begins with its name.
pub const fn refusal(signature: &'static str, reason: &'static str) -> Line {
    line(signature, &[], Treatment::Refusal(reason))
}

pub const fn kink(at: &'static str, partials: &'static [&'static str], why: &'static str) -> Kink {
    Kink { at, partials, why }
}

impl Line {
    pub const fn domain(self, domain: &'static str) -> Self {
        Self { domain, ..self }
    }

    pub const fn kinks(self, kinks: &'static [Kink]) -> Self {
        Self { kinks, ..self }
    }
}
