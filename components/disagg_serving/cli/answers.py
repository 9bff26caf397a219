"""Each answer to `disagg init` by itself: refused with SpecError by the checks of every other command, in the words of its options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..catalog import load_catalog
from ..errors import Finding, Level, SpecError, ToolError
from ..rules import NO_STACK, StackContext
from ..rules.evaluation import evaluate
from ..spec import EnvironmentSpec
from ..spec.validation import try_parse


def model(answer: str) -> None:
    """Refuse what names no model of the catalogue, by id or by its repository on Hugging Face."""
    catalog = load_catalog()
    if catalog.known_model(answer) is None:
        raise SpecError([catalog.unknown_model("model", answer)])


def instance(answer: str) -> None:
    """Refuse what is no instance type of the catalogue."""
    instances = load_catalog().instances
    if answer not in instances:
        raise SpecError([instances.missing("instanceType", answer)])


def stack_name(answer: str) -> None:
    """Refuse a name that the environment of a stack cannot have, which is called by it and which names in AWS begin with."""
    about = [f for f in try_parse(EnvironmentSpec, {"name": answer}).findings if f.path == "name"]
    if about:
        raise ToolError(f"{answer} is no name of a stack (allowed: {'; '.join(f.allowed for f in about)}): names in AWS begin with it")


def region(answer: str) -> None:
    """Refuse a name that no zones could begin with."""
    try:
        zones([f"{answer}a", f"{answer}b"], answer)
    except SpecError:
        allowed = "the name of a region, for example us-east-1"
        raise SpecError([Finding("schema", Level.ERROR, "aws:region", "has a form that is not possible", answer, allowed)]) from None


def zones(answer: Sequence[str], of: str) -> None:
    """Refuse zones in which no network of this region can be made."""
    _check("network.zones", {"network": {"zones": list(answer)}}, {}, StackContext(of))


def reservations(answer: Sequence[str], instance_type: str) -> None:
    """Refuse what cannot be ids of reservations; none are right as well."""
    capacity = {"type": "reserved", "reservationIds": list(answer), "nodes": 1}
    if answer:
        _check("reservationIds", {}, {"instanceType": instance_type, "capacity": capacity})


def tokens(model_id: str, max_model_len: int | None, input_tokens: int, output_tokens: int = 1) -> None:
    """Refuse a mean request that is longer than the longest that the model, or --max-model-len, allows."""
    facts = load_catalog().known_model(model_id)
    if facts is None:
        return
    context = facts.context_length
    most = min(max_model_len or context, context)
    if input_tokens + output_tokens <= most:
        return
    limit = f"--max-model-len {most}" if max_model_len and max_model_len < context else f"the context of {model_id}"
    longer, rest = ("--input-tokens", "answer") if input_tokens >= output_tokens else ("--output-tokens", "prompt")
    shorter, value = sorted((input_tokens, output_tokens))
    message = f"and {shorter} tokens of {rest} are longer than {limit}"
    allowed, fix = f"at most {most} tokens together", "say the mean of one request"
    raise SpecError([Finding("max-model-len", Level.ERROR, longer, message, value, allowed, fix)])


def between(least: float, most: float | None = None) -> Callable[[float], None]:
    """Refuses numbers outside of two bounds."""

    def check(answer: float) -> None:
        if answer < least or (most is not None and answer > most):
            raise ToolError(f"{answer} is not possible (allowed: {least} {'or more' if most is None else f'to {most}'})")

    return check


def _check(place: str, environment: dict[str, Any], role: dict[str, Any], stack: StackContext = NO_STACK) -> None:
    """Raise SpecError with the errors about a place of an otherwise plain environment."""
    server = {"instanceType": next(iter(load_catalog().instances)), "replicas": 1, **role}
    served = {"name": "new", "model": next(iter(load_catalog().models)), "server": server}
    found = evaluate({"name": "new", "models": [served], **environment}, Path.cwd(), stack).findings
    about = [f for f in found if f.level is Level.ERROR and place in f.path]
    if about:
        raise SpecError(about)
