//! Random rows and random sums over them.

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray,
    UInt64Array,
};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::Result;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::prelude::SessionContext;
use std::collections::BTreeMap;
use std::sync::Arc;
use xql_contraction::Contractions;

use super::draw::Draw;
use super::mutable_table::MutableTable;
use super::session::{WAYS, contract, count, metric, plan_sql, session, totals};

/// The distribution of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Values {
    Plain,
    WithNulls,
    Special,
    Huge,
}

#[derive(Debug, Clone, Copy)]
pub enum KeyType {
    Int,
    Wide,
    Small,
    Unsigned,
    Text,
    Date,
    Bool,
    Float,
}

const KEY_TYPES: [KeyType; 8] = [
    KeyType::Int,
    KeyType::Wide,
    KeyType::Small,
    KeyType::Unsigned,
    KeyType::Text,
    KeyType::Date,
    KeyType::Bool,
    KeyType::Float,
];

/// Creates a key column of up to `values` distinct values, `nulls` percent of them NULL.
pub fn key(draw: &mut Draw, of: KeyType, rows: usize, values: usize, nulls: usize) -> ArrayRef {
    let codes: Vec<_> = (0..rows).map(|_| (!draw.percent(nulls)).then(|| draw.below(values) as i64)).collect();
    let codes = codes.into_iter();
    match of {
        KeyType::Int => Arc::new(codes.collect::<Int64Array>()),
        KeyType::Wide => Arc::new(codes.map(|code| Some(code? * 1_000_003_000_000 - 7)).collect::<Int64Array>()),
        KeyType::Small => Arc::new(codes.map(|code| Some(code? as i32 - 3)).collect::<Int32Array>()),
        KeyType::Unsigned => Arc::new(codes.map(|code| Some(u64::MAX - code? as u64)).collect::<UInt64Array>()),
        KeyType::Text => Arc::new(codes.map(|code| Some(format!("key {}", code?))).collect::<StringArray>()),
        KeyType::Date => Arc::new(codes.map(|code| Some(19_000 + code? as i32)).collect::<Date32Array>()),
        KeyType::Bool => Arc::new(codes.map(|code| Some(code? % 2 == 0)).collect::<BooleanArray>()),
        KeyType::Float => Arc::new(codes.map(|code| Some(code? as f64 / 2.0 - 1.0)).collect::<Float64Array>()),
    }
}

fn value(draw: &mut Draw, values: Values) -> Option<f64> {
    if values != Values::Plain && draw.percent(20) {
        return None;
    }
    if values == Values::Special && draw.percent(15) {
        return Some(*draw.pick(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e90, -1e90, 1e-310]));
    }
    if values == Values::Huge && draw.percent(30) {
        return Some(*draw.pick(&[1e308, -1e308, 1e-308]));
    }
    Some(draw.unit() * 4.0 - 2.0)
}

pub fn values_column(draw: &mut Draw, values: Values, rows: usize) -> ArrayRef {
    Arc::new((0..rows).map(|_| value(draw, values)).collect::<Float64Array>())
}

/// Creates a table in several batches and partitions.
pub fn add_table(
    ctx: &SessionContext,
    draw: &mut Draw,
    name: &str,
    columns: Vec<(&str, ArrayRef)>,
) -> Result<Vec<MutableTable>> {
    let batch =
        RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, column)| (name, column, true)))?;
    let mut partitions = vec![vec![]; 1 + draw.below(3)];
    let mut first = 0;
    while first < batch.num_rows() {
        let length = (1 + draw.below(batch.num_rows())).min(batch.num_rows() - first);
        let of = draw.below(partitions.len());
        partitions[of].push(batch.slice(first, length));
        first += length;
    }
    MutableTable::register(ctx, name, &batch.schema(), partitions)
}

/// The numbers of rows and distinct values of a case.
struct Sizes {
    rows: [usize; 3],
    groups: [usize; 2],
    keys: usize,
    nulls: usize,
}

fn sizes(draw: &mut Draw) -> Sizes {
    let rows = |draw: &mut Draw| {
        let most = *draw.pick(&[5, 40, 300]);
        if draw.percent(5) { 0 } else { 1 + draw.below(most) }
    };
    Sizes {
        rows: [rows(draw), rows(draw), rows(draw)],
        groups: [1 + draw.below(12), 1 + draw.below(80)],
        keys: 1 + draw.below(12),
        nulls: *draw.pick(&[0, 0, 15]),
    }
}

