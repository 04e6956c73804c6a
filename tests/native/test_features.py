"""One build of DataFusion serves cargo and maturin, which builds one crate alone.

Cargo compiles a crate anew for every set of features, which for DataFusion takes half an hour. The plugin depends on
`datafusion-python` for this reason only.
"""

import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"


def crates(*selection: str, workspace: Path = NATIVE) -> set[str]:
    """The crates of others that cargo builds for a selection of ours, each with its features."""
    command = ["cargo", "tree", "--locked", "--prefix=none", "--format={p} [{f}]", *selection]
    tree = subprocess.run(command, cwd=workspace, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line.removesuffix(" (*)") for line in tree.splitlines() if not line.startswith("xql-")}


@pytest.mark.parametrize("selection", ["--workspace", "--package=xql-plugin", "--package=xql-engine"])
def test_a_selection_has_the_features_of_the_whole(selection: str) -> None:
    whole = crates("--workspace", "--edges=normal,build,dev")
    assert crates(selection, "--edges=normal,build") <= whole


@pytest.mark.parametrize("selection", [["xql-plugin"], ["xql-plugin", "xql-other-planner"]])
def test_so_it_does_for_datafusion_55(selection: list[str]) -> None:
    stock = NATIVE / "stock"
    whole = crates("--workspace", "--edges=normal,build,dev", workspace=stock)
    packages = [f"--package={name}" for name in selection]
    assert crates(*packages, "--edges=normal,build", workspace=stock) <= whole
