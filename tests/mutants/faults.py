"""The list of deliberate faults, and the sources with all of them in it, of which a variable chooses one."""

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

LIST = Path(__file__).with_name("mutants.txt")
CHOSEN = "XQL_FFI_MUTANT"
# Files: the places that are reached; what each test of Python takes and reaches; which tests to run, in their order;
# which one runs.
REACHED, RECORDED, WANTED, RUNNING = (
    f"XQL_FFI_MUTANTS_{what}" for what in ("REACHED", "RECORDED", "WANTED", "RUNNING")
)
FORGET = "xql_mutants_forget"

# What chooses: the number of the fault is in a variable of the environment, which is read once. The numbers
# of the places that are reached are written to a file, each once until they are forgotten.
CHOOSER = f"""
static SEEN: [std::sync::atomic::AtomicBool; 1000] = [const {{ std::sync::atomic::AtomicBool::new(false) }}; 1000];

/// Whether a deliberate fault is chosen.
pub fn chosen(number: usize) -> bool {{
    static CHOSEN: std::sync::LazyLock<Option<usize>> =
        std::sync::LazyLock::new(|| std::env::var("{CHOSEN}").ok()?.parse().ok());
    *CHOSEN == Some(number)
}}

/// Notes that the place of a deliberate fault is reached.
pub fn reached(number: usize) {{
    use std::io::Write;
    static REACHED: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var("{REACHED}").ok());
    if let Some(path) = &*REACHED
        && !SEEN[number].swap(true, std::sync::atomic::Ordering::Relaxed)
        && let Ok(mut file) = std::fs::OpenOptions::new().create(true).append(true).open(path)
    {{
        let _ = file.write_all(format!("{{number}}\\n").as_bytes());
    }}
}}

/// Whether a deliberate fault is chosen, in its place.
pub fn mutant(number: usize) -> bool {{
    reached(number);
    chosen(number)
}}

/// Forgets which places have been reached.
#[unsafe(no_mangle)]
pub extern "C" fn {FORGET}() {{
    for seen in &SEEN {{
        seen.store(false, std::sync::atomic::Ordering::Relaxed);
    }}
}}
"""

# A line of a table is constant. All lines are in the table, and what reads it leaves those out that are not chosen. The
# table is read once, so the place of a fault counts as reached where a line is looked up.
SWITCHED = """
impl Line {
    const fn only_with(self, mutant: usize) -> Self {
        Self { with: mutant, ..self }
    }

    const fn without(self, mutants: &'static [usize]) -> Self {
        Self { without: mutants, ..self }
    }

    /// Whether this line is the one that is chosen.
    pub fn holds(&self) -> bool {
        (self.with == 0 || CRATE::chosen(self.with)) && !self.without.iter().any(|mutant| CRATE::chosen(*mutant))
    }

    /// Notes that this line is looked up.
    pub fn looked_up(&self) {
        self.without.iter().for_each(|mutant| CRATE::reached(*mutant));
    }
}
"""
FIELDS = "\n    pub with: usize,\n    pub without: &'static [usize],"
READERS = {
    "autodiff/src/lib.rs": [("", CHOOSER)],
    "relations/src/lib.rs": [],
    # What chooses is in a crate that this one does not know otherwise.
    "contraction/src/lib.rs": [],
    "contraction/Cargo.toml": [("[dependencies]", "\nxql-autodiff.workspace = true")],
    "Cargo.lock": [(' "matrixmultiply",\n "tokio",', '\n "xql-autodiff",')],
    "autodiff/src/table/line.rs": [
        ("pub struct Line {", FIELDS),
        ("\n        at_number: None,", "\n        with: 0,\n        without: &[],"),
        ("", SWITCHED.replace("const fn", "pub const fn").replace("CRATE", "crate")),
    ],
    "autodiff/src/table/families.rs": [
        ("FAMILIES.iter().flat_map(|family| family.lines)", ".filter(|line| line.holds())"),
    ],
    "autodiff/src/table/lookup.rs": [
        (".find(|entry| entry.accepts_arity(arity))", ".inspect(|entry| entry.line.looked_up())"),
    ],
    "autodiff/src/table/record_batch.rs": [("family.lines.iter()", ".filter(|line| line.holds())")],
    "relations/src/aggregate_rules/formulas.rs": [
        ("struct Line {", FIELDS),
        ("Line { signature, tangent, ", "with: 0, without: &[], "),
        ("let read = LINES.iter()", ".filter(|line| line.holds())"),
        (
            "fn formula(name: &str, arity: usize) -> Result<Option<&'static TangentFormula>> {",
            "LINES.iter().filter(|line| line.signature.split('(').next() == Some(name)).for_each(Line::looked_up);",
        ),
        ("", SWITCHED.replace("CRATE", "xql_autodiff")),
    ],
}
LINE = re.compile(r"^ +(rule|choice|extremum|line)\(", re.MULTILINE)