/// A sum over tables, and the same sum of absolute values.
struct Case {
    tables: Vec<MutableTable>,
    /// The distribution of its values.
    values: Values,
    statements: [String; 2],
}

/// Draws further aggregates, each with its bound: the same of absolute values.
fn more(draw: &mut Draw, of: Values, products: [&str; 5]) -> Vec<[String; 2]> {
    let number = if draw.percent(50) { 0 } else { 1 + draw.below(3) };
    let one = |draw: &mut Draw| {
        let [a, b] = [*draw.pick(&products), *draw.pick(&products)];
        // A sum may overflow before it is multiplied by a sampling factor.
        let a = if of == Values::Huge { a.trim_end_matches(" * w.v") } else { a };
        let absolute = format!("abs({a})");
        // A product that overflows is infinite in a sum of products, but only large by itself.
        match draw.below(if of == Values::Huge { 3 } else { 5 }) {
            0 => [format!("COUNT({a})"), format!("COUNT({a})")],
            1 => [format!("AVG({a})"), format!("AVG({absolute})")],
            2 => [format!("SUM({a})"), format!("SUM({absolute})")],
            3 => [format!("SUM({a} + {b})"), format!("SUM({absolute} + abs({b}))")],
            _ => [format!("AVG({a} - {b})"), format!("AVG({absolute} + abs({b}))")],
        }
    };
    (0..number).map(|_| one(draw)).collect()
}

/// Returns the sum of a product with further aggregates, and the same of absolute values.
fn aggregates(product: &str, more: &[[String; 2]]) -> [Vec<String>; 2] {
    let sum = [format!("SUM({product})"), format!("SUM(abs({product}))")];
    [0, 1].map(|which| [&sum].into_iter().chain(more).map(|aggregate| aggregate[which].clone()).collect())
}

/// Draws a sum over two tables.
fn pairs(ctx: &SessionContext, draw: &mut Draw) -> Result<Case> {
    let mut tables = vec![];
    let Sizes { rows, groups, keys, nulls } = sizes(draw);
    let of = *draw.pick(&[Values::Plain, Values::Plain, Values::WithNulls, Values::Special, Values::Huge]);
    let types: Vec<_> = (0..4).map(|_| *draw.pick(&KEY_TYPES)).collect();
    for (side, name) in ["a", "b"].into_iter().enumerate() {
        let count = rows[side];
        let single = values_column(draw, of, count);
        let single: ArrayRef = Arc::new(
            single
                .as_any()
                .downcast_ref::<Float64Array>()
                .expect("floats")
                .iter()
                .map(|v| v.map(|v| v as f32))
                .collect::<Float32Array>(),
        );
        let columns = vec![
            ("k", key(draw, types[0], count, keys, nulls)),
            ("l", key(draw, types[1], count, 2, nulls)),
            ("g", key(draw, types[2], count, groups[side], nulls)),
            ("h", key(draw, types[3], count, 2, nulls)),
            ("v", values_column(draw, of, count)),
            ("u", values_column(draw, of, count)),
            ("r", single),
        ];
        tables.extend(add_table(ctx, draw, name, columns)?);
    }
    let product = (*draw.pick(&[
        "a.v * b.v",
        "a.v * b.v",
        "tanh(a.v) * b.v / 2",
        "-(a.v * b.v) * a.u",
        "CASE WHEN a.v > 0 AND b.u < 1 THEN a.u * b.v END",
        "CASE WHEN b.u IS NOT NULL THEN a.v END",
        "a.v",
        "b.v * b.u",
        "a.r * b.r",
        "a.r * b.v",
        "a.v * (b.v / b.u)",
        "2 * a.v * coalesce(b.v, 1) * 3",
        "coalesce(a.v, 0) * coalesce(b.v, 0.5)",
    ]))
    .to_owned();
    // Three factors are multiplied in another order, and an intermediate product may overflow or underflow in one of them.
    let is_extreme = of == Values::Huge || of == Values::Special && product.contains(") * a.u");
    let product = if is_extreme { "a.v * b.v".to_owned() } else { product };
    let filter = *draw.pick(&["", "", "", " FILTER (WHERE a.v > 0)", " FILTER (WHERE a.u < 1 AND b.v > -1)"]);
    let on = *draw.pick(&[
        "a.k = b.k",
        "a.k = b.k",
        "a.k = b.k AND a.l = b.l",
        "a.k IS NOT DISTINCT FROM b.k",
        "(a.k IS NOT DISTINCT FROM b.k) AND (a.l IS NOT DISTINCT FROM b.l)",
    ]);
    let by = *draw.pick(&[
        "a.g, b.g",
        "a.g, b.g",
        "b.g, a.h, a.g",
        "a.g",
        "b.h",
        "a.k, b.g",
        "a.g, a.h, b.g, b.h",
        "b.g, a.l",
    ]);
    // A condition on the keys of groups is one on the groups.
    let masks = ["a.g < b.g", "a.g <> b.g", "(a.g IS DISTINCT FROM b.g)", "coalesce(a.g > b.g, true)"];
    // A mask in an outer join is not supported.
    let kind = *draw.pick(&["INNER", "INNER", "LEFT", "RIGHT"]);
    let is_masked = kind == "INNER" && draw.percent(25);
    let mask = if is_masked { format!(" AND {}", draw.pick(&masks)) } else { String::new() };
    let more =
        more(draw, of, ["a.v * b.v", "b.u * a.u", "a.u", "a.v / 3 * b.u", "CASE WHEN a.u > 0 THEN a.u * b.v END"]);
    let statements = aggregates(&product, &more).map(|aggregates| {
        let aggregates: Vec<_> = aggregates
            .iter()
            .enumerate()
            .map(|(number, aggregate)| format!("{aggregate}{filter} AS total{number}"))
            .collect();
        format!("SELECT {by}, {} FROM a {kind} JOIN b ON ({on}){mask} GROUP BY {by}", aggregates.join(", "))
    });
    Ok(Case { tables, values: of, statements })
}

