"""JSON Schemas: of stack files and catalogue entries for editors, of plans for programs."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from .catalog.entries import Engine, Instance, Model
from .catalog.metric_list import MetricList
from .catalog.router import Router
from .spec import EnvironmentSpec
from .spec.stack_file import ENVIRONMENT_KEY

_MODELS: dict[str, type[BaseModel]] = {
    "environment": EnvironmentSpec,
    "model": Model,
    "instance": Instance,
    "engine": Engine,
    "router": Router,
    "metrics": MetricList,
}
PLAN = "plan"
KINDS = ("stack", *_MODELS, PLAN)


def json_schema(kind: str) -> dict[str, Any]:
    """The schema of a stack file, a bare environment, a catalogue entry, or of what `plan STACK --format json` prints.

    In a stack file everything outside the environment belongs to Pulumi and passes.
    """
    if kind == PLAN:
        from .comparison.keys import PlanKeys  # noqa: PLC0415 (nothing else here needs it)

        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **PlanKeys.model_json_schema(by_alias=True)}
    if kind != "stack":
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_MODELS[kind].model_json_schema(by_alias=True)}
    environment = EnvironmentSpec.model_json_schema(by_alias=True)
    definitions = environment.pop("$defs")
    definitions["EnvironmentSpec"] = environment
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Stack file of disagg-serving",
        "type": "object",
        "properties": {
            "config": {
                "type": "object",
                "properties": {
                    ENVIRONMENT_KEY: {"$ref": "#/$defs/EnvironmentSpec"},
                    "aws:region": {"type": "string", "description": "AWS region."},
                },
                "additionalProperties": True,
            }
        },
        "additionalProperties": True,
        "$defs": definitions,
    }
