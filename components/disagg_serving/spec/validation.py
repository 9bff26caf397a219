"""From plain data to an EnvironmentSpec, or to every reason why not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError, create_model
from pydantic.alias_generators import to_camel

from ..credentials import SECRET_NAMES, holds_secret, names_secret, secrets_of
from ..errors import Finding, Level, SpecError, closest, conceal, did_you_mean, show
from ..phrases import Phrase, join, move_places, parts_of, say, say_key
from ..place import TOP, Place, Step
from ..yaml_io import dates_as_text
from .base import DNS_LABEL, FORMS, RefusalError, model_in
from .form_words import BOUNDS, WORDS
from .odd_characters import odd_characters

_HOW_TO_KEEP_SECRETS = say("set it with `pulumi config set --secret disagg-serving:KEY` and name the key, for example {weights.tokenKey}")
_HOW_TO_LEAVE_SECRETS_OUT = "revoke it and leave it out; whoever runs `pulumi up` logs in to registries before"
_JUDGED_BY_RULES = SECRET_NAMES | {"extraEnv", "extra_env", "extraArgs", "extra_args"}
"""Places where rules say more about a secret than that it is one."""
_REPAIR_ROUNDS = 3
_DEEPEST = 40


class _LeftOut(Enum):
    LEFT_OUT = "left out"


LEFT_OUT = _LeftOut.LEFT_OUT
"""Stands for a value with which somebody else has found fault: here nothing more is said about it."""

S = TypeVar("S", bound=BaseModel)
Loc = tuple[Step, ...]


@dataclass(frozen=True)
class Parsed(Generic[S]):
    """A spec and the findings about its form.

    With findings the spec is what remains when the faulty parts are left out, so that the rules can speak about the rest in the
    same run; it is None if too much is missing for that. `models` holds the original index of each model that remains, `left_out` the places
    of what else is not there, without findings of its own: LEFT_OUT, what cannot do without a faulty part, and what a misspelt key likely means.
    """

    spec: S | None
    findings: list[Finding]
    models: list[int] = field(default_factory=list)
    left_out: list[Place] = field(default_factory=list)

    @property
    def gone(self) -> list[Place]:
        """Places whose value is not in the spec."""
        return [Place.parse(f.path) for f in self.findings if f.path and f.id != "unknown-key"] + self.left_out

    def lacks(self, place: Place, at: Place = TOP) -> bool:
        """Whether the value at a place was left out; `at` is the place of the mapping that was parsed."""
        return at.contains(place) and any(gone.contains(place.below(at)) for gone in self.gone)

    def restore(self, finding: Finding) -> Finding:
        """A finding about what remains, with the indices of the file."""

        def original(path: str) -> str:
            return str(_in_file(Place.parse(path), self.models))

        corrections = tuple({original(path): value for path, value in c.items()} for c in finding.corrections)
        texts = (finding.message, finding.allowed, finding.fix)
        message, allowed, fix = (move_places(text, lambda place: _in_file(place, self.models)) for text in texts)
        return replace(finding, path=original(finding.path), message=message, allowed=allowed, fix=fix, corrections=corrections)


def parse(model: type[S], data: object) -> S:
    """Validate `data` (a mapping as YAML gives it, or one with snake_case keys) as `model`.

    Raises SpecError with all findings.
    """
    parsed = try_parse(model, data)
    if parsed.findings or parsed.left_out or parsed.spec is None:
        raise SpecError(parsed.findings)
    return parsed.spec


def try_parse(model: type[S], data: object) -> Parsed[S]:
    """Validate as far as possible; see Parsed."""
    if not isinstance(data, Mapping):
        what = "is empty" if data is None else "is not a mapping"
        fix = "start with `models:`; `disagg schema` prints all keys"
        return Parsed(None, [Finding("schema", Level.ERROR, "", what, data, "a mapping of keys to values", fix)])
    secrets = secrets_of(data)
    parsed = _Repair(model, deepcopy(dict(data))).run()
    return replace(parsed, findings=conceal(parsed.findings, secrets))


def by_alias(model: type[BaseModel], data: Any) -> Any:
    """Plain data about `model` with the keys of a stack file, where it has those of Python, or what other languages make of these."""
    if isinstance(data, list):
        return [by_alias(model, one) if isinstance(one, dict) else one for one in data]
    if not isinstance(data, dict):
        return data
    named = [(field.alias or name, name, model_in(field.annotation)) for name, field in model.model_fields.items()]
    fields = {key: (alias, inner) for alias, name, inner in named for key in (alias, name, to_camel(name))}
    renamed = {}
    for key, value in data.items():
        alias, inner = fields.get(key, (key, None))
        renamed[key if alias in data else alias] = by_alias(inner, value) if inner else value
    return renamed


def fault_of(form: Any, value: object, path: str) -> Finding | None:
    """What is wrong with one value of a form that is written as a field's type, at `path`."""
    found = try_parse(create_model("One", value=(form, ...)), {"value": value}).findings
    return replace(found[0], path=path, corrections=()) if found else None


