//! Options of a session, under the prefix `xql`.

use datafusion_common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion_common::{DataFusionError, Result};
use std::any::Any;
use xql_contraction::Contractions;

/// What a session can say about derivatives: `SET xql.share_relations = false`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DerivativeOptions {
    /// Whether a relation that a gradient by row reads several times is computed once, by a node that only this process has.
    /// If not, the plan has nodes of DataFusion alone, and computes the relation as often as it is read.
    pub share_relations: bool,
    /// How sums of products over joins, of which gradients by row are made, are computed: `true` by arrays where that takes least,
    /// `false` by DataFusion's joins and groups. The others are for tests: `dense` and `sparse` always by arrays or by sorted runs,
    /// and `handed_over` as if there were no memory for either.
    pub contractions: Contractions,
}

impl Default for DerivativeOptions {
    fn default() -> Self {
        Self { share_relations: true, contractions: Contractions::default() }
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
        let unknown = |what: String| Err(DataFusionError::Configuration(what));
        match key {
            "share_relations" => match value.parse() {
                Ok(value) => self.share_relations = value,
                Err(_) => return unknown(format!("xql.share_relations is true or false, not {value}")),
            },
            "contractions" => match value.parse() {
                Ok(value) => self.contractions = value,
                Err(says) => return unknown(format!("xql.contractions is {says}")),
            },
            _ => {
                return unknown(format!("there is no option xql.{key}, but xql.share_relations and xql.contractions"));
            }
        }
        Ok(())
    }

    /// None: other libraries and processes, to which the options of a session are handed on by these, refuse what they do not know.
    fn entries(&self) -> Vec<ConfigEntry> {
        vec![]
    }
}

/// Whether relations are computed once, as they are in a session without the options.
pub fn shares_relations(config: &ConfigOptions) -> bool {
    config.extensions.get::<DerivativeOptions>().is_none_or(|options| options.share_relations)
}

/// How sums of products are computed, by DataFusion alone in a session without the options.
pub fn contractions(config: &ConfigOptions) -> Contractions {
    match config.extensions.get::<DerivativeOptions>() {
        Some(options) if options.share_relations => options.contractions,
        _ => Contractions::Off,
    }
}