@dataclass(frozen=True)
class Fault:
    """A text of a source, and what takes its place."""

    number: int
    part: str
    file: str
    breaks: str
    original: str
    mutated: str
    equivalent: str

    @property
    def condition(self) -> str:
        """The condition that this fault is chosen."""
        crate = "crate" if self.file.startswith("autodiff") else "xql_autodiff"
        return f"{crate}::mutant({self.number})"


def faults() -> list[Fault]:
    """Those of the list, numbered from 1."""
    found: list[Fault] = []
    part, file = "", ""
    _, *blocks = LIST.read_text().split("\n\n")
    for block in blocks:
        lines: dict[str, list[str]] = defaultdict(list)
        for line in block.strip("\n").splitlines():
            if line[0] in "@#-+=" and line[1:2] == " ":
                lines[line[0]].append(line[2:])
            else:
                part = line
        if lines["@"]:
            crate, _, path = lines["@"][0].partition("/")
            file = f"{crate}/src/{path}"
        if lines["-"]:
            breaks, original, mutated, equivalent = ("\n".join(lines[mark]) for mark in "#-+=")
            found.append(Fault(len(found) + 1, part, file, breaks, original, mutated, equivalent.replace("\n", " ")))
    return found


def line_of_table(text: str, start: int, end: int) -> tuple[int, int] | None:
    """Where the line of a table is that has this part of a source, if one has."""
    lines = [match.end() for match in LINE.finditer(text, 0, end)]
    if not lines:
        return None
    first = lines[-1] - len(text[: lines[-1]].rsplit("\n", 1)[1].lstrip())
    depth, quoted, position = 0, False, first
    while depth or text[position] != ",":
        quoted ^= text[position] == '"'
        if not quoted:
            depth += (text[position] in "([{") - (text[position] in ")]}")
        if depth < 0:
            return None
        position += 1
    return (first, position) if first <= start and end <= position else None


def with_faults(file: str, text: str, faults: list[Fault]) -> str:
    """A source with the faults of its file."""
    places: dict[tuple[int, int], list[Fault]] = defaultdict(list)
    for fault in faults:
        if text.count(fault.original) != 1:
            raise SystemExit(f"{file} has this {text.count(fault.original)} times, not once: {fault.original}")
        start = text.index(fault.original)
        end = start + len(fault.original)
        places[line_of_table(text, start, end) or (start, end)].append(fault)
    before = len(text)
    for (start, end), here in sorted(places.items(), reverse=True):
        if end > before:
            raise SystemExit(f"{file}: two faults have a part in common: {here[0].original}")
        before = start
        source = text[start:end]
        if (start, end) == line_of_table(text, start, end):
            lines = [f"({source}).without(&{[fault.number for fault in here]})"]
            for fault in here:
                lines.append(f"({source.replace(fault.original, fault.mutated)}).only_with({fault.number})")
            text = text[:start] + ", ".join(lines) + text[end:]
            continue
        written = source if "$" in here[0].mutated else f"{{ {source} }}"
        for fault in here:
            if "$" in fault.mutated:
                written = fault.mutated.replace("$", fault.condition)
            else:
                written = f"(if {fault.condition} {{ {fault.mutated} }} else {written})"
        text = text[:start] + written + text[end:]
    for anchor, added in READERS.get(file, []):
        if anchor and text.count(anchor) != 1:
            raise SystemExit(f"{file} has this {text.count(anchor)} times, not once: {anchor}")
        text = text.replace(anchor, anchor + added) if anchor else text + added
    return f"#![allow(warnings)]\n{text}" if file.endswith("src/lib.rs") else text
