"""One build of DataFusion serves cargo and maturin, which builds one crate alone.

Cargo compiles a crate anew for every set of features, which for DataFusion takes half an hour. The plugin depends on
`datafusion-python` for this reason only.
"""

import subprocess
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[2] / "native"


def crates(*selection: str) -> set[str]:
    """The crates of others that cargo builds for a selection of ours, each with its features."""
    command = ["cargo", "tree", "--locked", "--prefix=none", "--format={p} [{f}]", *selection]
    tree = subprocess.run(command, cwd=NATIVE, stdout=subprocess.PIPE, text=True, check=True).stdout
    return {line.removesuffix(" (*)") for line in tree.splitlines() if not line.startswith("xql-")}


@pytest.mark.parametrize("selection", ["--workspace", "--package=xql-plugin", "--package=xql-engine"])
def test_a_selection_has_the_features_of_the_whole(selection: str) -> None:
    whole = crates("--workspace", "--edges=normal,build,dev")
    assert crates(selection, "--edges=normal,build") <= whole
