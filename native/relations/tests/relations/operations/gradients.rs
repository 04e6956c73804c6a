//! Gradients with many parameters share their work; derivatives of formulas are as good as those written by hand.

use datafusion::error::Result;

use super::count::{operations, products, values, with_columns};
use super::formulas::FORMULAS;

#[tokio::test]
async fn a_derivative_takes_no_more_operations_than_one_written_by_hand() -> Result<()> {
    let (mut worse, mut with_primal) = (vec![], (0, 0));
    for formula in FORMULAS {
        let ctx = with_columns(formula.columns, false).await?;
        let ours = format!("grad({}, {})", formula.primal, formula.variable);
        let (found, expected) = (values(&ctx, &ours).await?, values(&ctx, formula.by_hand).await?);
        for (ours, hand) in found.iter().zip(&expected) {
            assert!((ours - hand).abs() <= 1e-11 * hand.abs(), "{}: {ours} but by hand {hand}", formula.name);
        }
        let alone = (products(&ctx, &ours).await?, products(&ctx, formula.by_hand).await?);
        let beside = |derivative: &str| format!("{} AS f, {derivative} AS d", formula.primal);
        let both = (products(&ctx, &beside(&ours)).await?, products(&ctx, &beside(formula.by_hand)).await?);
        println!("{:42} {alone:?}, with the primal {both:?}", formula.name);
        with_primal = (with_primal.0 + both.0, with_primal.1 + both.1);
        // A power of the formula in place of another one takes a few operations, one of them at 0 and at infinity only, and
        // beside the formula saves the other one.
        let at_most = if formula.saves_a_power { (alone.1 + 4, both.1 - 10) } else { (alone.1, both.1 + 1) };
        if alone.0 > at_most.0 || both.0 > at_most.1 {
            let plan = ctx.sql(&format!("SELECT {ours} AS d FROM t")).await?.into_optimized_plan()?;
            worse.push(format!("{}: {alone:?}, with the primal {both:?}\n{plan}", formula.name));
        }
    }
    println!("all with their primals {with_primal:?}");
    assert!(worse.is_empty(), "operations (ours, by hand):\n{}", worse.join("\n"));
    assert!(with_primal.0 < with_primal.1, "all, each with its primal (ours, by hand): {with_primal:?}");
    Ok(())
}

/// The operations of the primal, and of it together with its derivative by each parameter.
async fn cost(primal: &str, parameters: &[String], constants: &[String], nullable: bool) -> Result<(usize, usize)> {
    let columns: Vec<_> = parameters.iter().chain(constants).map(|name| (name.as_str(), 0.5, 1.5)).collect();
    let ctx = with_columns(&columns, nullable).await?;
    let gradients: Vec<_> = parameters.iter().map(|name| format!("grad({primal}, {name}) AS d_{name}")).collect();
    let all = format!("{primal} AS f, {}", gradients.join(", "));
    Ok((operations(&ctx, primal).await?, operations(&ctx, &all).await?))
}

pub fn names(prefix: &str, count: usize) -> Vec<String> {
    (1..=count).map(|i| format!("{prefix}{i}")).collect()
}

pub fn sum(terms: impl Iterator<Item = String>) -> String {
    terms.collect::<Vec<_>>().join(" + ")
}

#[track_caller]
pub fn assert_cheap(what: &str, (primal, all): (usize, usize)) {
    println!("{what}: primal {primal}, with all gradients {all}, ratio {:.2}", all as f64 / primal as f64);
    assert!(all <= 4 * primal, "{what}: {all} operations for a primal of {primal}");
}

#[tokio::test]
async fn logistic_loss() -> Result<()> {
    for nullable in [false, true] {
        let (weights, features) = (names("w", 32), names("x", 32));
        let margin = sum(weights.iter().zip(&features).map(|(w, x)| format!("{w} * {x}")));
        let constants = [features, vec!["y".to_owned()]].concat();
        let loss = format!("ln(1 + exp(-y * ({margin})))");
        assert_cheap("logistic loss", cost(&loss, &weights, &constants, nullable).await?);
    }
    Ok(())
}