class _Repair(Generic[S]):
    """Validates in rounds, and leaves out what a round has found fault with."""

    def __init__(self, model: type[S], data: dict[str, Any]) -> None:
        cleaner = _Cleaner(model)
        cleaner.clean(data)
        self.model, self.data, self.findings, self.left_out = model, data, cleaner.findings, cleaner.left_out
        self.removed = set(cleaner.removed)
        models = data.get("models")
        self.origin = list(range(len(models))) if isinstance(models, list) else []

    def run(self) -> Parsed[S]:
        """The spec of what remains."""
        for _ in range(_REPAIR_ROUNDS):
            try:
                return Parsed(self.model.model_validate(self.data), self.findings, self.origin, self.left_out)
            except ValidationError as problem:
                errors = self._without_likely(problem.errors(include_url=False))
            for error in errors:
                place, there = Place(error["loc"]), _in_file(Place(error["loc"]), self.origin)
                if not self._follows(error["type"], there):
                    self.findings.append(self._try(_finding(self.model, {**error, "loc": there.steps}, self.data, place.steps), error))
            if not self._leave_out(errors):
                break
        return Parsed(None, self.findings, left_out=self.left_out)

    def _without_likely(self, errors: list[Any]) -> list[Any]:
        """The errors without those about keys that are missing since they are misspelt."""
        meant = {self._meant(Place(e["loc"])) for e in errors if e["type"] == "extra_forbidden"}
        return [e for e in errors if e["type"] != "missing" or Place(e["loc"]) not in meant]

    def _meant(self, place: Place) -> Place | None:
        """The place that a misspelt key likely means, if nothing is there."""
        key = str(closest(place.steps[-1], _keys(_model_at(self.model, place.parent.steps) or self.model)))
        return Place((*place.parent.steps, key)) if key and key not in place.parent.read(self.data, {}) else None

    def _follows(self, kind: str, place: Place) -> bool:
        """Whether an error is there because something was left out: the value itself, or entries without which a list is too short."""
        left_out = any(Place(place.steps[:n]) in self.removed for n in range(1, len(place.steps) + 1))
        return left_out or (kind == "too_short" and any(gone.is_in(place) for gone in self.removed))

    def _try(self, finding: Finding, error: Any) -> Finding:
        """The finding without corrections that this very place does not take."""
        place, otherwise = Place(error["loc"]), getattr(error.get("ctx", {}).get("error"), "otherwise", "")
        if any(self._refuses(place, value) for c in finding.corrections for value in c.values()):
            return replace(finding, fix=otherwise, corrections=())
        return finding

    def _refuses(self, place: Place, value: object) -> bool:
        """Whether a value may not stand at a place."""
        data = deepcopy(self.data)
        try:
            place.write(data, value)
            self.model.model_validate(data)
        except ValidationError as problem:
            return any(place.contains(Place(e["loc"])) for e in problem.errors(include_url=False, include_input=False))
        except LookupError:
            return True  # the place is a key
        return False

    def _leave_out(self, errors: list[Any]) -> bool:
        """Remove the faulty values; what cannot do without them goes too. False when nothing would remain."""
        gone: set[int] = set()
        for error in errors:
            place = _value_place(error["loc"])
            if error["type"] == "missing" or (_in_file(place, self.origin) in self.removed and not _is_model(place)):
                place = place.parent
            self.removed.add(_in_file(place, self.origin))
            # a faulty entry takes its list along, to keep the indices of others; models are renumbered
            while place.is_entry and not _is_model(place):
                place = place.parent
            if place == TOP:
                return False
            meant = self._note_left_out(error, place)
            if _is_model(place):
                gone.add(int(place.steps[1]))
                continue
            value = place.read(self.data)
            place.pop(self.data)
            if meant and type(value) in {int, float, str} and not self._refuses(meant, value):
                meant.write(self.data, value)
        if gone:
            self.data["models"] = [model for i, model in enumerate(self.data["models"]) if i not in gone]
            self.origin = [index for i, index in enumerate(self.origin) if i not in gone]
        return True

    def _note_left_out(self, error: Any, place: Place) -> Place | None:
        """Remember what is not there, and give the place a misspelt key means: a number or a text serves there, a switch would ask for more."""
        there = _in_file(place, self.origin)
        self.removed.add(there)
        if error["type"] != "extra_forbidden":
            self.left_out.append(there)
            return None
        meant = self._meant(place)
        if meant is not None:
            self.left_out.append(_in_file(meant, self.origin))
            self.removed.add(self.left_out[-1])
        return meant


