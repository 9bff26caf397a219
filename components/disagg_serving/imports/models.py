"""From engines to one entry of `models`: flags that are fields become fields, the others extraArgs, those of the project are left out."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from ..catalog import Catalog
from ..catalog.verdicts import variable as verdict_of_variable
from ..catalog.verdicts import verdict_of
from ..credentials import carries_secret
from ..phrases import say
from ..planning.arguments import read
from ..planning.command_line import OF_MODEL, OF_ROLE, OWNED
from ..rules.checks.extra_arguments import is_secret
from ..spec import ModelSpec, RoleSpec
from ..spec.base import model_in
from ..spec.validation import by_alias
from .arguments import DYNAMO_FLAGS, Given, argument, read_arguments, value_of
from .found import HF_TOKENS, Engine, Found, Kind, Variable
from .shell import Word

NIXL = "NixlConnector"
_MODEL_FIELDS = {f.flag.name: f for f in OF_MODEL}
_ROLE_FIELDS = {f.flag.name: f for f in OF_ROLE}
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_FIELDS = {**_MODEL_FIELDS, **_ROLE_FIELDS}
_SECRETS = {"--api-key": "api_key", "--hf-token": "hf_token"}
_CONNECTOR = frozenset({"kv_connector", "kv_role", "kv_connector_extra_config", "kv_buffer_device"})
_POLICY = ("kv_load_failure_policy", "fail")
"""What is generated as well: planning/command_line.py."""
TRANSFER, _ALL2ALL = "--kv-transfer-config", "VLLM_ALL2ALL_BACKEND"
_DYNAMO_VARIABLES = ("DYN_", "NIXL_TELEMETRY_")
_OF_CHARTS = frozenset({"GAIE_RELEASE_NAME_POSTFIX", "NAMESPACE", "POD_IP", "POD_NAME", "NODE_NAME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE"})


@dataclass
class Side:
    """One engine with its arguments taken apart."""

    engine: Engine
    model: str
    given: list[Given]
    role: dict[str, Any] = field(default_factory=dict)
    shared: dict[str, Any] = field(default_factory=dict)
    """Values of fields that are the model's, by place."""
    arguments: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    stray: list[Word] = field(default_factory=list)
    """Words of the command line that belong to no flag."""
    lines: dict[str, int] = field(default_factory=dict)
    """Where an argument or variable stands in the file."""


def take_apart(engine: Engine) -> Side:
    """The arguments of an engine, its model and its role as far as its connector tells."""
    plain, given = read_arguments(engine)
    plain.sort(key=lambda word: bool(word.lacks))
    named = next((one.text for one in reversed(given) if one.flag == "--model" and one.text), "")
    first = plain[0] if plain and not named and not (plain[0].lacks and engine.model) else None
    model = named or (first.text if first else engine.model)
    served = next((one.text.split()[0] for one in reversed(given) if one.flag == "--served-model-name" and one.text and one.text.strip()), "")
    if model.startswith(("/", ".")) and _REPOSITORY.fullmatch(served):
        # weights in a folder of the pod, served under the repository's name
        model = served
    side = Side(engine, model, [one for one in given if one.flag != "--model"], stray=[word for word in plain if word is not first])
    if not engine.role:
        mode = next((one.text for one in given if one.flag == "--disaggregation-mode" and one.text), "")
        transfer = next((value for one in given if one.flag == TRANSFER and isinstance(value := value_of(one), dict)), {})
        producer = transfer.get("kv_role") == "kv_producer" or any(one.flag == "--is-prefill-worker" for one in given)
        consumer = transfer.get("kv_role") == "kv_consumer" or any(one.flag == "--is-decode-worker" for one in given)
        engine.role = mode if mode in {"prefill", "decode"} else "prefill" if producer else "decode" if consumer else ""  # type: ignore[assignment]
    return side


def read_side(side: Side, found: Found) -> None:
    """Sort flags and variables of an engine into fields, arguments, and notes."""
    engine = side.engine
    for word in side.stray:
        why = f"depends on {', '.join(word.lacks)}, whose value the file does not settle" if word.lacks else "belongs to no flag"
        found.note(Kind.UNSAID, f"{engine.file}:{word.line}", "a word of the command line", why)
    for one in side.given:
        _read_flag(side, one, found)
    for name, variable in engine.variables.items():
        _read_variable(side, name, variable, found)