/// Draws a sum in which rows of a third table sample the product of the other two.
fn sampled(ctx: &SessionContext, draw: &mut Draw) -> Result<Case> {
    let mut tables = vec![];
    let Sizes { rows, groups, keys, nulls } = sizes(draw);
    let of = *draw.pick(&[Values::Plain, Values::WithNulls, Values::Special, Values::Huge]);
    let types: Vec<_> = (0..4).map(|_| *draw.pick(&KEY_TYPES)).collect();
    let [p, q, s] = [groups[0], groups[1], keys];
    for (number, (name, keys)) in [("x", [p, s]), ("g", [s, q]), ("w", [p, q])].into_iter().enumerate() {
        let count = rows[number];
        let of_type = |of: usize| types[of];
        let (first, second) = match name {
            "x" => (("p", 0), ("s", 2)),
            "g" => (("s", 2), ("q", 1)),
            _ => (("p", 0), ("q", 1)),
        };
        let mut columns = vec![
            (first.0, key(draw, of_type(first.1), count, keys[0], nulls)),
            (second.0, key(draw, of_type(second.1), count, keys[1], nulls)),
            ("v", values_column(draw, of, count)),
        ];
        if name == "w" {
            let row: ArrayRef = if draw.percent(70) {
                Arc::new((0..count as i64).collect::<Int64Array>())
            } else {
                key(draw, types[3], count, 5, nulls)
            };
            columns.push(("row", row));
        }
        tables.extend(add_table(ctx, draw, name, columns)?);
    }
    let product = *draw.pick(&[
        "g.v * x.v",
        "g.v * CASE WHEN w.v IS NOT NULL THEN x.v END",
        "g.v * x.v * w.v",
        "g.v * 2 / 3",
        "g.v * coalesce(x.v, 0.5)",
        "g.v * CASE WHEN w.v > 0 AND x.v < 1 THEN x.v END",
    ]);
    let product = if of == Values::Huge { "g.v * x.v" } else { product };
    let (kind, is) = *draw.pick(&[
        ("RIGHT", "IS NOT DISTINCT FROM"),
        ("RIGHT", "="),
        ("INNER", "="),
        ("INNER", "IS NOT DISTINCT FROM"),
    ]);
    // Rows that sample may have no match in `x`.
    let lower = *draw.pick(&["INNER", "INNER", "RIGHT"]);
    let and = if draw.percent(75) { format!(" AND (g.q {is} j.q)") } else { String::new() };
    let more = more(draw, of, ["g.v * x.v", "x.v * g.v * w.v", "g.v / 4", "g.v * x.v / 2", "g.v"]);
    let statements = aggregates(product, &more).map(|aggregates| {
        let aggregates: Vec<_> = aggregates
            .iter()
            .enumerate()
            .map(|(number, sum)| format!("{sum} AS total{number}").replace("x.v", "j.xv").replace("w.v", "j.wv"))
            .collect();
        let aggregates = aggregates.join(", ");
        format!(
            "SELECT j.row, {aggregates} FROM g {kind} JOIN
               (SELECT x.s, w.q, w.row, x.v AS xv, w.v AS wv FROM x {lower} JOIN w ON x.p = w.p) AS j
             ON (g.s {is} j.s){and} GROUP BY j.row"
        )
    });
    Ok(Case { tables, values: of, statements })
}