def _in_file(place: Place, models: Sequence[int]) -> Place:
    """A place among models that remain, each with its index in the file, as the place in the file."""
    index = place.index_in("models")
    return place if index is None else Place(("models", models[index], *place.steps[2:]))


def _is_model(place: Place) -> bool:
    return place.is_entry and place.parent.steps == ("models",)


class _Cleaner:
    """Takes out what no model could describe: encrypted values, keys that are no texts, structures that hold themselves. Dates become texts.

    A `secure:` inside the environment would turn the whole key secret while reads return plain text.
    """

    def __init__(self, model: type[BaseModel]) -> None:
        self.model = model
        self.findings: list[Finding] = []
        self.removed: list[Place] = []
        self.left_out: list[Place] = []
        # what an alias repeats is looked at once: repetitions of repetitions grow without bound
        self._seen: set[int] = set()

    def clean(self, data: Any, loc: Loc = (), above: tuple[int, ...] = ()) -> None:
        """Look at everything below `loc`."""
        for written, given in list(data.items() if isinstance(data, dict) else enumerate(data)):
            key, value = dates_as_text(written), dates_as_text(given)
            if key is not written:
                data[key] = data.pop(written)
            if value is not given:
                data[key] = value
            if isinstance(data, dict) and not isinstance(key, str):
                self._odd_key(loc, key)
                del data[key]
                continue
            if isinstance(data, dict) and (finding := _refused_key(loc, key)):
                self.findings.append(finding)
                del data[key]
                continue
            if value is LEFT_OUT:
                named = Place(tuple(to_camel(part) if isinstance(part, str) else part for part in (*loc, key)))
                self.left_out.append(named)
                self.removed.append(named)
            elif (finding := self._odd_value((*loc, key), value, above)) is not None:
                self.findings.append(finding)
            else:
                if isinstance(value, (dict, list)) and id(value) not in self._seen:
                    self._seen.add(id(value))
                    self.clean(value, (*loc, key), (*above, id(value)))
                continue
            self.removed.append(Place((*loc, key)))
            if isinstance(data, dict):
                del data[key]
            else:
                data[key] = None

    def _odd_key(self, loc: Loc, key: Any) -> None:
        here = _model_at(self.model, loc)
        known = join(", ", _keys(here)) if here else "a text"
        word = "null" if key is None else show(key)
        path, fix = str(Place(loc)), "remove it, or quote it"
        self.findings.append(Finding("unknown-key", Level.ERROR, path, "is a key that is not a text", word, known, fix))

    def _odd_value(self, loc: Loc, value: Any, above: tuple[int, ...]) -> Finding | None:
        if isinstance(value, dict) and "secure" in value:
            message, allowed = "a secret inside environment is not kept secret", "secrets as separate top-level keys of config"
            return Finding("nested-secret", Level.ERROR, str(Place(loc)), message, None, allowed, _HOW_TO_KEEP_SECRETS)
        named = loc[-2:-1] == ("tags",) and names_secret(str(loc[-1]))
        if isinstance(value, str) and _JUDGED_BY_RULES.isdisjoint(loc) and (named or holds_secret(value)):
            return _plain_secret(loc, "has a password, key or token in it, which every plan would show")
        if isinstance(value, str) and (finding := odd_characters(loc, value)):
            return finding
        if id(value) in above or len(above) > _DEEPEST:
            return Finding("schema", Level.ERROR, str(Place(loc)), "holds itself or is nested too deeply", None, "plain values", "write it out")
        return None


def _refused_key(loc: Loc, key: str) -> Finding | None:
    if holds_secret(key):
        return _plain_secret(loc, "has a key with a password, key or token in it, which every plan would show")
    odd = odd_characters(loc, key)
    return replace(odd, message=f"has a key that {odd.message}") if odd else None


def _plain_secret(loc: Loc, message: str) -> Finding:
    allowed = "a text without user and key, password or token"
    return Finding("plain-secret", Level.ERROR, str(Place(loc)), message, None, allowed, _HOW_TO_LEAVE_SECRETS_OUT)


def _finding(model: type[BaseModel], error: Any, data: Any, place: Loc) -> Finding:
    found = _explain(model, error, data, place)
    if found.value is None or SECRET_NAMES.isdisjoint(error["loc"]):
        return found
    return replace(found, value=None, fix="if that is the secret itself, revoke it; write the name of its key here", corrections=())


