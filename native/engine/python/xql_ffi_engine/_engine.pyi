from types import ModuleType

DATAFUSION_VERSION: str

def install(module: ModuleType) -> None: ...