def _read_flag(side: Side, one: Given, found: Found) -> None:
    engine, where = side.engine, f"{side.engine.file}:{one.line}"
    ours = _of_project(one.flag)
    if one.flag in _SECRETS:
        setattr(engine, _SECRETS[one.flag], getattr(engine, _SECRETS[one.flag]) or where)
    elif is_secret(one.shown) or (one.text and carries_secret("", one.text)):
        found.note(Kind.UNSAID, where, one.flag, "holds a secret, which no stack file may")
    elif one.flag == TRANSFER:
        _read_connector(side, one, found)
    elif one.lacks and (not ours or one.flag in _FIELDS):
        found.note(Kind.UNSAID, where, one.flag, f"depends on {', '.join(dict.fromkeys(one.lacks))}, whose value the file does not settle")
    elif one.flag in _FIELDS:
        _read_field(side, one, found)
    elif one.flag.startswith("--dyn-") or (one.flag in DYNAMO_FLAGS and engine.dynamo):
        why = "it is Dynamo's own flag; roles, router and parsers follow from the stack file and the catalogue"
        found.note(Kind.REPLACED, where, one.flag, why)
    elif not ours:
        text = argument(one)
        side.arguments.append(text)
        side.lines[text] = one.line
    elif not one.flag.startswith("--no-") or ours[0] not in _FIELDS:
        found.note(Kind.REPLACED, where, one.flag, _instead(ours[0]))


def _read_field(side: Side, one: Given, found: Found) -> None:
    """A flag that a field stands for: the role's, if it has one."""
    if one.flag == "--served-model-name" and one.text and len(names := one.text.split()) > 1:
        why = "a model is served under one name here: the first is taken"
        found.note(Kind.UNSAID, f"{side.engine.file}:{one.line}", one.flag, why)
        one = one._replace(text=names[0])
    if (of_role := _ROLE_FIELDS.get(one.flag)) is not None:
        side.role[of_role.place] = value_of(one)
        return
    place = _MODEL_FIELDS[one.flag].place
    value = value_of(one)
    if one.keys:
        before = side.shared.get(place)
        value = {**(before if isinstance(before, dict) else {}), one.keys: int(value) if isinstance(value, str) and value.isdigit() else value}
    side.shared[place] = value
    side.lines[place] = one.line


def _of_project(flag: str) -> list[str]:
    """The options behind a flag that the project sets, or that would take away what it relies on."""
    options = [one.option for one in read("", flag)]
    return [name for name in options if name in OWNED or ((about := verdict_of(name)) is not None and about.verdict == "breaks")]


def _instead(flag: str) -> str:
    about = verdict_of(flag)
    other = OWNED.get(flag) or (say(about.instead) if about is not None else "")
    return f"to change it, {other}" if other else "the flag is generated, or not needed"


def _read_connector(side: Side, one: Given, found: Found) -> None:
    where = f"{side.engine.file}:{one.line}"
    value = value_of(one)
    if one.keys or not isinstance(value, dict):
        found.note(Kind.REPLACED, where, one.shown, _instead(TRANSFER))
        return
    connector = str(value.get("kv_connector", ""))
    if connector != NIXL and connector.isidentifier():
        found.note(
            Kind.UNSAID,
            where,
            f"{one.flag} {connector}",
            "KV moves from prefill to decode by NixlConnector over LIBFABRIC; other connectors have no field",
        )
        return
    if not side.engine.role:
        return
    found.note(Kind.REPLACED, where, one.flag, "NixlConnector with backend LIBFABRIC and the role's kv_role is generated")
    for key in value:
        if key not in _CONNECTOR and (key, value[key]) != _POLICY:
            found.note(
                Kind.UNSAID, where, f"{one.flag} {key if key.isidentifier() else 'a key'}", "is not taken: the connector's settings are generated"
            )


def _read_variable(side: Side, name: str, variable: Variable, found: Found) -> None:
    shown = name if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and not carries_secret("", name) else "a variable"
    if variable.source == "secret" or carries_secret(name, variable.text) or name in HF_TOKENS:
        found.note(
            Kind.UNSAID, variable.where, shown, "holds a secret, which no stack file may; only the Hugging Face token and an API key have a place"
        )
    elif name == _ALL2ALL and variable.text:
        side.role["all2allBackend"] = variable.text
    elif ((about := verdict_of_variable(name)) is not None and about.verdict == "ours") or name in _OF_CHARTS:
        found.note(Kind.REPLACED, variable.where, shown, "the variable is generated, or not needed")
    elif name.startswith(_DYNAMO_VARIABLES):
        found.note(Kind.REPLACED, variable.where, shown, "it belongs to Dynamo's runtime")
    elif variable.source or variable.lacks or not variable.text:
        why = (
            "has no value in the file"
            if not variable.source and not variable.lacks
            else "takes its value from elsewhere; `extraEnv` holds plain values"
        )
        found.note(Kind.UNSAID, variable.where, shown, why)
    elif shown != name:
        found.note(Kind.UNSAID, variable.where, shown, "is no name of an environment variable")
    else:
        side.variables[name] = variable.text
        side.lines[name] = int(variable.where.rpartition(":")[2])


