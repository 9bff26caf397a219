"""What each option of the engine, and each variable that its parts read, means for what is generated: flags/options.yaml and variables.yaml."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any, Literal, NamedTuple

from ..yaml_io import read_yaml
from .flags import FOLDER, options_of, versions

Kind = Literal["ours", "free", "counted", "breaks", "pd-refused", "role-only"]


class Verdict(NamedTuple):
    """One option or variable. The fields are those of options.yaml and variables.yaml, where each is explained."""

    verdict: Kind
    reason: str = ""
    source: str = ""
    takes: str = ""
    counts: str = ""
    forecast: bool = False
    passes: tuple[str, ...] = ()
    refuses: tuple[str, ...] = ()
    matches: str = ""
    unless: tuple[str, ...] = ()
    instead: str = ""
    right: str = "without it"
    over_efa: bool = False
    warns: bool = False

    def holds_for(self, value: str) -> bool:
        """Whether it speaks of this value."""
        said = value.strip().lower()
        if self.matches:
            return re.search(self.matches, said) is not None
        return said in self.refuses if self.refuses else said not in self.passes

    @property
    def of_values(self) -> bool:
        """Whether it depends on the value, which then is no secret."""
        return bool(self.matches or self.refuses or self.passes)


FREE, OURS = Verdict("free"), Verdict("ours")


def verdict_of(option: str) -> Verdict | None:
    """The verdict about an option by the flag that names it; None where nobody has looked, or where a field sets it."""
    return _options().get(option)


def every_option() -> list[str]:
    """The options of all versions, by name."""
    return sorted({name for version in versions() for name in options_of(version)})


def variable(name: str) -> Verdict | None:
    """The verdict about an environment variable; None for one that no part of the engine is known to read."""
    return variables().get(name)


def readers() -> dict[str, list[str]]:
    """What each part of an engine reads, by the part's name."""
    listed: dict[str, dict[str, list[str]]] = json.loads((FOLDER / "variables.json").read_text(encoding="utf-8"))["readers"]
    return {name: about["names"] for name, about in listed.items()}


@cache
def variables() -> dict[str, Verdict]:
    """All verdicts about variables."""
    data: dict[str, Any] = read_yaml(FOLDER / "variables.yaml")
    found: dict[str, Verdict] = {str(name): _verdict(about) for name, about in data["variables"].items()}
    free: list[str] = data["free"].split()
    ours: list[str] = data["ours"].split()
    known: dict[str, Verdict] = dict.fromkeys(free, FREE)
    known.update(dict.fromkeys(ours, OURS))
    return known | found


@cache
def _options() -> dict[str, Verdict]:
    data: dict[str, Any] = read_yaml(FOLDER / "options.yaml")
    found: dict[str, Verdict] = {str(name): _verdict(about) for name, about in data["options"].items()}
    free: list[str] = data["free"].split()
    return dict.fromkeys(free, FREE) | found


def _verdict(about: dict[str, Any]) -> Verdict:
    lists: dict[str, Any] = {key: tuple(str(v).lower() for v in about[key]) for key in ("passes", "refuses", "unless") if key in about}
    fields: dict[str, Any] = {"".join(f"_{c.lower()}" if c.isupper() else c for c in key): value for key, value in about.items()}
    return Verdict(**(fields | lists))