def _explain(model: type[BaseModel], error: Any, data: Any, place: Loc) -> Finding:
    kind, loc, context = error["type"], tuple(error["loc"]), error.get("ctx", {})
    path = str(_value_place(loc))
    value = loc[loc.index("[key]") - 1] if "[key]" in loc else _value_place(place).read(data)
    if kind in {"too_short", "too_long"} and isinstance(value, str):
        kind = f"string_{kind}"
    if kind == "extra_forbidden":
        here = _model_at(model, loc[:-1]) or model
        if any(loc[-1] in {name, to_camel(name)} - {field.alias} for name, field in here.model_fields.items()):
            return Finding("unknown-key", Level.ERROR, path, "is given twice, in two spellings", None, "", "leave one of them out")
        known = _keys(here)
        return Finding("unknown-key", Level.ERROR, path, "is not a known key", None, join(", ", known), did_you_mean(loc[-1], known))
    if kind == "missing":
        about = _description(_model_at(model, loc[:-1]) or model, str(loc[-1]))
        return Finding("missing", Level.ERROR, path, "is required", None, "", say("add it: {}", about))
    if kind == "literal_error":
        choices = [word.strip().strip("'") for word in context["expected"].replace(" or ", ", ").split(",")]
        refused = Finding("schema", Level.ERROR, path, "is not possible", value, ", ".join(choices))
        return refused.guessing(choices)
    if isinstance(context.get("error"), RefusalError):
        refusal = context["error"]
        refused = Finding("schema", Level.ERROR, path, refusal.message, value, refusal.allowed)
        return refused if refusal.right is None else refused.with_fix(refusal.right)
    if isinstance(value, float) and value != value:  # noqa: PLR0124 (what no comparison holds for, nan)
        return Finding("schema", Level.ERROR, path, "is not a number", value, "a number")
    if kind in BOUNDS:
        message, allowed = BOUNDS[kind]
        words = FORMS.get(context.get("pattern", ""), "")
        refused = Finding("schema", Level.ERROR, path, message, value, allowed.format(**context, words=words))
        right = _name_like(value) if context.get("pattern") == DNS_LABEL else ""
        return refused.with_fix(right) if right else refused
    message, allowed = WORDS.get(kind, (str(error["msg"]).lower(), ""))
    if value is None:
        message = "is empty"
    return Finding("schema", Level.ERROR, path, message, value, allowed, _fix_of_empty(value))


def _value_place(loc: Loc) -> Place:
    """Where the value stands that pydantic speaks of, also when it speaks of a key."""
    return Place(loc[: loc.index("[key]")] if "[key]" in loc else loc)


def _fix_of_empty(value: Any) -> str:
    return "give it a value or remove the key" if value is None else ""


def _name_like(value: Any) -> str:
    """The DNS label that somebody likely meant, or an empty text."""
    if not isinstance(value, str) or not value.isascii():
        return ""
    return "-".join("".join(c if c.isalnum() else " " for c in value.lower()).split()).lstrip("-0123456789")


def _model_at(model: type[BaseModel], loc: Loc) -> type[BaseModel] | None:
    """The model that describes the mapping at `loc`, or None where any key may stand."""
    here: type[BaseModel] | None = model
    for part in loc:
        if isinstance(part, int) or here is None:
            continue
        field = next((f for name, f in here.model_fields.items() if part in (f.alias, name)), None)
        here = model_in(field.annotation) if field else None
    return here


def _keys(model: type[BaseModel]) -> list[Phrase]:
    """The model's keys, sorted."""
    return [say_key(one) for one in sorted(field.alias or name for name, field in model.model_fields.items())]


PROPER_NOUNS = {"Elastic", "Envoy", "Karpenter", "Kubernetes", "Prometheus"}
"""First words of descriptions that are capitals within a sentence, too."""


def _description(model: type[BaseModel], name: str) -> Phrase:
    """What a field's description says, as a part of a sentence."""
    text = next((f.description for own, f in model.model_fields.items() if name in (f.alias, own)), None) or ""
    first = text.partition(" ")[0].strip(",.:;")
    keeps = first in PROPER_NOUNS or (not first[1:].islower() and len(first) > 1)  # an acronym, or a name of several capitals
    *parts, last = parts_of(text)
    parts.append(last.rstrip(".") if isinstance(last, str) else last)
    start, *rest = parts
    return Phrase([start if keeps or not isinstance(start, str) else start[:1].lower() + start[1:], *rest])
