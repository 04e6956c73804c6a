"""Functions that DataFusion lacks: what is said of them, and that it is right."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pyarrow as pa
import pytest
from datafusion import ScalarUDF, SessionContext, udf
from scipy import special

import xql_ffi
from support import sessions
from support.pages import DOCS
from xql_ffi._lacking import CALLED, RULES, WRITTEN, way_without
from xql_ffi._special import FUNCTIONS, SIGNATURES
from xql_ffi.testing import verify_grad

# What the functions are, in Python. Those of few words are compared with these as well as those with rules.
VALUES: dict[str, Callable[..., float]] = {
    "clamp": lambda x, low, high: min(max(x, low), high),
    "clip": lambda x, low, high: min(max(x, low), high),
    "digamma": special.digamma,
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "erf": math.erf,
    "erfc": math.erfc,
    "erfcinv": special.erfcinv,
    "erfcx": special.erfcx,
    "erfinv": special.erfinv,
    "exp2": lambda x: 2**x,
    "expit": special.expit,
    "expm1": math.expm1,
    "fabs": abs,
    "gamma": math.gamma,
    "gammaln": math.lgamma,
    "gelu": lambda x: x * special.ndtr(x),
    "hypot": math.hypot,
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "lgamma": math.lgamma,
    "log1p": math.log1p,
    "log_sigmoid": special.log_expit,
    "log_ndtr": special.log_ndtr,
    "logaddexp": lambda x, y: math.log(math.exp(x) + math.exp(y)),
    "loggamma": math.lgamma,
    "logit": special.logit,
    "maximum": max,
    "minimum": min,
    "ndtr": special.ndtr,
    "ndtri": special.ndtri,
    "norm_cdf": special.ndtr,
    "normal_cdf": special.ndtr,
    "normal_pdf": lambda x: math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
    "normal_quantile": special.ndtri,
    "polygamma": lambda n, x: special.polygamma(int(n), x),
    "relu": lambda x: max(x, 0.0),
    "rsqrt": lambda x: 1 / math.sqrt(x),
    "sech": lambda x: 1 / math.cosh(x),
    "sigmoid": special.expit,
    "sign": lambda x: math.copysign(1.0, x),
    "silu": lambda x: x * special.expit(x),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
    "square": lambda x: x * x,
    "swish": lambda x: x * special.expit(x),
    "tgamma": math.gamma,
    "trigamma": lambda x: special.polygamma(1, x),
}
ARGUMENTS = ("x", "y", "z")


def name_of(signature: str) -> str:
    return signature.partition("(")[0]


def inputs_of(signature: str) -> list[str]:
    return signature.partition("(")[2].rstrip(")").split(", ")


def in_sql(name: str, arity: int = 1) -> ScalarUDF:
    def of(*columns: pa.Array) -> pa.Array:
        return pa.array(
            [float(VALUES[name](*row)) for row in zip(*(c.to_pylist() for c in columns), strict=True)], pa.float64()
        )

    return udf(of, [pa.float64()] * arity, pa.float64(), "immutable", name)


# All of them are defined between 0 and 1, and some only there.
X = [0.0625, 0.25, 0.375, 0.5, 0.875]
TABLES = {"t": {"x": X, "y": [0.5, 0.25, 0.75, 0.125, 0.875], "low": [0.125] * 5, "high": [0.75] * 5}}


@pytest.fixture(scope="module")
def session() -> SessionContext:
    return sessions.session(TABLES)


@pytest.mark.parametrize("signature", [*WRITTEN, *RULES])
def test_datafusion_lacks_it_and_the_error_says_what_to_do(session: SessionContext, signature: str) -> None:
    with pytest.raises(xql_ffi.MissingRuleError, match=re.escape(f"no function {signature}. ")) as caught:
        session.sql(f"SELECT grad({signature} * x, x) FROM t")
    message = str(caught.value)
    if name_of(signature) in SIGNATURES:
        assert "register(ctx, functions=True)" in message
        assert signature not in WRITTEN or message.endswith(f". Or write {WRITTEN[signature]}")
    elif signature in WRITTEN:
        assert f"write {WRITTEN[signature]}, or register" in message
    else:
        assert_can_be_pasted(message, signature)


def assert_can_be_pasted(message: str, signature: str) -> None:
    """The rule in a message is one."""
    advised = re.search(r"rules=\[(xql_ffi\.rule\(.*\))\]$", message)
    assert advised, message
    names = {"xql_ffi": xql_ffi, **{name: in_sql(name, 1 + (name == "polygamma")) for name in CALLED}}
    assert eval(advised[1], names).signature == signature


@pytest.mark.parametrize("signature", RULES)
def test_of_a_host_without_special_functions_the_error_has_the_rule(signature: str) -> None:
    message = way_without(name_of(signature), "DuckDB")
    assert message is not None
    assert_can_be_pasted(message, signature)


@pytest.mark.parametrize("aggregate", ["mode(x)", "percentile_disc(0.5) WITHIN GROUP (ORDER BY x)"])
def test_aggregates_that_pick_a_value(session: SessionContext, aggregate: str) -> None:
    name = name_of(aggregate)
    with pytest.raises(xql_ffi.DifferentiationError, match=f"DataFusion has no function {name}. "):
        session.sql(f"SELECT grad((SELECT {aggregate} FROM t), x) FROM t")
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("CREATE TABLE t AS SELECT CAST(1 AS DOUBLE) AS x")
    for call in ("mode(x)", "quantile_disc(x, 0.5)"):
        with pytest.raises(xql_ffi.HostError, match=r"is an aggregate that only duckdb has|no function"):
            xql_ffi.expand_sql(f"SELECT grad((SELECT {call} FROM t), x) FROM t", connection)


def test_without_a_derivative_the_error_is_that_of_datafusion(session: SessionContext) -> None:
    with pytest.raises(Exception, match="Invalid function 'erf'") as caught:
        session.sql("SELECT erf(x) FROM t")
    assert not isinstance(caught.value, xql_ffi.DifferentiationError)
    with pytest.raises(Exception, match="Invalid function 'snh'") as caught:
        session.sql("SELECT grad(snh(x), x) FROM t")
    assert not isinstance(caught.value, xql_ffi.DifferentiationError)


@pytest.mark.parametrize("name", ["erf", "relu"])
def test_as_text(session: SessionContext, name: str) -> None:
    for tables in (session, sessions.session(TABLES, differentiates=False), {"t": pa.schema({"x": pa.float64()})}):
        with pytest.raises(xql_ffi.MissingRuleError, match=rf"no function {name}\(x\)"):
            xql_ffi.expand_sql(f"SELECT grad({name}(x), x) FROM t", tables)
    connection = pytest.importorskip("duckdb").connect()
    connection.execute("CREATE TABLE t AS SELECT CAST(1 AS DOUBLE) AS x")
    with pytest.raises(xql_ffi.MissingRuleError, match=rf"DuckDB has no function {name}\(x\)"):
        xql_ffi.expand_sql(f"SELECT grad({name}(x), x) FROM t", connection)


@pytest.mark.parametrize("signature", WRITTEN)
def test_what_is_written_is_the_function(session: SessionContext, signature: str) -> None:
    inputs, name = inputs_of(signature), name_of(signature)
    found = session.sql(f"SELECT {WRITTEN[signature]} AS v FROM t").to_pydict()["v"]
    rows = zip(*(TABLES["t"][each] for each in inputs), strict=True)
    assert found == pytest.approx([VALUES[name](*row) for row in rows], rel=1e-12)


SMOOTH = ("elu(x)", "log_sigmoid(x)", "softplus(x)", "softsign(x)", "silu(x)")


@pytest.mark.parametrize("signature", SMOOTH)
def test_what_is_smooth_is_so_where_branches_meet(session: SessionContext, signature: str) -> None:
    value, reference = WRITTEN[signature], VALUES[name_of(signature)]
    found = session.sql(f"SELECT grad({value}, x) AS d FROM (VALUES (CAST(0 AS DOUBLE))) AS t(x)").to_pydict()["d"]
    assert found == [pytest.approx((reference(1e-6) - reference(-1e-6)) / 2e-6, rel=1e-5)]


@pytest.mark.parametrize("signature", RULES)
def test_a_rule_is_the_derivative(signature: str) -> None:
    called = [in_sql(name, 1 + (name == "polygamma")) for name in CALLED if f"{name}(" in RULES[signature]]
    ctx = SessionContext()
    sessions.add(ctx, TABLES)
    ctx.register_udf(in_sql(name_of(signature)))
    xql_ffi.register(ctx, rules=[xql_ffi.rule(signature, RULES[signature], functions=called)])
    assert verify_grad(ctx, "t", signature, "x")["x"].verified == len(X)


def test_the_page_has_them_all() -> None:
    page = (DOCS / "missing-functions.md").read_text(encoding="utf-8")
    special = re.findall(r"^\| `([^`]+)` \| ((?:`\w+`(?:, )?)*) ?\| .+ \|$", page, re.MULTILINE)
    assert {signature: tuple(re.findall(r"\w+", others)) for signature, others in special} == FUNCTIONS
    rows = dict(re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", page, re.MULTILINE))
    assert rows == {**WRITTEN, **RULES}
