//! Options of a session, under the prefix `xql`.

use datafusion_common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion_common::{DataFusionError, Result};
use std::any::Any;
use std::num::NonZeroUsize;
use std::str::FromStr;
use xql_contraction::Contractions;

use crate::fixed_points::FixedPoints;

/// The options of a session for derivatives: `SET xql.share_relations = false`.
#[derive(Debug, Clone, PartialEq)]
pub struct DerivativeOptions {
    /// Whether a relation that a gradient by row reads several times is computed once, by a node that only this process has.
    /// If not, the plan has nodes of DataFusion alone, and computes the relation as often as it is read.
    pub share_relations: bool,
    /// Whether a CTE or view that several places read is computed once in statements without a derivative, too. In those with one it is.
    pub share_ctes: bool,
    /// How many iterations of a recursive query are kept for a gradient by row that goes back through them. Those between are
    /// computed again. 0 keeps all, with all that they have computed.
    pub checkpoints: usize,
    /// Which recursive queries converge, and have the derivative of their limit: a tolerance for all, or by name. None is 0.
    pub fixed_point: FixedPoints,
    /// How sums of products over joins, of which gradients by row are made, and sums over frames are computed: `true` by arrays where that takes least,
    /// `false` by DataFusion's joins and groups, `everywhere` as `true` in statements without derivatives too. The others are for tests: `dense` and `sparse` always by arrays or by sorted runs,
    /// and `fallback` forces the fallback plan.
    pub contractions: Contractions,
}

impl Default for DerivativeOptions {
    fn default() -> Self {
        let (fixed_point, contractions) = (FixedPoints::default(), Contractions::default());
        Self { share_relations: true, share_ctes: false, checkpoints: 0, fixed_point, contractions }
    }
}

impl ConfigExtension for DerivativeOptions {
    const PREFIX: &'static str = "xql";
}

impl ExtensionOptions for DerivativeOptions {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "share_relations" => self.share_relations = parsed(key, value, "true or false")?,
            "share_ctes" => self.share_ctes = parsed(key, value, "true or false")?,
            "checkpoints" => self.checkpoints = parsed(key, value, "a number of iterations, or 0 for all")?,
            "fixed_point" => {
                self.fixed_point = value.parse().map_err(|()| {
                    let is = "a tolerance between 0 and 1, tolerances by the names of recursive queries as in 'r: 1e-9, s: 1e-6', or 0";
                    DataFusionError::Configuration(format!("xql.fixed_point is {is}, not {value}"))
                })?;
            }
            "contractions" => {
                let says = |says| DataFusionError::Configuration(format!("xql.contractions is {says}"));
                self.contractions = value.parse().map_err(says)?;
            }
            _ => {
                let known =
                    "xql.share_relations, xql.share_ctes, xql.checkpoints, xql.fixed_point and xql.contractions";
                return Err(DataFusionError::Configuration(format!("there is no option xql.{key}, but {known}")));
            }
        }
        Ok(())
    }

    /// Returns no entries. DataFusion passes the entries of a session on to other libraries and processes, which refuse
    /// options that they do not know.
    fn entries(&self) -> Vec<ConfigEntry> {
        vec![]
    }
}

fn parsed<T: FromStr>(key: &str, value: &str, is: &str) -> Result<T> {
    value.parse().map_err(|_| DataFusionError::Configuration(format!("xql.{key} is {is}, not {value}")))
}

/// Returns whether relations are computed once, as they are in a session without the options.
pub fn shares_relations(config: &ConfigOptions) -> bool {
    config.extensions.get::<DerivativeOptions>().is_none_or(|options| options.share_relations)
}

/// Returns whether CTEs and views are computed once in statements without a derivative.
pub fn shares_ctes(config: &ConfigOptions) -> bool {
    config.extensions.get::<DerivativeOptions>().is_some_and(|options| options.share_relations && options.share_ctes)
}

/// Returns how many iterations of a recursive query are kept to go back through it, all if it is none.
pub fn checkpoints(config: &ConfigOptions) -> Option<NonZeroUsize> {
    NonZeroUsize::new(config.extensions.get::<DerivativeOptions>()?.checkpoints)
}

/// Returns which recursive queries have the derivative of their limit.
pub fn fixed_points(config: &ConfigOptions) -> FixedPoints {
    config.extensions.get::<DerivativeOptions>().map(|options| options.fixed_point.clone()).unwrap_or_default()
}

/// Returns how sums of products are computed, by DataFusion alone in a session without the options.
pub fn contractions(config: &ConfigOptions) -> Contractions {
    match config.extensions.get::<DerivativeOptions>() {
        Some(options) if options.share_relations => options.contractions,
        _ => Contractions::Off,
    }
}
