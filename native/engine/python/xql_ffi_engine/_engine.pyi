from collections.abc import Callable
from types import ModuleType

DATAFUSION_VERSION: str

def install(module: ModuleType) -> None: ...
def observe(callable: Callable[..., object] | None) -> None: ...  # noqa: A002
def stop_observing() -> None: ...
