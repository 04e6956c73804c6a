//! Options of a session, under the prefix `xql`.

use datafusion_common::config::{ConfigExtension, ConfigOptions};
use datafusion_common::extensions_options;

extensions_options! {
    /// What a session can say about derivatives: `SET xql.share_relations = false`.
    pub struct DerivativeOptions {
        /// Whether a relation that a gradient by row reads several times is computed once, by a node that only this process has.
        /// If not, the plan has nodes of DataFusion alone, and computes the relation as often as it is read.
        pub share_relations: bool, default = true
    }
}

impl ConfigExtension for DerivativeOptions {
    const PREFIX: &'static str = "xql";
}

/// Whether relations are computed once, as they are in a session without the options.
pub fn shares_relations(config: &ConfigOptions) -> bool {
    config.extensions.get::<DerivativeOptions>().is_none_or(|options| options.share_relations)
}