def build_model(name: str, sides: list[Side], catalog: Catalog, found: Found) -> dict[str, Any]:
    """The entry of `models` for one engine, or for prefill and decode; instance types are added later."""
    repository = sides[0].model
    known = next((m for m in catalog.models.values() if m.repository.lower() == repository.lower()), None)
    model: dict[str, Any] = {"name": name, "model": known.id if known else _id_of(repository)}
    if known is None or known.repository != repository:
        model["repository"] = repository
    for place, value in _shared(sides, found).items():
        if place == "servedModelName" and value == name:
            continue
        here, (*above, last) = model, place.split(".")
        for step in above:
            here = here.setdefault(step, {})
        here[last] = _speculative(value, sides[-1], found) if place == "speculative" else value
    for side in sides:
        role = {"instanceType": "", **({"replicas": side.engine.replicas} if side.engine.replicas != 1 else {})}
        if model.get("gpuMemoryUtilization") is not None and side.role.get("gpuMemoryUtilization") == model["gpuMemoryUtilization"]:
            side.role.pop("gpuMemoryUtilization")
        role |= {place: value for place, value in side.role.items() if value is not False and value != _default(place)}
        model[side.engine.role or "server"] = role
    serve_flags = set(known.serve_flags) if known else set()
    _spread(model, sides, serve_flags)
    if any(side.engine.hf_token for side in sides):
        model.setdefault("weights", {})["tokenKey"] = "hfToken"
    if any(side.engine.api_key for side in sides):
        model.setdefault("gateway", {})["apiKeySecret"] = "apiKey"
    return model


def _default(place: str) -> Any:
    info = next((f for n, f in RoleSpec.model_fields.items() if (f.alias or n) == place), None)
    return info.default if info is not None and place != "tensorParallel" else None


def _id_of(repository: str) -> str:
    """An id that an entry of the catalogue for this model could have."""
    return re.sub(r"[^a-z0-9._-]+", "-", repository.rstrip("/").rsplit("/", 1)[-1].lower()).strip("-._") or "model"


def _shared(sides: list[Side], found: Found) -> dict[str, Any]:
    """What the roles say about fields of the model; where they differ, the last side's counts, which is decode's."""
    values: dict[str, Any] = {}
    for side in sides:
        for place, value in side.shared.items():
            if place in values and values[place] != value:
                where = f"{side.engine.file}:{side.lines.get(place, side.engine.line)}"
                found.note(Kind.UNSAID, where, place, "differs between prefill and decode, and is the model's here: decode's value counts")
            if value is not False:
                values[place] = value
    shares = [side.role.get("gpuMemoryUtilization") for side in sides]
    if shares[0] is not None and all(share == shares[0] for share in shares):
        values["gpuMemoryUtilization"] = shares[0]
    return values


def _speculative(value: Any, side: Side, found: Found) -> Any:
    """A speculative configuration with the keys that the stack file has."""
    kind = model_in(ModelSpec.model_fields["speculative"].annotation)
    if not isinstance(value, dict) or kind is None:
        return value
    known = {key for name, one in kind.model_fields.items() for key in (name, one.alias or name)}
    for key in value:
        if key not in known:
            where = f"{side.engine.file}:{side.lines.get('speculative', side.engine.line)}"
            shown = key if isinstance(key, str) and key.isidentifier() else "a key"
            found.note(Kind.UNSAID, where, f"--speculative-config {shown}", "has no field in `speculative`")
    return by_alias(kind, {key: one for key, one in value.items() if key in known})


def _spread(model: dict[str, Any], sides: list[Side], serve_flags: set[str]) -> None:
    """What all sides say about flags and variables is the model's, the rest the role's."""
    common = [a for a in dict.fromkeys(sides[0].arguments) if all(a in side.arguments for side in sides)]
    shared = {n: v for n, v in sides[0].variables.items() if all(side.variables.get(n) == v for side in sides)}
    for side in sides:
        role = model[side.engine.role or "server"]
        own = [a for a in dict.fromkeys(side.arguments) if a not in common and a not in serve_flags]
        variables = {n: v for n, v in side.variables.items() if n not in shared}
        if own:
            role["extraArgs"] = own
        if variables:
            role["extraEnv"] = variables
    if kept := [a for a in common if a not in serve_flags]:
        model["extraArgs"] = kept
    if shared:
        model["extraEnv"] = shared