/// Draws a sum by integer keys. Most are indexes, but some are NULL, negative or large, in the first rows or in the last.
fn by_number(ctx: &SessionContext, draw: &mut Draw) -> Result<Case> {
    let of = *draw.pick(&[Values::Plain, Values::WithNulls, Values::Special]);
    let rows = *draw.pick(&[0, 1, 40, 900]);
    let (near, far) = (*draw.pick(&[1, 7, 400]), *draw.pick(&[400, 400, 1 << 40]));
    let (first, nulls) = (*draw.pick(&[0, 0, 0, -3]), *draw.pick(&[0, 0, 0, 10]));
    let begin = *draw.pick(&[0, rows / 2, rows]);
    let number = |row: usize| {
        let is_none = draw.percent(if row < begin { 0 } else { nulls });
        let distance = draw.below(if row < begin { near } else { far }) as i64;
        (!is_none).then(|| distance + if row < begin { 0 } else { first })
    };
    let numbers: ArrayRef = Arc::new((0..rows).map(number).collect::<Int64Array>());
    let fits = far < 1 << 32 && first == 0;
    let narrow = draw.pick(&[DataType::Int64, DataType::Int16, DataType::UInt16, DataType::UInt64]);
    let numbers = if fits { cast(&numbers, narrow)? } else { numbers };
    let values = values_column(draw, of, rows);
    let others: ArrayRef = Arc::new((0..rows).map(|_| draw.below(3) as i32 - 1).collect::<Int32Array>());
    let tables = add_table(ctx, draw, "a", vec![("k", numbers), ("l", others), ("v", values)])?;
    let by = *draw.pick(&["k", "k, l", "l, k"]);
    let sum = |sum: &str| {
        format!("SELECT {by}, SUM({sum}) AS total FROM (SELECT k, l, v, abs(v) AS size FROM a) GROUP BY {by}")
    };
    Ok(Case { tables, values: of, statements: [sum("v"), sum("size")] })
}

fn are_close(found: Option<f64>, expected: Option<f64>, size: Option<f64>) -> bool {
    match (found, expected) {
        (None, None) => true,
        (Some(found), Some(expected)) if expected.is_nan() => found.is_nan(),
        (Some(found), Some(expected)) if expected.is_infinite() => found == expected,
        (Some(found), Some(expected)) => {
            let size = size.unwrap_or_default();
            (found - expected).abs() <= 1e-12 * size + f64::MIN_POSITIVE
        }
        _ => false,
    }
}

/// The sums of a case, computed by DataFusion.
struct Expected {
    sums: Totals,
    sizes: Totals,
}

type Totals = BTreeMap<String, Vec<Option<f64>>>;

impl Expected {
    async fn of(ctx: &SessionContext, case: &Case) -> Result<Self> {
        let [sql, sizes] = &case.statements;
        let sums = totals(plan_sql(ctx, sql).await?, ctx.task_ctx()).await?;
        Ok(Self { sums, sizes: totals(plan_sql(ctx, sizes).await?, ctx.task_ctx()).await? })
    }

