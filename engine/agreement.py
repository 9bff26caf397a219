"""Our rules and the real engine side by side: `python -m engine.agreement` writes docs/engine-agreement.md.

Each input is checked as a stack file would be, and the command line that it would make goes through the engine's parser and configuration
checks. Where the two differ, the grid says why, with the source; a difference that nobody explains is a fault of this project.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from disagg_serving.catalog import Catalog
from disagg_serving.corrections import corrected
from disagg_serving.errors import Level
from disagg_serving.place import Place
from disagg_serving.planning.layout import resolve
from disagg_serving.planning.shapes import Group, Served, build_group
from disagg_serving.rules import rules
from disagg_serving.rules.evaluation import evaluate
from disagg_serving.rules.form import FORM_CHECKS
from disagg_serving.spec import EnvironmentSpec
from disagg_serving.spec.serving import RoleName
from disagg_serving.spec.validation import try_parse

from .build import PARSERS, ROOT, Engine
from .cases import CommandLine, Verdict, ask, command_lines
from .grids import ELSEWHERE, H100, Grid, Probe, grids

PAGE = ROOT / "docs/engine-agreement.md"
CATALOG = Catalog()
GRIDS = grids(tuple(CATALOG.models))
IMAGES = {"0.33.0": "vllm-0.33.0-efa", "0.27.1": "vllm-0.27.1-dlc"}
"""The catalogue's engine of each version that is asked."""
SHOWN = 90
_NOISE = re.compile(r"^\w+Error: (1 validation error for \w+ (Value error, )?)?")
SIZES = frozenset(r.id for r in rules() if r.judges in {"memory", "nodes"})
"""Rules about the size of an engine, which stand in for no refusal of a parser."""


@dataclass(frozen=True)
class Row:
    """One input with both verdicts: the rules that refuse it here, and what the engine says."""

    grid: Grid
    probe: Probe
    ours: tuple[str, ...]
    theirs: Verdict

    @property
    def refused(self) -> bool:
        """Whether the rule of the grid refuses it, or what else is said instead."""
        return bool(set(self.ours) & ({self.grid.rule} | FORM_CHECKS.keys()))

    @property
    def agrees(self) -> bool:
        """What the engine takes the rule takes; what the engine refuses something here refuses."""
        return not self.refused if self.theirs.accepted else bool(set(self.ours) - SIZES)

    @property
    def explanation(self) -> str:
        """Why the two differ, or nothing."""
        return "" if self.agrees else self.grid.why(self.probe)


def rows(engine: Engine, folder: Path) -> list[Row]:
    """All inputs with both verdicts."""
    asked = [(grid, probe, environment(probe, engine.version)) for grid in GRIDS for probe in grid.probes]
    lines = [_line(f"{grid.rule}: {probe.what}", probe, data) for grid, probe, data in asked]
    return [Row(grid, probe, _refusals(data), verdict) for (grid, probe, data), verdict in zip(asked, ask(engine, lines, folder), strict=True)]


def environment(probe: Probe, version: str) -> dict[str, Any]:
    """The environment that a person would write."""
    role = {"instanceType": H100, **probe.role}
    roles = {"prefill": role, "decode": role} if probe.split else {"server": role}
    network = {"zones": ["us-east-1a", "us-east-1b"]}
    return {"name": "asked", "cluster": {}, "network": network, "models": [{"name": "m", "engine": IMAGES[version], **probe.model, **roles}]}


def _refusals(data: dict[str, Any]) -> tuple[str, ...]:
    found = (f.id for f in evaluate(data, ROOT).findings if f.level is Level.ERROR and f.path.startswith("models"))
    return tuple(sorted(set(found)))


def _line(name: str, probe: Probe, data: dict[str, Any]) -> CommandLine:
    """The command line of the input: of decode where there are two roles, with the flags that no field can hold."""
    parsed = try_parse(EnvironmentSpec, _writable(data))
    assert parsed.spec is not None  # noqa: S101 (only the probes' values can be wrong)
    (one,), _ = resolve(parsed.spec, CATALOG, ROOT)
    line = next(command_lines(name, [_group(one)]))
    argv = [a for a in line.argv if a.split("=", 1)[0] not in probe.swap] + [f"{flag}={value}" for flag, value in probe.swap.items()]
    return replace(line, argv=tuple(argv))


def _writable(data: dict[str, Any]) -> dict[str, Any]:
    """The environment without the values that its form refuses."""
    while faults := [f.path for f in try_parse(EnvironmentSpec, data).findings if f.level is Level.ERROR]:
        place = Place.parse(faults[0])
        whole = place.steps.index("speculative") + 1 if "speculative" in place.steps else None
        data = corrected(data, {str(Place(place.steps[:whole])): None})
    return data


