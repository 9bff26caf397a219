"""Measured rates into a stack file: one entry is added or replaced, and not a character besides it changes."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError

from ..errors import ToolError
from ..planning.shapes import Served
from ..spec.stack_file import ENVIRONMENT_KEY

INDENTS = ((2, 4, 2), (2, 2, 0), (4, 6, 4), (4, 4, 0), (4, 4, 2))
"""How people indent mappings and lists: the one that gives the file back as it was is taken."""
WIDE = 100_000


def form_of(served: Served, role: str) -> dict[str, Any]:
    """The form of a role's engine, as `measuredOn` has it; parallelism that is not set is left out."""
    spec = next(one for name, one in served.spec.roles.items() if name == role)
    optional = {"pipelineParallel": spec.pipeline_parallel, "dataParallel": spec.data_parallel, "expertParallel": spec.expert_parallel}
    set_ones = {key: value for key, value in optional.items() if value not in {1, False}}
    return {"instanceType": spec.instance_type, "tensorParallel": spec.tensor_parallel, **set_ones, "engine": served.spec.engine}


def write_rate(file: Path, model: int, role: str, rate: Mapping[str, Any]) -> None:
    """Put a rate, by its keys, under `models[model].<role>.measuredRates`, in place of one at the same prompt length.

    Raises ToolError where the file cannot be written without changing its form; it is then left as it was.
    """
    entry = f"measuredRates: [{_flow(rate)}]"
    text = file.read_text(encoding="utf-8")
    for mapping, sequence, offset in INDENTS:
        yaml = YAML()
        yaml.preserve_quotes, yaml.width = True, WIDE
        yaml.indent(mapping=mapping, sequence=sequence, offset=offset)
        try:
            data = yaml.load(text)
        except YAMLError as problem:
            raise ToolError(f"{file.name}: {' '.join(str(problem).split())[:200]}") from None
        if _text(yaml, data) == text:
            break
    else:
        raise ToolError(f"{file.name} would change its form when written; put this under {role} of models[{model}] yourself: {entry}")
    place = _models(data)[model][role]
    rates = place.setdefault("measuredRates", CommentedSeq())
    if not rates:
        rates.fa.set_flow_style()
    kept = next((r for r in rates if r.get("inputTokens") == rate["inputTokens"]), None)
    if kept is None:
        kept = CommentedMap()
        kept.fa.set_flow_style()
        rates.append(kept)
    for key, value in rate.items():
        kept[key] = CommentedMap(value) if isinstance(value, Mapping) else value
        if isinstance(value, Mapping):
            kept[key].fa.set_flow_style()
    file.write_text(_text(yaml, data), encoding="utf-8")


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(one)}" for key, one in value.items()) + "}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _models(data: Any) -> Any:
    config = data.get("config")
    if config is None:
        return data["models"]
    short = ENVIRONMENT_KEY.partition(":")[2]
    return config[ENVIRONMENT_KEY if ENVIRONMENT_KEY in config else short]["models"]


def _text(yaml: Any, data: Any) -> str:
    out = io.StringIO()
    yaml.dump(data, out)
    return out.getvalue()
