"""docs/reference/engine-options.md: every option of the engine and every variable of its parts with its verdict. Written by scripts/generate.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from disagg_serving.rules.options import MEANS, Option, every_variable, options

from scripts.reference import escaped, page, table

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/reference/engine-options.md"


def options_page() -> str:
    """The page."""
    intro = [
        "What each flag of `vllm serve` means in `extraArgs`, and each environment variable in `extraEnv`, for every version of vLLM in the",
        "catalogue. Other spellings, short flags, underscores, keys after a dot and flags cut short are the same option. `disagg explain --flag",
        "NAME` shows one. A flag of the parser without a verdict fails the tests, so a new engine is not added without a look at each.",
    ]
    verdicts = table(("verdict", "what it comes to"), [(f"`{kind}`", words) for kind, words in MEANS.items()])
    flags, names = options(), every_variable()
    parts = [["## Flags", "", *_tables(flags)], ["## Variables", "", *_tables(names)]]
    return page("Flags and variables of the engine", intro, verdicts, *parts)


def _tables(listed: Sequence[Option]) -> list[str]:
    told = [one for one in listed if one.verdict.verdict != "free" and one.verdict.reason]
    plain = [one.name for one in listed if one.verdict.verdict == "ours" and not one.verdict.reason]
    free = [one.name for one in listed if one.verdict.verdict == "free"]
    rows = [(f"`{one.name}`", one.verdict.verdict, escaped(f"{one.sentence}{_counts(one)}"), _source(one)) for one in told]
    ours = ["", f"Set by the project: {', '.join(f'`{n}`' for n in plain)}."] if plain else []
    return [*table(("name", "verdict", "it", "source"), rows), *ours, "", f"Free ({len(free)}): {', '.join(f'`{n}`' for n in free)}."]


def _counts(one: Option) -> str:
    return f" ({one.verdict.counts}{', counted' if one.verdict.forecast else ''})" if one.verdict.counts else ""


def _source(one: Option) -> str:
    source = one.verdict.source
    return f"[{source.rpartition('/')[2]}]({source})" if source else ""
