//! A session of datafusion-distributed that differentiates, with workers at ports of this machine.
//!
//! It reads commands of one line, whose parts have tabs between them, and answers each with a line, `ok` or `error` and why:
//!
//! ```text
//! table    NAME    FILE OR FOLDER OF PARQUET
//! query    FILE THAT GETS THE ROWS, OF ARROW IPC    STATEMENT
//! explain  FILE THAT GETS THE PLAN    STATEMENT
//! ```

use async_trait::async_trait;
use datafusion::arrow::ipc::writer::FileWriter;
use datafusion::common::{Result, plan_datafusion_err, plan_err};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use datafusion_distributed::{DistributedExt, SessionStateBuilderExt, WorkerResolver, display_plan_ascii};
use std::fs::File;
use std::io::{BufRead, Write};
use url::Url;

/// The workers at these addresses.
struct Workers(Vec<Url>);

#[async_trait]
impl WorkerResolver for Workers {
    fn get_urls(&self) -> Result<Vec<Url>> {
        Ok(self.0.clone())
    }
}

/// Does what a line says.
async fn run(ctx: &SessionContext, line: &str) -> Result<()> {
    let mut parts = line.splitn(3, '\t');
    match (parts.next(), parts.next(), parts.next()) {
        (Some("table"), Some(name), Some(path)) => {
            ctx.deregister_table(name)?;
            ctx.register_parquet(name, path, ParquetReadOptions::default()).await
        }
        (Some("query"), Some(path), Some(statement)) => {
            let frame = ctx.sql(statement).await?;
            let schema = frame.schema().inner().clone();
            let mut file = FileWriter::try_new(File::create(path)?, &schema)?;
            for batch in frame.collect().await? {
                file.write(&batch)?;
            }
            Ok(file.finish()?)
        }
        (Some("explain"), Some(path), Some(statement)) => {
            let plan = ctx.sql(statement).await?.create_physical_plan().await?;
            Ok(std::fs::write(path, display_plan_ascii(plan.as_ref(), false))?)
        }
        _ => plan_err!("there is no such command"),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let address = |port: String| Url::parse(&format!("http://127.0.0.1:{port}"));
    let workers: Result<Vec<_>, _> = std::env::args().skip(1).map(address).collect();
    let workers = workers.map_err(|error| plan_datafusion_err!("client PORT ...: {error}"))?;
    let state = SessionStateBuilder::new()
        .with_default_features()
        .with_distributed_worker_resolver(Workers(workers))
        .with_distributed_planner()
        .build();
    let ctx = SessionContext::from(state);
    xql_relations::register(&ctx);
    // The relations of a gradient by row are computed once by a node that other processes do not know.
    ctx.sql("SET xql.share_relations = false").await?.collect().await?;
    for line in std::io::stdin().lock().lines() {
        let answer = match run(&ctx, &line?).await {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("error {}", error.to_string().replace('\n', " ")),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
