"""JSON Schemas: of stack files and catalogue entries for editors, of plans for programs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from .catalog.entries import Engine, Instance, Model
from .catalog.metric_list import MetricList
from .catalog.router import Router
from .document.plan import PlanDocument
from .document.sizing import SizingDocument
from .records import Record, is_always_written, key_of
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
_DOCUMENTS: dict[str, type[Record]] = {"plan": PlanDocument, "size": SizingDocument}
KINDS = ("stack", *_MODELS, *_DOCUMENTS)


class _OfRecords(GenerateJsonSchema):
    """The schema of what is written: a key may be missing where its record says so, whatever has a default in Python."""

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        """An object with the keys of a record."""
        found = super().dataclass_schema(schema)
        found["required"] = [key_of(f.name) for f in fields(schema["cls"]) if is_always_written(f)]
        for key in found["required"]:
            found["properties"][key].pop("default", None)
        return found


def json_schema(kind: str) -> dict[str, Any]:
    """The schema of a stack file, a bare environment, a catalogue entry, or of what `plan STACK` and `size` print with `--format json`.

    In a stack file everything outside the environment belongs to Pulumi and passes.
    """
    if kind in _DOCUMENTS:
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", **TypeAdapter(_DOCUMENTS[kind]).json_schema(schema_generator=_OfRecords)}
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
