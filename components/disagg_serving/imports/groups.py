"""Which engines serve one model together: one alone, or prefill and decode."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import Finding, SpecError
from ..spec.base import DNS_LABEL
from .found import Engine
from .models import TRANSFER, Side, take_apart
from .pods import ROLES, role_in
from .source import refuse

_LONGEST = 40


def grouped(engines: Iterable[Engine]) -> list[list[Side]]:
    """The engines by model, prefill before decode. Raises SpecError where it is not clear which of them belong together."""
    findings: list[Finding] = []
    by_model: dict[str, list[Side]] = {}
    for side in map(take_apart, engines):
        if not side.model or any(c.isspace() or c in "$<>" for c in side.model):
            findings += refuse(side.engine.where, f"{side.engine.name} names no model", allowed="a model behind `vllm serve`, or --model").findings
        else:
            by_model.setdefault(side.model, []).append(side)
    groups = []
    for model, sides in by_model.items():
        findings += _roles(model, sides)
        groups.append(sorted(sides, key=lambda side: side.engine.role))
        # decode counts where both differ, so it comes last
        groups[-1].sort(key=lambda side: side.engine.role == "decode")
    if findings:
        raise SpecError(findings)
    return groups


def _roles(model: str, sides: list[Side]) -> list[Finding]:
    """Say which role each engine of a model has; findings where that is not possible."""
    engines = [side.engine for side in sides]
    if len(engines) == 1:
        only = engines[0]
        # llm-d calls an engine that serves alone decode
        connected = only.dynamo or any(one.flag == TRANSFER for one in sides[0].given)
        if only.role not in ROLES or not connected:
            only.role = "server"
            return []
        missing = "decode" if only.role == "prefill" else "prefill"
        message = f"{only.name} is {only.role} of {model}, and nothing is its {missing}"
        return refuse(only.where, message, allowed="both, in one file or several", fix="give the other's file, too").findings
    for engine in engines:
        engine.role = engine.role or role_in(engine.name)
    if sorted(engine.role for engine in engines) == sorted(ROLES):
        return []
    named = ", ".join(f"{e.name} ({e.where}{', ' + e.role if e.role else ''})" for e in engines)
    message = f"is one of {len(engines)} deployments of {model}: {named}"
    return refuse(engines[0].where, message, allowed="one, or one prefill and one decode", fix="import one deployment at a time").findings


def name_of(sides: list[Side], taken: set[str]) -> str:
    """A free name for the model's objects: what it is served as, if that is one, else its repository's."""
    served = next((str(side.shared["servedModelName"]) for side in sides if side.shared.get("servedModelName")), "")
    text = served if re.fullmatch(DNS_LABEL, served) and len(served) <= _LONGEST else sides[0].model.rstrip("/").rsplit("/", 1)[-1]
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST].strip("-")
    name = name if name[:1].isalpha() else f"m-{name}".rstrip("-")
    free = next(one for one in (name, *(f"{name}-{n}" for n in range(2, len(taken) + 3))) if one not in taken)
    taken.add(free)
    return free