def _group(served: Served) -> Group:
    name: RoleName = "decode" if served.spec.disaggregated else "server"
    return build_group(served, name, served.spec.roles[name], None, pools_made=False)


def unexplained(found: Iterable[Row]) -> list[str]:
    """Differences that nobody explains, one line each."""
    return [
        f"{r.grid.rule}: {r.probe.what}: ours {', '.join(r.ours) or 'takes it'}, theirs {r.theirs.stage} {r.theirs.reason}"
        for r in found
        if not r.agrees and not r.explanation
    ]


def page(answers: dict[str, list[Row]], day: str) -> str:
    """The report: a table of all rules, then each input of each rule."""
    first = next(iter(answers.values()))
    versions = list(answers)
    lines = [
        "# Rules and the real engine",
        "",
        f"Written on {day} by `make agreement` from the parser and the configuration checks of vLLM {' and '.join(versions)}; not by hand.",
        "Each input is checked as a stack file would be, and the command line that it makes is given to the engine.",
        "An input agrees when the engine takes what the rule takes and something here refuses what the engine refuses; the refusals of",
        "memory and placement do not count. Other rules that refuse an input stand beside it, and are judged in tables of their own. What differs",
        "is explained below its table; `explained` counts both versions.",
        "",
        f"| rule | inputs | {' | '.join(f'agree with {v}' for v in versions)} | explained | unexplained |",
        f"|---|---|{'---|' * len(versions)}---|---|",
    ]
    for grid in GRIDS:
        mine = {v: [r for r in found if r.grid.rule == grid.rule] for v, found in answers.items()}
        agree = [sum(r.agrees for r in mine[v]) for v in versions]
        every = [r for found in mine.values() for r in found]
        told = sum(bool(r.explanation) for r in every)
        lines.append(f"| `{grid.rule}` | {len(grid.probes)} | {' | '.join(map(str, agree))} | {told} | {len(unexplained(every))} |")
    total = [sum(r.agrees for r in found) for found in answers.values()]
    every = [r for found in answers.values() for r in found]
    lines += [f"| all | {len(first)} | {' | '.join(map(str, total))} | {sum(bool(r.explanation) for r in every)} | {len(unexplained(every))} |", ""]
    lines += [line for grid in GRIDS for line in _section(grid, answers)]
    lines += ["## Not asked", "", "Rules that speak of vLLM and that no parser can answer for:", "", "| rule | why |", "|---|---|"]
    lines += [f"| `{rule}` | {why} |" for rule, why in sorted(ELSEWHERE.items())]
    return "\n".join(lines) + "\n"


def _section(grid: Grid, answers: dict[str, list[Row]]) -> Iterator[str]:
    yield from (f"## {grid.rule}", "", f"| input | here | {' | '.join(f'vLLM {v}' for v in answers)} |", f"|---|---|{'---|' * len(answers)}")
    columns = [[r for r in found if r.grid.rule == grid.rule] for found in answers.values()]
    for of_probe in zip(*columns, strict=True):
        here = list(dict.fromkeys(", ".join(r.ours) or "takes it" for r in of_probe))
        yield f"| {_cell(of_probe[0].probe.what)} | {' / '.join(here)} | {' | '.join(_told(r) for r in of_probe)} |"
    yield ""
    reasons: dict[str, list[str]] = {}
    for row in (r for of_probe in zip(*columns, strict=True) for r in of_probe if r.explanation):
        if row.probe.what not in reasons.setdefault(row.explanation, []):
            reasons[row.explanation].append(row.probe.what)
    yield from (f"- {', '.join(inputs)}: {reason}" for reason, inputs in reasons.items())
    yield from ([""] if reasons else [])


def _told(row: Row) -> str:
    mark = "" if row.agrees else " (explained)" if row.explanation else " **unexplained**"
    said = _NOISE.sub("", row.theirs.reason).partition(" [type=")[0][:SHOWN]
    return ("takes it" if row.theirs.accepted else f"refuses ({row.theirs.stage}): {_cell(said)}") + mark


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")


def main(argv: Sequence[str]) -> int:
    """Write the page; 1 when a difference is not explained. `--show` prints the differences too."""
    with tempfile.TemporaryDirectory() as folder:
        answers = {engine.version: rows(engine, Path(folder)) for engine in PARSERS}
    PAGE.write_text(page(answers, datetime.now(tz=UTC).date().isoformat()), encoding="utf-8")
    faults = [f"vLLM {version}: {line}" for version, found in answers.items() for line in unexplained(found)]
    print("\n".join(faults))
    if "--show" in argv:
        print(Counter((r.grid.rule, r.agrees, bool(r.explanation)) for found in answers.values() for r in found))
    print(f"wrote {PAGE.relative_to(ROOT)}: {sum(map(len, answers.values()))} inputs, {len(faults)} unexplained differences")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
