"""The programs of the gallery: each draws its picture, smaller, and what is in the pictures is right."""

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import xarray as xr
from matplotlib.figure import Figure

from support.programs import EXAMPLES, load

IMAGES = EXAMPLES.parent / "docs" / "images" / "gallery"
SMALLER: dict[str, dict[str, Any]] = {
    "attention": {},
    "gradient_field": {},
    "newton_path": {"descent": 3},
    "pendulum": {"steps": 20},
    "sensitivity_map": {},
    "sensitivity_matrix": {},
    "training_curve": {"steps": 2, "tumours": 40},
    "uncertainty": {"points": 5, "number": 1000},
}


def program(name: str) -> ModuleType:
    return load(f"examples/gallery/{name}")


def test_every_program_has_a_picture_on_the_page() -> None:
    names = {path.stem for path in (EXAMPLES / "gallery").glob("*.py")}
    assert names == set(SMALLER)
    assert {path.stem for path in IMAGES.iterdir()} == {name.replace("_", "-") for name in names}
    page = (IMAGES.parents[1] / "gallery.md").read_text(encoding="utf-8")
    for name in names:
        assert f"examples/gallery/{name}.py" in page
        assert f"images/gallery/{name.replace('_', '-')}.png" in page


@pytest.mark.parametrize("name", SMALLER)
def test_program(name: str, tmp_path: Path) -> None:
    figure: Figure = program(name).draw(**SMALLER[name])
    figure.savefig(tmp_path / "picture.png", dpi=50)
    for ax in figure.axes:
        assert ax.get_xlabel() or ax.get_ylabel() or ax.get_title(), name


def test_gradient_field_is_that_of_xarray() -> None:
    module = program("gradient_field")
    t = module.temperature()
    inside = {"latitude": slice(1, -1), "longitude": slice(1, -1)}
    xr.testing.assert_allclose(module.by_sql(t).isel(inside), module.by_xarray(t).isel(inside), rtol=1e-12)


def test_the_sensitivity_matrix_is_that_of_differences() -> None:
    module = program("sensitivity_matrix")
    outputs, values, slopes = module.sensitivities()

    def model(t: float, rh: float, p: float) -> dict[str, float]:
        es = 6.112 * np.exp(17.62 * t / (243.12 + t))
        w = 0.622 * rh * es / (p - rh * es)
        tv = (t + 273.15) * (1 + 0.608 * w / (1 + w))
        pressures = {
            "saturation pressure": es,
            "vapour pressure": rh * es,
            "mixing ratio": w,
            "virtual temperature": tv,
        }
        sound = {"density": 100 * p / (287.05 * tv), "speed of sound": np.sqrt(1.4 * 287.05 * tv)}
        return {**pressures, **sound, "enthalpy": 1.006 * t + w * (2501 + 1.86 * t)}

    start = np.array([value for value, _ in module.INPUTS.values()])
    np.testing.assert_allclose(values, [model(*start)[name] for name in outputs], rtol=1e-12)
    assert len(outputs) == 7
    for column, step in enumerate(np.diag(1e-4 * start)):
        up, down = model(*(start + step)), model(*(start - step))
        differences = [(up[name] - down[name]) / (2 * step[column]) for name in outputs]
        np.testing.assert_allclose(slopes[:, column], differences, rtol=1e-6, atol=1e-12)


def test_newton_arrives() -> None:
    _, newton = program("newton_path").paths(descent=1).values()
    assert (newton["x"][-1], newton["y"][-1]) == pytest.approx((1, 1), abs=1e-6)


def test_training_is_gradient_descent() -> None:
    module = program("training_curve")
    found = module.train(steps=4, tumours=60)
    x, sign = (values[:60] for values in module.measurements())
    for rate, losses in found.items():
        weights = np.zeros(x.shape[1])
        for loss in losses:
            margin = sign * (x @ weights)
            assert loss == pytest.approx(np.log1p(np.exp(-margin)).mean(), rel=1e-9)
            weights += rate * (sign / (1 + np.exp(margin))) @ x / len(x)


def test_sensitivity() -> None:
    found = program("sensitivity_map").sensitivity()
    assert found["gain"].attrs["units"] == "% K-1"
    # The law of Clausius and Clapeyron, which the formula follows.
    assert 5 < float(found["gain"].min()) < float(found["gain"].max()) < 11


def test_attention_by_the_complex_step() -> None:
    module = program("attention")
    weights, slopes = module.attend()

    def attention(x: Any) -> Any:
        scores = np.exp(x @ x.T / np.sqrt(8.0))
        return scores / scores.sum(axis=1, keepdims=True)

    x = module.embeddings()
    moved = x + 1e-30j * np.eye(x.size).reshape(x.size, *x.shape)
    expected = [attention(each)[module.ASKED, module.ANSWERED].imag / 1e-30 for each in moved]
    np.testing.assert_allclose(weights, attention(x), rtol=1e-9)
    np.testing.assert_allclose(slopes.ravel(), expected, atol=1e-12)


def test_uncertainty() -> None:
    module = program("uncertainty")
    s = np.array([0.1, 1.0, 10.0])
    found = module.propagate(s)
    v, k = module.MEAN
    gradient = np.array([s / (k + s), -v * s / (k + s) ** 2])
    covariance = module.covariance()
    np.testing.assert_allclose(found["spread"], np.sqrt(np.einsum("is,ij,js->s", gradient, covariance, gradient)))
    shift = v * s / (k + s) ** 3 * covariance[1, 1] - s / (k + s) ** 2 * covariance[0, 1]
    np.testing.assert_allclose(found["shift"], shift)


def test_pendulum() -> None:
    h = 1e-4
    _, (below, _, above), slopes = program("pendulum").swing([2 - h, 2, 2 + h], steps=30)
    np.testing.assert_allclose(slopes[1], (above - below) / (2 * h), rtol=1e-6)