    fn check(&self, case: &Case, found: Totals, way: Contractions) {
        let sql = &case.statements[0];
        assert!(found.keys().eq(self.sums.keys()), "{way}: {found:?} is not {:?}: {sql}", self.sums);
        let sums = found.iter().flat_map(|(key, sums)| sums.iter().enumerate().map(move |(at, sum)| (key, at, *sum)));
        for (key, at, sum) in sums {
            let (expected, size) = (self.sums[key][at], self.sizes[key][at]);
            // An intermediate sum that overflows is infinite in one order and not in another.
            let overflows = case.values == Values::Huge && size.is_some_and(f64::is_infinite);
            assert!(overflows || are_close(sum, expected, size), "{way}: {sum:?} is not {expected:?} for {key}: {sql}");
            assert_eq!(sum.is_none(), expected.is_none(), "{way}: {key}: {sql}");
            assert!(!sum.is_some_and(|sum| sum == 0.0 && sum.is_sign_negative()), "{way}: -0 for {key}: {sql}");
        }
    }
}

/// Executes a sum in every mode, counts the kernels, and returns whether the sum was contracted.
async fn check(ctx: &SessionContext, case: &Case, kernels: [&str; 2], taken: &mut [usize; 2]) -> Result<bool> {
    let expected = Expected::of(ctx, case).await?;
    let mut is_contracted = false;
    for way in WAYS {
        let contraction = contract(&plan_sql(ctx, &case.statements[0]).await?, way)?;
        is_contracted = count(&contraction) > 0;
        expected.check(case, totals(Arc::clone(&contraction), ctx.task_ctx()).await?, way);
        if way == Contractions::On {
            for (count, kernel) in taken.iter_mut().zip(kernels) {
                *count += metric(&contraction, kernel).unwrap_or_default();
            }
        }
    }
    Ok(is_contracted)
}

/// Executes the plans of a sum several times while the rows of the tables change or stay.
async fn check_again(ctx: &SessionContext, case: &Case, draw: &mut Draw) -> Result<()> {
    let plan = plan_sql(ctx, &case.statements[0]).await?;
    let plans = WAYS.into_iter().map(|way| Ok((way, contract(&plan, way)?)));
    let plans: Vec<_> = plans.collect::<Result<_>>()?;
    for _ in 0..6 {
        let expected = Expected::of(ctx, case).await?;
        for (way, plan) in &plans {
            expected.check(case, totals(reset_plan_states(Arc::clone(plan))?, ctx.task_ctx()).await?, *way);
        }
        if draw.percent(70) {
            for partition in &case.tables {
                partition.change(draw)?;
            }
        }
    }
    Ok(())
}

pub fn cases() -> usize {
    std::env::var("XQL_FFI_TEST_SUMS").map_or(150, |cases| cases.parse().expect("a number"))
}

/// Draws tables and the statements of a case.
type DrawCase = fn(&SessionContext, &mut Draw) -> Result<Case>;

/// Checks all cases. Most have to be contracted, and each kernel has to be used.
async fn check_all(draw_case: DrawCase, kernels: [&str; 2]) -> Result<()> {
    let mut draw = Draw::from_env();
    let (mut found, mut taken) = (0, [0; 2]);
    for _ in 0..cases() {
        let ctx = session(1 + draw.below(3));
        let case = draw_case(&ctx, &mut draw)?;
        found += usize::from(check(&ctx, &case, kernels, &mut taken).await?);
    }
    println!("{found} of {} as arrays: {kernels:?} {taken:?}", cases());
    assert!(found * 10 >= cases() * 7, "{found}");
    assert!(taken.iter().all(|count| *count > 0), "{taken:?}");
    Ok(())
}

#[tokio::test]
async fn products_equal_the_sums_of_the_join() -> Result<()> {
    check_all(pairs, ["dense", "sparse"]).await
}

#[tokio::test]
async fn sampled_products_equal_the_sums_of_the_joins() -> Result<()> {
    check_all(sampled, ["dense", "sparse"]).await
}

#[tokio::test]
async fn integer_key_aggregates_equal_the_sums_of_groups() -> Result<()> {
    check_all(by_number, ["keys", "fallback"]).await
}

#[tokio::test]
async fn a_cached_encoding_never_changes_a_sum() -> Result<()> {
    let mut draw = Draw::from_env();
    for number in 0..cases() {
        let ctx = session(1 + draw.below(3));
        let draw_case: DrawCase = if number % 2 == 0 { pairs } else { sampled };
        let case = draw_case(&ctx, &mut draw)?;
        check_again(&ctx, &case, &mut draw).await?;
    }
    Ok(())
}
