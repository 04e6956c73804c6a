"""A model as a statement with gradients, beside what the same statement has without a call.

The seed draws how each relation is given, what stands as CTE, view or subquery, what there is twice, where the calls
stand, and what is above them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from by_row.forms import Action, Forms, Given, sql, stored
from by_row.models import Data, Model, Part, Variable, quoted, random_model
from support.choices import Choices
from support.ctes import with_ctes
from support.verdict import CREATE, INSERT, PLAIN, PREPARE, VIEW

RATE = 0.125
STEPS = 2
PLACES = [PLAIN, PLAIN, "cte", CREATE, VIEW, INSERT, "derived", PREPARE]
ABOVE = ["", "squares", "order", "window", "filter"]
COLUMNS = ["val", "val", "val", "value", "∂val", "row", "Val", "cotangent"]
NAMES = ["loss", "rows", "∂rows", "groups", "state", "My Table", "val", "constants", "∂groups"]
_REFERENCE = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Statement:
    """A statement with gradients, and what it is judged by."""

    model: Model
    setup: Sequence[Action]
    variables: Sequence[Variable]
    # The rows of FROM with the value of the loss and of another relation, without and with the calls.
    plain: str
    called: str
    # Columns: for each variable the keys, `x` and `d`, with its number.
    place: str
    above: str
    directional: bool
    # Whether it trains the only variable for some steps instead.
    recursive: bool
    options: Mapping[str, str]
    details: Sequence[str]
    # By role of a variable, what counts its rows.
    sizes: Mapping[str, str]

    def script(self, query: str) -> str:
        """All that is done, for those who read it."""
        lines = [f"SET {name} = {value};" for name, value in self.options.items()]
        lines += [f"{action.shown};" for action in self.setup]
        return "\n".join([*lines, f"{query};"])


def random_statement(choices: Choices) -> Statement:
    """A random statement over a random model."""
    model = random_model(choices)
    return Author(choices, model).statement()


@dataclass
class Author:
    """Writes one model."""

    choices: Choices
    model: Model
    single: bool = False
    setup: list[Action] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    given: dict[str, Given] = field(default_factory=dict)
    # By role, its name and its text, or nothing for what is not in the statement; copies by further roles.
    names: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    inlined: set[str] = field(default_factory=set)
    copies: dict[str, str] = field(default_factory=dict)

    def statement(self) -> Statement:
        choices = self.choices
        self.details.append(self.model.name)
        twins = self._twins() if choices.chance(60) else None
        column = choices.of(COLUMNS)
        if column != "val":
            self.model = self.model.renamed("val", column)
            self.details.append("renamed")
        self.single = choices.chance(8)
        variables = self._variables(twins)
        recursive = choices.chance(15) and self._trainable(variables)
        if recursive:
            variables = variables[:1]
        self._name_all()
        self._give_all(twins, variables)
        if self.single:
            self.details.append("single precision")
        # After WITH RECURSIVE, a CTE that reads its own name reads itself.
        recursive = recursive and all(given.form != "shadow" for given in self.given.values())
        return self._recursive(variables) if recursive else self._with_calls(variables)

    # What there is

    def _twins(self) -> tuple[str, str] | None:
        """Some texts read another relation instead, whose content is equal, or almost."""
        several = [data.role for data in self.model.data if len(self.model.reads(data.role)) > 1]
        computed = [part for part in self.model.parts if len(self.model.reads(part.role)) > 1]
        computed = [part for part in computed if any(each.role == part.role for each in self.model.variables)]
        if computed and (not several or self.choices.chance(40)):
            return self._computed_twins(self.choices.of(computed))
        if not several:
            return None
        role = self.choices.of(several)
        (data,) = (data for data in self.model.data if data.role == role)
        twin = replace(data, role=f"{role}_twin")
        if data.line:
            slope, offset = data.line
            first, last = int(data.rows[0][0] or 0) - 1, int(data.rows[-1][0] or 0) + 1
            if self.choices.chance(60):
                twin = replace(twin, rows=[(key, key * slope + offset) for key in range(first, last + 1)])
        elif self.choices.chance(30):
            count = len(data.keys)
            moved = [tuple(v if n < count or v is None else v + 0.25 for n, v in enumerate(row)) for row in data.rows]
            twin = replace(twin, rows=moved)
        self.model = replace(self._with_twin(role), data=[*self.model.data, twin])
        self.details.append("twins")
        return role, twin.role

    def _computed_twins(self, part: Part) -> tuple[str, str]:
        """Some texts read another query of the same text instead."""
        twin = replace(part, role=f"{part.role}_twin")
        model = self._with_twin(part.role)
        parts = [
            each
            for one in model.parts
            for each in ([one, replace(twin, text=one.text)] if one.role == part.role else [one])
        ]
        self.model = replace(model, parts=parts)
        self.details.append("computed twins")
        return part.role, twin.role

    def _with_twin(self, role: str) -> Model:
        """The model in which some texts read the twin of a relation, by which it may be differentiated too."""
        texts = self.model.texts()
        numbers = self.model.reads(role)[1:]
        for number in self.choices.some(numbers, 50) or numbers[:1]:
            count = self.choices.of([-1, 1])
            texts[number] = texts[number].replace(f"{{{role}}}", f"{{{role}_twin}}", count)
        model = self.model.with_texts(texts)
        added = [Variable(f"{role}_twin", each.keys, each.column) for each in model.variables if each.role == role]
        return replace(model, variables=[*model.variables, *added])

    def _variables(self, twins: tuple[str, str] | None) -> list[Variable]:
        choices = self.choices
        own = [each for each in self.model.variables if twins and each.role in twins]
        first = choices.of(own if own and choices.chance(60) else self.model.variables)
        found = [first]
        if choices.chance(30):
            found += [each for each in self.model.variables if each.role == first.role and each != first][:2]
        if choices.chance(25):
            others = [each for each in self.model.variables if each.role != first.role]
            found += [choices.of(others)] if others else []
        return found

    def _trainable(self, variables: Sequence[Variable]) -> bool:
        for data in self.model.data:
            if data.role == variables[0].role:
                keys = [row[: len(data.keys)] for row in data.rows]
                return len(set(keys)) == len(keys) and not self.single
        return False

    def _name_all(self) -> None:
        taken = iter(self.choices.some(NAMES, 12))
        for role in [*(data.role for data in self.model.data), *(part.role for part in self.model.parts)]:
            # A table under the name of a keyword is quoted wherever it is referred to.
            name = next(taken, "") if self.choices.chance(15) else ""
            self.names[role] = name or f"{role}_"

    def _give_all(self, twins: tuple[str, str] | None, variables: Sequence[Variable]) -> None:
        forms = Forms(self.choices, single=self.single)
        data = {each.role: each for each in self.model.data}
        if twins and twins[0] in data:
            for given, role in zip(self._alike(forms, data[twins[0]], data[twins[1]]), twins, strict=True):
                self._give(role, given)
        for role, each in data.items():
            if role not in self.given:
                self._give(role, forms.given(each, self.names[role]))
        protected = {variable.role for variable in variables}
        for role, given in self.given.items():
            if role not in protected and given.kind == "cte" and given.form != "shadow" and self.choices.chance(20):
                self.inlined.add(role)
        self._write_parts(protected)

    def _give(self, role: str, given: Given) -> None:
        self.given[role] = given
        self.names[role] = given.name if given.form == "schema" else quoted(given.name)
        self.setup += given.setup
        self.details.append(f"given by {given.form}")
        if given.kind == "cte":
            self.texts[role] = given.text

    def _alike(self, forms: Forms, one: Data, other: Data) -> tuple[Given, Given]:
        """Two relations that look alike."""
        names = self.names[one.role], self.names[other.role]
        ways = ["frames", "replaced", "any"]
        if one.line:
            ways += ["series"] * 3
        if one.rows == other.rows:
            ways += ["computed", "values", "computed view", "computed", "values", "computed view"]
        way = self.choices.of(ways)
        self.details.append(f"alike: {way}")
        if way in ("computed", "values", "computed view"):
            first = forms.given(one, names[0], form=way, base=f"{names[0]}_base")
            second = forms.given(other, names[1], form=way, base=f"{names[0]}_base")
            made = second.setup[1:] if way == "computed view" else []
            # The texts are to be the same to the letter.
            return first, replace(second, text=first.text, setup=made)
        if way in ("series", "frames"):
            form = "series" if way == "series" else "frame"
            return forms.given(one, names[0], form=form), forms.given(other, names[1], form=form)
        if way == "replaced":
            view = forms.given(one, names[0], form="view", base=names[1])
            instead = stored(forms.table(other, names[1]))
            return view, Given(names[1], "table", "replaced", "", [sql(f"DROP TABLE {quoted(names[1])}"), instead])
        return forms.given(one, names[0]), forms.given(other, names[1])

    def _write_parts(self, protected: set[str]) -> None:
        choices = self.choices
        written: dict[str, str] = {}
        for part in self.model.parts:
            role = part.role
            text = written.get(role.removesuffix("_twin")) or self._written(part.text)
            written[role] = text
            kind = choices.of(["cte", "cte", "cte", "view", "inline", "twice"])
            if role in protected and kind in ("inline", "twice"):
                kind = "cte"
            if kind == "view" and any(self._in_statement(each) for each in _REFERENCE.findall(part.text)):
                kind = "cte"
            self.names[role] = quoted(self.names[role])
            if kind == "view":
                self.setup.append(sql(f"CREATE VIEW {self.names[role]} AS {text}"))
            else:
                self.texts[role] = text
            if kind == "inline":
                self.inlined.add(role)
            if kind == "twice":
                again = f"{role}_again"
                self.copies[role] = again
                self.names[again], self.texts[again] = f"{again}_", self._written(part.text)
            self.details.append(f"part as {kind}")

    def _in_statement(self, role: str) -> bool:
        """Whether a relation, or what it reads, is no view or table."""
        return role in self.texts

    def _written(self, text: str) -> str:
        """A text with names for roles, or the texts themselves."""

        def named(match: re.Match[str]) -> str:
            role = match[1]
            if role in self.copies and self.choices.chance(50):
                role = self.copies[role]
            return f"({self.texts[role]})" if role in self.inlined else self.names[role]

        return _REFERENCE.sub(named, text)

    # The statement

    def _with_calls(self, variables: Sequence[Variable]) -> Statement:
        choices = self.choices
        loss = self._written(self.model.loss)
        outside, inside = self._placed(variables)
        loss = with_ctes(loss, inside)
        if not inside and choices.chance(40):
            outside["the_total"] = f"SELECT ({loss}) AS l"
            loss = "SELECT l FROM the_total"
        values = [f"({loss}) AS value"]
        beside = [
            part
            for part in self.model.parts
            if part.keys and (part.role not in self.texts or self.names[part.role] in outside)
        ]
        if beside and choices.chance(50):
            part = choices.of(beside)
            column = _value_of(part)
            values.append(f"(SELECT SUM(b.{column}) FROM {self.names[part.role]} AS b) AS beside")
        sources, items, calls = self._from(variables, f"({loss})", outside)
        directional = choices.chance(25)
        if directional:
            calls += [f"jvp(({loss}), {_cell(variables, 0)}, 0.5) AS along"]
        plain = with_ctes(f"SELECT {', '.join([*items, *values])} FROM {sources}", outside)
        options = self._options()
        called = with_ctes(f"SELECT {', '.join([*items, *values, *calls])} FROM {sources}", outside)
        place = choices.of(PLACES)
        return Statement(
            self.model, self.setup, variables, plain, called, place, choices.of(ABOVE), directional, False, options,
            [*self.details, place, *options,
             "calls by several relations" if len({v.role for v in variables}) > 1 else "",
             "inside" if inside else "outside"],
            {v.role: with_ctes(f"SELECT COUNT(*) AS n FROM {self.names[v.role]} AS q", outside) for v in variables},
        )  # fmt: skip

    def _from(self, variables: Sequence[Variable], loss: str, ctes: dict[str, str]) -> tuple[str, list[str], list[str]]:
        roles = list(dict.fromkeys(variable.role for variable in variables))
        sources, items, calls = [], [], []
        for role in roles:
            name = self.names[role]
            if self.choices.chance(15):
                passed = f"SELECT * FROM {name}"
                if self.choices.chance(50):
                    ctes[f"passed_{role}"] = passed
                    name = f"passed_{role}"
                else:
                    name = f"({passed})"
                self.details.append("passed on")
            sources.append(f"{name} AS by_{role}")
        for number, variable in enumerate(variables):
            alias = f"by_{variable.role}"
            items += [f"{alias}.{quoted(key)} AS key{number}_{n}" for n, key in enumerate(variable.keys)]
            items.append(f"{alias}.{quoted(variable.column)} AS x{number}")
            calls.append(f"grad({loss}, {alias}.{quoted(variable.column)}) AS d{number}")
        return " CROSS JOIN ".join(sources), items, calls

    def _placed(self, variables: Sequence[Variable]) -> tuple[dict[str, str], dict[str, str]]:
        """The CTEs of the statement, and those of the loss."""
        ctes = {self.names[role]: text for role, text in self.texts.items() if role not in self.inlined}
        if not self.choices.chance(30):
            return ctes, {}
        kept: set[str] = set()
        for variable in variables:
            kept |= self._read_by(variable.role)
        names = {self.names[role] for role in kept}
        outside = {name: text for name, text in ctes.items() if name in names}
        return outside, {name: text for name, text in ctes.items() if name not in names}

    def _read_by(self, role: str) -> set[str]:
        """The relations that one is computed from, and itself; copies with what they are copied from."""
        found = {role}
        for part in self.model.parts:
            if part.role == role:
                for each in _REFERENCE.findall(part.text):
                    found |= self._read_by(each)
                    if each in self.copies:
                        found.add(self.copies[each])
        return found

    def _options(self) -> dict[str, str]:
        options = {"datafusion.execution.target_partitions": self.choices.of(["1", "2", "4"])}
        if self.choices.chance(50):
            options["datafusion.execution.batch_size"] = "2"
        if self.choices.chance(20) and len(self.model.parts) <= 4:
            options["xql.share_relations"] = "false"
        return options

    def _recursive(self, variables: Sequence[Variable]) -> Statement:
        """Training in one statement: the texts read the rows of the last step."""
        (variable,) = variables
        (data,) = (data for data in self.model.data if data.role == variable.role)
        start = self.names[data.role]
        constant = {
            self.names[role]: text
            for role, text in self.texts.items()
            if role in self.given and role not in self.inlined
        }
        self.names[data.role] = "trained"
        self.inlined.discard(data.role)
        parts: dict[str, str] = {}
        for part in self.model.parts:
            # What was a view may read the variable.
            self.texts[part.role] = self._written(part.text)
            if part.role not in self.inlined:
                parts[self.names[part.role]] = self.texts[part.role]
            if part.role in self.copies:
                again = self.copies[part.role]
                parts[self.names[again]] = self.texts[again] = self._written(part.text)
        loss = self._written(self.model.loss)
        term_ctes = parts
        if self.choices.chance(50):
            loss, term_ctes = with_ctes(loss, parts), {}
        keys = [quoted(key) for key in data.keys]
        moved = [
            f"s.{quoted(name)} - {RATE} * grad(({loss}), s.{quoted(name)}) AS {quoted(name)}" if name == variable.column
            else f"s.{quoted(name)}"
            for name in data.floats
        ]  # fmt: skip
        step = (
            f"SELECT s.step_ + 1, {', '.join(f's.{key}' for key in keys)}, {', '.join(moved)} "
            f"FROM trained AS s WHERE s.step_ < {STEPS}"
        )
        columns = ", ".join(f"q.{quoted(name)}" for name in data.columns)
        first = f"SELECT 0 AS step_, {columns} FROM {start} AS q"
        constant["trained"] = f"{first} UNION ALL ({with_ctes(step, term_ctes)})"
        query = with_ctes("SELECT * FROM trained", constant, recursive=True)
        options = self._options()
        return Statement(
            self.model, self.setup, variables, "", query, "plain", "", False, True, options,
            [*self.details, "recursive", *options], {},
        )  # fmt: skip


def _cell(variables: Sequence[Variable], number: int) -> str:
    return f"by_{variables[number].role}.{quoted(variables[number].column)}"


def _value_of(part: Part) -> str:
    """The column that a part computes, under the name that it has."""
    return next(name for name in map(quoted, COLUMNS) if f" AS {name} " in f"{part.text} ")