/// Squared error of a perceptron with one hidden layer of 4 units over 4 inputs.
async fn perceptron(unit: impl Fn(&str) -> String, nullable: bool) -> Result<(usize, usize)> {
    let inputs = names("x", 4);
    let mut parameters = vec!["c".to_owned()];
    let mut terms = vec!["c".to_owned()];
    for i in 1..=4 {
        let weights: Vec<_> = names(&format!("w{i}_"), 4);
        let sum = sum(weights.iter().zip(&inputs).map(|(w, x)| format!("{w} * {x}")));
        terms.push(format!("v{i} * {}", unit(&format!("({sum} + b{i})"))));
        parameters.extend(weights);
        parameters.extend([format!("b{i}"), format!("v{i}")]);
    }
    let loss = format!("power({} - y, 2)", terms.join(" + "));
    cost(&loss, &parameters, &[inputs, vec!["y".to_owned()]].concat(), nullable).await
}

#[tokio::test]
async fn two_layer_perceptron() -> Result<()> {
    for nullable in [false, true] {
        assert_cheap("perceptron, tanh", perceptron(|z| format!("tanh{z}"), nullable).await?);
        assert_cheap("perceptron, sigmoid", perceptron(|z| format!("(1 / (1 + exp(-{z})))"), nullable).await?);
    }
    Ok(())
}

#[tokio::test]
async fn rectified_perceptron() -> Result<()> {
    let relu = |z: &str| format!("CASE WHEN {z} > 0 THEN {z} ELSE 0 END");
    assert_cheap("perceptron, relu", perceptron(relu, false).await?);
    assert_cheap("perceptron, greatest", perceptron(|z| format!("greatest({z}, 0)"), false).await?);
    Ok(())
}

/// Squared error of a network with `depth` hidden layers of 3 units over 3 inputs.
async fn network(depth: usize, unit: impl Fn(&str) -> String) -> Result<(usize, usize)> {
    let inputs = names("x", 3);
    let (mut layer, mut parameters) = (inputs.clone(), vec![]);
    for level in 1..=depth {
        let mut units = vec![];
        for i in 1..=3 {
            let weights = names(&format!("w{level}{i}_"), 3);
            let sum = sum(weights.iter().zip(&layer).map(|(w, below)| format!("{w} * {below}")));
            units.push(unit(&format!("({sum} + b{level}{i})")));
            parameters.extend(weights);
            parameters.push(format!("b{level}{i}"));
        }
        layer = units;
    }
    let outputs = names("v", 3);
    let prediction = sum(outputs.iter().zip(&layer).map(|(v, unit)| format!("{v} * {unit}")));
    parameters.extend(outputs);
    cost(&format!("power({prediction} - y, 2)"), &parameters, &[inputs, vec!["y".to_owned()]].concat(), false).await
}

#[tokio::test]
async fn deep_rectified_network() -> Result<()> {
    let relu = |z: &str| format!("CASE WHEN {z} > 0 THEN {z} ELSE 0 END");
    assert_cheap("2 layers, relu", network(2, relu).await?);
    let leaky = |z: &str| format!("CASE WHEN {z} > 0 THEN {z} ELSE 0.01 * {z} END");
    assert_cheap("2 layers, leaky relu", network(2, leaky).await?);
    assert_cheap("3 layers, greatest", network(3, |z| format!("greatest({z}, 0)")).await?);
    Ok(())
}

#[tokio::test]
async fn product() -> Result<()> {
    for count in [4, 16, 32] {
        let factors = names("x", count);
        assert_cheap("product", cost(&factors.join(" * "), &factors, &[], false).await?);
        // The derivative by a factor has to look whether that one is NULL.
        let (primal, all) = cost(&factors.join(" * "), &factors, &[], true).await?;
        println!("product of nullable columns: {all} operations for a primal of {primal}");
        assert!(all <= 7 * (primal + 1), "{all} operations for a primal of {primal}");
    }
    Ok(())
}
