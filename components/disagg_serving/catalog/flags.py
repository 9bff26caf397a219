"""The flags of each engine version as its own parser listed them; written by `python -m engine.flags`, read where extra flags are checked."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..yaml_io import read_yaml

FOLDER = Path(__file__).parent / "engines/flags"


@dataclass(frozen=True)
class Flag:
    """How a flag takes its value: `switch` takes none, `int` and `float` a number, the others a text; `choices` where the parser has a list."""

    kind: str
    choices: tuple[str, ...] = ()


@cache
def flags_of(version: str) -> dict[str, Flag] | None:
    """All flags of a vLLM version by their full spelling, None for a version that nobody has asked."""
    file = FOLDER / f"vllm-{version}.yaml"
    if not file.is_file():
        return None
    return {name: Flag(about["kind"], tuple(about.get("choices", ()))) for name, about in read_yaml(file)["flags"].items()}
