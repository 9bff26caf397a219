"""The words behind `vllm serve` as flags: planning/command_line.py the other way round."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..catalog.flags import Flag, flags_of, versions
from .found import Engine
from .shell import Word

SHORT = {
    "-tp": "--tensor-parallel-size", "-pp": "--pipeline-parallel-size", "-dp": "--data-parallel-size", "-n": "--nnodes", "-r": "--node-rank",
    "-dcp": "--decode-context-parallel-size", "-pcp": "--prefill-context-parallel-size", "-dpn": "--data-parallel-rank",
    "-dpr": "--data-parallel-start-rank", "-dpl": "--data-parallel-size-local", "-dpa": "--data-parallel-address",
    "-dpp": "--data-parallel-rpc-port", "-dpb": "--data-parallel-backend", "-dph": "--data-parallel-hybrid-lb", "-dpe": "--data-parallel-external-lb",
    "-ep": "--enable-expert-parallel", "-q": "--quantization", "-cc": "--compilation-config", "-O": "--optimization-level",
    "-sc": "--speculative-config",
}  # fmt: skip
"""Short flags: https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/engine/arg_utils.py."""
_SEVERAL = {"list", "ints", "several"}
_WITHOUT = {"switch", "optional"}
_NUMBERS = {"int", "size", "value"}
_UNITS = {"k": 1000, "m": 1000**2, "g": 1000**3, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kmgKMG]?)")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
DYNAMO_FLAGS = frozenset(
    {
        "--disaggregation-mode", "--is-prefill-worker", "--is-decode-worker", "--connector", "--migration-limit", "--request-plane", "--event-plane",
        "--discovery-backend", "--durable-kv-events", "--use-vllm-tokenizer", "--endpoint", "--enable-local-indexer", "--namespace", "--store-kv",
        "--custom-jinja-template", "--multimodal-worker", "--multimodal-processor", "--enable-multimodal", "--route-to-encoder", "--sglang",
    }
)  # fmt: skip
"""Flags of `dynamo.vllm` that are not vLLM's: https://github.com/ai-dynamo/dynamo/blob/b6d5e48722e494c650c285c0f2370c3e28f37a1b/components/src/dynamo/vllm/args.py."""
_DYNAMO_SWITCHES = {"--is-prefill-worker", "--is-decode-worker", "--use-vllm-tokenizer", "--durable-kv-events", "--enable-local-indexer"}


_ALIASES = {("--dtype", "half"): "float16", ("--dtype", "float"): "float32"}
"""Other spellings of values: https://github.com/vllm-project/vllm/blob/v0.33.0/vllm/config/model.py (ModelDType)."""


class Given(NamedTuple):
    """A flag as the command line gives it: its full name, the keys behind a dot, its value (None: a switch), and variables that nobody sets."""

    flag: str
    keys: str
    text: str | None
    line: int
    lacks: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The flag without its value, which may be a secret."""
        return f"{self.flag}.{self.keys}" if self.keys else self.flag


def known_flags() -> Mapping[str, Flag]:
    """The flags of all releases that are known, the newest's form of each."""
    found: dict[str, Flag] = {}
    for version in versions():
        found |= flags_of(version) or {}
    return found


def flag_like(key: str) -> str:
    """The flag that a key in camelCase stands for, or an empty text."""
    name = "--" + _CAMEL.sub("-", key.replace("LoRA", "Lora")).lower()
    return name if name in known_flags() else ""


def read_arguments(engine: Engine) -> tuple[list[Word], list[Given]]:
    """The words that stand without a flag, of which the first should be the model, and the flags in their order."""
    known = known_flags()
    plain, given, rest = list[Word](), list[Given](), list(engine.words)
    while rest:
        word = rest.pop(0)
        if not word.text.startswith("-") or word.text == "-":
            plain.append(word)
            continue
        name, equals, value = word.text.partition("=")
        dotted, _, keys = name.partition(".")
        flag = _full(dotted, known)
        about = known.get(flag)
        lacks = word.lacks
        text: str | None = value if equals else None
        if not equals and _takes_value(flag, about, rest):
            taken = [rest.pop(0)]
            while about is not None and about.kind in _SEVERAL and rest and not rest[0].text.startswith("-"):
                taken.append(rest.pop(0))
            text = " ".join(one.text for one in taken)
            lacks = tuple(lack for one in (word, *taken) for lack in one.lacks)
        given.append(Given(flag, keys.replace("-", "_"), text, word.line, lacks))
    return plain, given


def _full(name: str, known: Mapping[str, Flag]) -> str:
    """A flag in its full spelling: of a short one, with underscores, or cut short as the parser allows it."""
    if name in SHORT:
        return SHORT[name]
    flag = name.replace("_", "-")
    if flag in known or flag in DYNAMO_FLAGS or not flag.startswith("--"):
        return flag
    longer = [one for one in known if one.startswith(flag)]
    return longer[0] if len(longer) == 1 else flag


def _takes_value(flag: str, about: Flag | None, rest: list[Word]) -> bool:
    if not rest or (about is not None and about.kind == "switch") or flag in _DYNAMO_SWITCHES:
        return False
    following = rest[0].text
    if about is None or about.kind in _WITHOUT:
        return not following.startswith("-") and (about is None or about.kind != "optional" or following.isdigit())
    return not following.startswith("--") or following.lstrip("-").isdigit()


def value_of(given: Given) -> Any:
    """The value as a field takes it: a number, a mapping, true, or the text itself where it is none of these."""
    about = known_flags().get(given.flag)
    text = given.text
    if text is None:
        return True
    text = _ALIASES.get((given.flag, text), text)
    kind = about.kind if about is not None else "text"
    if kind in _NUMBERS and (found := _SIZE.fullmatch(text.strip())):
        number = float(found[1]) * _UNITS.get(found[2], 1)
        return int(number) if number == int(number) else text
    if kind == "float":
        try:
            return float(text)
        except ValueError:
            return text
    if kind in {"json", "object"} or text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return text
    return text


def argument(given: Given) -> str:
    """The flag as an entry of `extraArgs`."""
    return given.shown if given.text is None else f"{given.shown}={_compact(given.text)}"


def _compact(text: str) -> str:
    """JSON without the blanks of a manifest; anything else as it is."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return " ".join(text.split())
