"""Flags and variables that the rules refuse: spelt as they propose, or left out with the rule's reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Finding, Level
from ..place import Place
from ..rules.evaluation import Evaluation
from .found import Found, Kind
from .models import Side
from .pods import ROLES

KEYS = ("extraArgs", "extraEnv")
ROUNDS = 6
"""How often is corrected; each round sees what the one before has uncovered."""
_GONE = "\0"
"""Stands for a flag that was left out, so that the places of the others stay as they are."""


def corrected(environment: dict[str, Any], judge: Callable[[dict[str, Any]], Evaluation], groups: list[list[Side]], found: Found) -> Evaluation:
    """Correct flags and variables of an environment in place. The evaluation of what remains."""
    for _ in range(ROUNDS):
        result = judge(environment)
        refused = [f for f in result.findings if f.level is Level.ERROR and _steps(f)]
        if not refused:
            return result
        for finding in refused:
            _correct(environment, finding, groups, found)
        _clean(environment)
    return judge(environment)


def without(value: Any) -> Any:
    """The same without flags and variables."""
    if isinstance(value, dict):
        return {key: without(one) for key, one in value.items() if key not in KEYS}
    return [without(one) for one in value] if isinstance(value, list) else value


def _steps(finding: Finding) -> tuple[Any, ...]:
    """The steps to the flag or variable that a finding is about; none where it is about something else."""
    steps = Place.parse(finding.path).steps
    at = next((i for i, step in enumerate(steps) if step in KEYS), len(steps))
    return steps[: at + 2] if len(steps) > at + 1 else ()


def _correct(environment: dict[str, Any], finding: Finding, groups: list[list[Side]], found: Found) -> None:
    *above, key = _steps(finding)
    here: Any = environment
    for step in above:
        here = here[step]
    listed = isinstance(here, list)
    if (not listed and key not in here) or (listed and here[key] == _GONE):
        return
    name = here[key] if listed else key
    sides = groups[above[1]]
    side = next((one for one in sides if name in one.lines), sides[0])
    where = f"{side.engine.file}:{side.lines.get(name, side.engine.line)}"
    right = next((c[finding.path] for c in finding.corrections if len(c) == 1 and c.get(finding.path) is not None), None)
    shown = name.split("=", 1)[0]
    if listed and isinstance(right, str) and right not in here:
        found.note(Kind.REPLACED, where, shown, f"it is spelt {right.split('=', 1)[0]} in this version of vLLM")
        here[key] = right
        side.lines[right] = side.lines.get(name, side.engine.line)
        return
    found.note(Kind.FAULT, where, shown, f"{finding.message} (rule `{finding.id}`)")
    if listed:
        here[key] = _GONE
    else:
        del here[key]


def _clean(environment: dict[str, Any]) -> None:
    """Take out flags that were left out, and lists and mappings that are empty now."""
    for model in environment["models"]:
        for part in (model, *(model[role] for role in (*ROLES, "server") if role in model)):
            if "extraArgs" in part:
                part["extraArgs"] = [one for one in part["extraArgs"] if one != _GONE]
            for key in KEYS:
                if key in part and not part[key]:
                    del part[key]
