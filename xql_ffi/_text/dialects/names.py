"""Names of a statement: as a host compares them, and as they are written."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from xql_ffi._text.dialects.host import DATAFUSION, Host


class Names:
    """Maps the names of a statement between DataFusion, where they are quoted, and the host."""

    def __init__(self, host: Host, declared: Mapping[str, str]) -> None:
        """Names of a host, which has some of them in its catalog."""
        self._host = host
        self._declared = declared
        self._written: dict[str, str] = {}
        # The numbers of names that are too long.
        self._shortened: dict[str, int] = {}
        # The schema and the catalog that names without them are in.
        self._places = {host.schema: DATAFUSION.schema, host.catalog: DATAFUSION.catalog}
        self._places |= {there: here for here, there in self._places.items()}

    def read(self, tree: exp.Expr) -> None:
        """Makes the names in a tree those of DataFusion."""
        for name in list(tree.find_all(exp.Identifier)):
            key = self._host.key(name.name, quoted=bool(name.args.get("quoted")))
            self._written.setdefault(key, name.name)
            name.replace(exp.to_identifier(self._placed(name, key), quoted=True))

    def write(self, tree: exp.Expr) -> None:
        """Makes the names in a tree those of the host."""
        for name in list(tree.find_all(exp.Identifier)):
            key = self._placed(name, name.name)
            name.replace(self._host.identifier(self._declared.get(key) or self._written.get(key) or self._short(key)))

    def path(self, column: exp.Column) -> tuple[str, ...]:
        """Returns the parts of a column's name as the host compares them."""
        return tuple(self._host.key(part.name, quoted=bool(part.args.get("quoted"))) for part in column.parts)

    def _short(self, key: str) -> str:
        """Returns a name that the host does not cut off by itself, by which two might become one."""
        longest = self._host.longest_name
        if longest is None or len(key.encode()) <= longest:
            return key
        ending = f"_{self._shortened.setdefault(key, len(self._shortened) + 1)}"
        return key.encode()[: longest - len(ending)].decode(errors="ignore") + ending

    def _placed(self, name: exp.Identifier, key: str) -> str:
        is_place = isinstance(name.parent, (exp.Table, exp.Column)) and name.arg_key in ("db", "catalog")
        return self._places.get(key, key) if is_place else key
