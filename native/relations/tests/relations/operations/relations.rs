//! Gradients of losses that are written through CTEs.

use datafusion::error::Result;
use datafusion::prelude::SessionContext;

use super::count::{operations_of, with_columns};
use super::gradients::{assert_cheap, names, sum};

/// The operations of a query of the loss `f`, and of the query with its derivative by each parameter beside it.
async fn cost(
    ctx: &SessionContext,
    parameters: &[String],
    query: impl Fn(&str) -> String,
    derivative: impl Fn(&str) -> String,
) -> Result<(usize, usize)> {
    let derivatives: Vec<_> = parameters.iter().map(|name| format!("{} AS d_{name}", derivative(name))).collect();
    let primal = operations_of(ctx, &query("")).await?;
    Ok((primal, operations_of(ctx, &query(&format!(", {}", derivatives.join(", ")))).await?))
}

/// A table of parameters and inputs.
async fn table(parameters: &[String], inputs: &[String], nullable: bool) -> Result<SessionContext> {
    let columns: Vec<_> = parameters.iter().chain(inputs).map(|name| (name.as_str(), 0.1, 0.9)).collect();
    with_columns(&columns, nullable).await
}

#[tokio::test]
async fn logistic_regression() -> Result<()> {
    for nullable in [false, true] {
        let (weights, features) = (names("w", 32), names("x", 32));
        let ctx = table(&weights, &[features.clone(), vec!["y".to_owned()]].concat(), nullable).await?;
        let margin = sum(weights.iter().zip(&features).map(|(w, x)| format!("{w} * {x}")));
        let loss = "-(y * ln(p) + (1 - y) * ln(1 - p))";
        let keys = weights.join(", ");
        let ctes = format!(
            "WITH a AS (SELECT *, {margin} AS z FROM t), b AS (SELECT {keys}, y, 1 / (1 + exp(-z)) AS p FROM a)"
        );
        let of_rows = cost(
            &ctx,
            &weights,
            |more| format!("{ctes} SELECT AVG({loss}) AS f{more} FROM b"),
            |name| format!("AVG(grad({loss}, {name}))"),
        );
        assert_cheap("logistic regression, average of derivatives", of_rows.await?);
        let of_the_average = cost(
            &ctx,
            &weights,
            |more| format!("{ctes} SELECT AVG({loss}) AS f{more} FROM b GROUP BY {keys}"),
            |name| format!("grad(AVG({loss}), {name})"),
        );
        assert_cheap("logistic regression, derivative of the average", of_the_average.await?);
    }
    Ok(())
}

/// One hidden layer of 4 units over 4 inputs, each layer a CTE.
#[tokio::test]
async fn perceptron() -> Result<()> {
    for nullable in [false, true] {
        let inputs = names("x", 4);
        let mut parameters = vec!["c".to_owned()];
        let mut units = vec![];
        for i in 1..=4 {
            let weights = names(&format!("w{i}_"), 4);
            let sum = sum(weights.iter().zip(&inputs).map(|(w, x)| format!("{w} * {x}")));
            units.push(format!("tanh({sum} + b{i}) AS h{i}"));
            parameters.extend(weights);
            parameters.extend([format!("b{i}"), format!("v{i}")]);
        }
        let ctx = table(&parameters, &[inputs, vec!["y".to_owned()]].concat(), nullable).await?;
        let output = sum((1..=4).map(|i| format!("v{i} * h{i}")));
        let ctes = format!(
            "WITH hidden AS (SELECT *, {} FROM t), model AS (SELECT *, {output} + c AS pred FROM hidden)",
            units.join(", ")
        );
        let found = cost(
            &ctx,
            &parameters,
            |more| format!("{ctes} SELECT AVG(power(pred - y, 2)) AS f{more} FROM model"),
            |name| format!("AVG(grad(power(pred - y, 2), {name}))"),
        );
        assert_cheap("perceptron through CTEs", found.await?);
    }
    Ok(())
}
