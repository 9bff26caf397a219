"""From plain data to an EnvironmentSpec, or to every reason why not."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from ..errors import Finding, Level, SpecError, did_you_mean, show
from .base import DNS_LABEL, FORMS, RefusalError
from .environment import EnvironmentSpec

_HOW_TO_KEEP_SECRETS = "set it with `pulumi config set --secret disagg-serving:KEY` and name the key, for example weights.tokenKey"
_REPAIR_ROUNDS = 3
_DEEPEST = 40

S = TypeVar("S", bound=BaseModel)


def parse(model: type[S], data: object) -> S:
    """Validate `data` (a mapping as YAML gives it, or one with snake_case keys) as `model`.

    Raises SpecError with all findings.
    """
    spec, findings = try_parse(model, data)
    if findings or spec is None:
        raise SpecError(findings)
    return spec


def parse_environment(data: object) -> EnvironmentSpec:
    """Validate the mapping below `disagg-serving:environment`. Raises SpecError with all findings."""
    return parse(EnvironmentSpec, data)


def try_parse(model: type[S], data: object) -> tuple[S | None, list[Finding]]:
    """The spec and the findings about its form.

    With findings the spec is what remains when the faulty keys are left out, so that the rules can speak about the rest in the
    same run; None if too much is missing for that.
    """
    if not isinstance(data, Mapping):
        what = "is empty" if data is None else "is not a mapping"
        fix = "start with `models:`; `disagg schema` prints all keys"
        return None, [Finding("schema", Level.ERROR, "", what, data, "a mapping of keys to values", fix)]
    rest: dict[str, Any] = deepcopy(dict(data))
    cleaner = _Cleaner(model)
    cleaner.clean(rest)
    findings, removed = cleaner.findings, cleaner.removed
    for _ in range(_REPAIR_ROUNDS):
        try:
            return model.model_validate(rest), findings
        except ValidationError as problem:
            errors = [e for e in problem.errors(include_url=False) if not any(e["loc"][: len(loc)] == loc for loc in removed)]
        findings += [_finding(model, error, rest) for error in errors]
        removed += [_remove(rest, error["loc"]) for error in errors]
    return None, findings


def path_of(loc: tuple[int | str, ...]) -> str:
    """`("models", 0, "decode")` as `models[0].decode`."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


