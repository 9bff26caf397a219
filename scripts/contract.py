"""What others build on besides what is deployed: public names, arguments and outputs of components, keys of stack files and of plans.

An entry stands under its path, with the kinds of its value, the values where they are listed, and whether it must be there.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import pulumi
from disagg_serving import resources
from disagg_serving.resources import lws, spec_args
from disagg_serving.schemas import json_schema
from disagg_serving.spec.stack_file import NAMESPACE

FILE = "contract.json"
"""What a kept release says of it, in its folder."""
NAMES, COMPONENTS, STACK, PRINTED, CHARTS = "library", "component", "stack file", "plan", "chart"
"""The parts of a contract, as the rows of docs/upgrade name them."""
OF_PACKAGE = f"#/types/{NAMESPACE}:index:"
CHART_TYPES = (lws.CRD, *lws.WEBHOOKS, lws.SECRET)

Entry = dict[str, Any]
Contract = dict[str, dict[str, Entry]]
Resolve = Callable[[str], Mapping[str, Any] | None]


@cache
def contract() -> Contract:
    """The contract of today's code. Takes seconds: the plugin's schema needs the large AWS module."""
    stack, plan = json_schema("stack"), json_schema("plan")
    return {
        NAMES: dict(_names()),
        COMPONENTS: dict(_components()),
        STACK: dict(entries(stack, _definitions(stack))),
        PRINTED: dict(entries(plan, _definitions(plan))),
        CHARTS: {type_token: _kept(type_token) for type_token in CHART_TYPES},
    }


def as_text(found: Contract) -> str:
    """A contract as JSON with an entry a line."""
    parts = []
    for part, listed in found.items():
        lines = [f"{json.dumps(path)}:{json.dumps(entry, separators=(',', ':'))}" for path, entry in listed.items()]
        parts.append(f"{json.dumps(part)}:{{\n" + ",\n".join(lines) + "\n}")
    return "{" + ",\n".join(parts) + "}\n"


def _names() -> Iterator[tuple[str, Entry]]:
    for name in resources.__all__:
        found = getattr(resources, name)
        if not inspect.isclass(found):
            yield from _function(name, found)
            continue
        yield name, {"kinds": ["class"]}
        if issubclass(found, pulumi.ComponentResource):
            for member, value in vars(found).items():
                if not member.startswith("_") and inspect.isfunction(value):
                    yield from _function(f"{name}.{member}", value)
            yield from ((f"{name}.{member}", {"kinds": ["output"]}) for member in found.__annotations__)
    yield from ((f"spec_args.{name}", {"kinds": ["class"]}) for name in spec_args.__all__)


def _function(name: str, function: Callable[..., object]) -> Iterator[tuple[str, Entry]]:
    yield name, {"kinds": ["function"]}
    for parameter in inspect.signature(function).parameters.values():
        yield f"{name} {parameter.name}", {"kinds": ["argument"], **({"required": True} if parameter.default is parameter.empty else {})}


def _components() -> Iterator[tuple[str, Entry]]:
    from disagg_serving.resources.plugin import Plugin  # noqa: PLC0415 (it imports the large AWS module)

    schema = json.loads(Plugin().schema)
    for token, found in schema["resources"].items():
        name = token.rsplit(":", 1)[1]
        yield name, {"kinds": ["component"]}
        given = {"properties": found.get("inputProperties", {}), "required": found.get("requiredInputs", [])}
        yield from entries(given, _nowhere, f"{name} argument ")
        yield from entries({**found, "properties": found.get("properties", {})}, _nowhere, f"{name} output ")
    for token, found in schema["types"].items():
        yield from entries(found, _nowhere, f"{token.rsplit(':', 1)[1]} ")


def _kept(type_token: str) -> Entry:
    """What our transform of a chart gives its objects: what outlives a destroy, and what only the controller writes."""
    result = lws.keep_and_ignore(pulumi.ResourceTransformArgs(True, type_token, "x", {}, pulumi.ResourceOptions()))
    opts = result.opts if result else pulumi.ResourceOptions()
    return {"retainOnDelete": bool(opts.retain_on_delete), "ignoreChanges": sorted(map(str, opts.ignore_changes or ()))}


def _nowhere(_: str) -> None:
    """The types of a Pulumi schema have names that SDKs show: each is listed by itself."""


def _definitions(schema: Mapping[str, Any]) -> Resolve:
    return lambda reference: schema["$defs"].get(reference.rpartition("/")[2])


def entries(schema: Mapping[str, Any], resolve: Resolve, path: str = "", above: tuple[str, ...] = ()) -> Iterator[tuple[str, Entry]]:
    """The keys of a JSON Schema, or of one of Pulumi's, with the keys inside them: `models[].prefill`, `resources[].inputs.*`."""
    for one, seen in _alternatives(schema, resolve, above):
        required = one.get("required", ())
        for key, value in one.get("properties", {}).items():
            here = f"{path}{key}"
            yield here, _entry(value, resolve, required=key in required)
            yield from entries(value, resolve, f"{here}.", seen)
        for key, below in (("items", f"{path.removesuffix('.')}[]."), ("additionalProperties", f"{path}*.")):
            if isinstance(one.get(key), Mapping):
                yield from entries(one[key], resolve, below, seen)


def _alternatives(schema: Mapping[str, Any], resolve: Resolve, above: tuple[str, ...]) -> Iterator[tuple[Mapping[str, Any], tuple[str, ...]]]:
    """What a value may be, references followed; a type inside itself is not entered again."""
    reference = schema.get("$ref")
    found = resolve(reference) if reference else None
    if found is not None and reference not in above:
        yield from _alternatives(found, resolve, (*above, str(reference)))
    elif inside := [*schema.get("anyOf", ()), *schema.get("oneOf", ()), *schema.get("allOf", ())]:
        for one in inside:
            yield from _alternatives(one, resolve, above)
    else:
        yield schema, above


def _entry(schema: Mapping[str, Any], resolve: Resolve, *, required: bool) -> Entry:
    options = [one for one, _ in _alternatives(schema, resolve, ())]
    kinds = sorted({_kind(one, resolve) for one in options})
    # a plain argument of a component takes no Output
    entry: Entry = {"kinds": kinds} | ({"required": True} if required else {}) | ({"plain": True} if schema.get("plain") else {})
    listed = [one["enum"] if "enum" in one else [one["const"]] if "const" in one else None for one in options if one.get("type") != "null"]
    return entry | {"values": sorted((v for values in listed for v in values or ()), key=str)} if listed and None not in listed else entry


def _kind(one: Mapping[str, Any], resolve: Resolve) -> str:
    if "$ref" in one:
        return re.sub(r"/v[\d.]+/", "/", str(one["$ref"]).removeprefix(OF_PACKAGE))  # a newer SDK's class is the same to a program
    inner = one.get("items") or one.get("additionalProperties")
    of = f" of {'|'.join(sorted({_kind(i, resolve) for i, _ in _alternatives(inner, resolve, ())}))}" if isinstance(inner, Mapping) else ""
    return f"{one.get('type', 'any')}{of}"
