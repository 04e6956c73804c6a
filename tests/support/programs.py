"""Programs of the checkout that are in no package: those of the folders `examples` and `docs`."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


def load(name: str) -> ModuleType:
    """A program as a module: `examples/digits`, `docs/hooks`. As where it is run, it imports what stands beside it."""
    if (folder := str((ROOT / name).parent)) not in sys.path:
        sys.path.append(folder)
    spec = importlib.util.spec_from_file_location(Path(name).name, ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