class _Cleaner:
    """Takes out what no model could describe: encrypted values, keys that are no texts, structures that hold themselves.

    A `secure:` inside the environment would turn the whole key secret while reads return plain text.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model
        self.findings: list[Finding] = []
        self.removed: list[tuple[int | str, ...]] = []
        # what an alias repeats is looked at once: repetitions of repetitions grow without bound
        self._seen: set[int] = set()

    def clean(self, data: Any, loc: tuple[int | str, ...] = (), above: tuple[int, ...] = ()) -> None:
        """Look at everything below `loc`."""
        for key, value in list(data.items() if isinstance(data, dict) else enumerate(data)):
            if isinstance(data, dict) and not isinstance(key, str):
                self._odd_key(loc, key)
                del data[key]
                continue
            finding = self._odd_value((*loc, key), value, above)
            if finding is None:
                if isinstance(value, (dict, list)) and id(value) not in self._seen:
                    self._seen.add(id(value))
                    self.clean(value, (*loc, key), (*above, id(value)))
                continue
            self.findings.append(finding)
            self.removed.append((*loc, key))
            if isinstance(data, dict):
                del data[key]
            else:
                data[key] = None

    def _odd_key(self, loc: tuple[int | str, ...], key: Any) -> None:
        here = _model_at(self.model, loc)
        known = ", ".join(sorted(_keys(here))) if here else "a text"
        word = "null" if key is None else show(key)
        self.findings.append(Finding("unknown-key", Level.ERROR, path_of(loc), "is a key that is not a text", word, known, "remove it, or quote it"))

    def _odd_value(self, loc: tuple[int | str, ...], value: Any, above: tuple[int, ...]) -> Finding | None:
        if isinstance(value, dict) and set(value) == {"secure"}:
            message, allowed = "a secret inside environment is not kept secret", "secrets as separate top-level keys of config"
            return Finding("nested-secret", Level.ERROR, path_of(loc), message, None, allowed, _HOW_TO_KEEP_SECRETS)
        if id(value) in above or len(above) > _DEEPEST:
            return Finding("schema", Level.ERROR, path_of(loc), "holds itself or is nested too deeply", None, "plain values", "write it out")
        return None


def _remove(data: Any, loc: tuple[int | str, ...]) -> tuple[int | str, ...]:
    """Take the faulty value out and return what is gone: a faulty list entry takes its list along, to keep the indices of others."""
    if "[key]" in loc:
        loc = loc[: loc.index("[key]")]
    while loc and isinstance(loc[-1], int):
        loc = loc[:-1]
    for part in loc[:-1]:
        data = data[part]
    if loc and isinstance(data, dict):
        data.pop(loc[-1], None)
    return loc


_WORDS = {
    "int_parsing": ("is not a whole number", "a whole number"),
    "int_type": ("is not a whole number", "a whole number"),
    "int_from_float": ("is not a whole number", "a whole number"),
    "float_parsing": ("is not a number", "a number"),
    "float_type": ("is not a number", "a number"),
    "bool_parsing": ("is neither true nor false", "true, false"),
    "bool_type": ("is neither true nor false", "true, false"),
    "string_type": ("is not a text", "a text"),
    "list_type": ("is not a list", "a list"),
    "dict_type": ("is not a mapping", "a mapping"),
    "model_type": ("is not a mapping", "a mapping of keys to values"),
    "model_attributes_type": ("is not a mapping", "a mapping of keys to values"),
}
_BOUNDS = {
    "greater_than_equal": ("is too small", "at least {ge}"),
    "greater_than": ("is too small", "above {gt}"),
    "less_than_equal": ("is too large", "at most {le}"),
    "less_than": ("is too large", "below {lt}"),
    "too_short": ("has too few entries", "at least {min_length}"),
    "too_long": ("has too many entries", "at most {max_length}"),
    "string_too_short": ("is too short", "at least {min_length} character"),
    "string_too_long": ("is too long", "at most {max_length} characters"),
    "string_pattern_mismatch": ("has a form that is not possible", "{words}"),
}


def _finding(model: type[BaseModel], error: Any, data: Any) -> Finding:
    kind, loc, context = error["type"], tuple(error["loc"]), error.get("ctx", {})
    path = path_of(tuple(p for p in loc if p != "[key]"))
    value = _value_at(data, loc)
    if kind == "extra_forbidden":
        known = sorted(_keys(_model_at(model, loc[:-1]) or model))
        return Finding("unknown-key", Level.ERROR, path, "is not a known key", None, ", ".join(known), did_you_mean(loc[-1], known))
    if kind == "missing":
        about = _description(_model_at(model, loc[:-1]) or model, str(loc[-1]))
        return Finding("missing", Level.ERROR, path, "is required", None, "", f"add it: {about}")
    if kind == "literal_error":
        choices = [word.strip().strip("'") for word in context["expected"].replace(" or ", ", ").split(",")]
        return Finding("schema", Level.ERROR, path, "is not possible", value, ", ".join(choices), did_you_mean(value, choices))
    if isinstance(context.get("error"), RefusalError):
        refusal = context["error"]
        return Finding("schema", Level.ERROR, path, refusal.message, value, refusal.allowed, refusal.fix)
    if kind in _BOUNDS:
        message, allowed = _BOUNDS[kind]
        words = FORMS.get(context.get("pattern", ""), "")
        return Finding("schema", Level.ERROR, path, message, value, allowed.format(**context, words=words), _fix_of_form(context, value))
    message, allowed = _WORDS.get(kind, (str(error["msg"]).lower(), ""))
    if value is None:
        message = "is empty"
    return Finding("schema", Level.ERROR, path, message, value, allowed, _fix_of_empty(value))


def _fix_of_empty(value: Any) -> str:
    return "give it a value or remove the key" if value is None else ""


def _fix_of_form(context: Mapping[str, Any], value: Any) -> str:
    if context.get("pattern") != DNS_LABEL or not isinstance(value, str):
        return ""
    wanted = "-".join("".join(c if c.isalnum() and c.isascii() else " " for c in value.lower()).split()).lstrip("-0123456789")
    return f"for example {wanted}" if wanted else ""


def _value_at(data: Any, loc: tuple[int | str, ...]) -> Any:
    for part in loc:
        if part == "[key]":
            break
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _model_at(model: type[BaseModel], loc: tuple[int | str, ...]) -> type[BaseModel] | None:
    """The model that describes the mapping at `loc`, or None where any key may stand."""
    here: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int) or here is None:
            continue
        field = next((f for name, f in here.model_fields.items() if part in (f.alias, name)), None)
        here = _model_in(field.annotation) if field else None
    return here


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for arg in get_args(annotation) if (found := _model_in(arg))), None)


def _keys(model: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in model.model_fields.items()]


def _description(model: type[BaseModel], key: str) -> str:
    text = next((f.description for name, f in model.model_fields.items() if key in (f.alias, name)), None) or ""
    return text.rstrip(".")[:1].lower() + text.rstrip(".")[1:]
