"""Every flag of every version, in every spelling: the fast rule says what the parser says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from disagg_serving.catalog import Catalog
from disagg_serving.catalog.flags import flags_of
from disagg_serving.errors import Level
from disagg_serving.planning.layout import resolve
from disagg_serving.rules import Subject, rules
from disagg_serving.rules.checks.extra_arguments import is_secret, refusals
from disagg_serving.spec import EnvironmentSpec, ModelSpec
from disagg_serving.spec.validation import parse
from factories import ROOT, aggregated, environment

from engine.agreement import IMAGES
from engine.build import PARSERS, Engine
from engine.cases import CommandLine, ask

CATALOG = Catalog()
ANY = ModelSpec.model_validate(aggregated(model="qwen3-32b"))
(RULE,) = (r for r in rules() if r.id == "engine-flags")
VALUES = ("=7", "=1.5", "=A-b", "={}", "=None", "=", "", ".a=1", "=2K", "=1.5G", "=1,2")
REFUSED_LATER = {"--attention-backend", "--config-format", "--optimization-level", "--quantization"}
"""The parser takes any text for them; the configuration refuses what is not listed (docs/engine-agreement.md)."""
UNLISTED = {"value", "list"}
"""Kinds of flags about whose values nothing is known here."""
LOOKED_AT = {
    "--chat-template": "vLLM looks for the file of a path",
    "--grpc-port": "wants a variable besides",
    "--lora-modules": "wants a name with a path, or both inside the JSON",
    "--reasoning-effort-map": "wants texts inside the JSON",
}


def spellings(version: str) -> Iterator[str]:
    """Each flag that a person may add, with values of all kinds, cut short, negated, and with underscores."""
    for flag in flags_of(version) or {}:
        forms = [flag + value for value in VALUES]
        forms += [flag[:-1], flag[:-2] + "=7", flag.replace("--", "--no-", 1), flag.replace("--enable-", "--disable-", 1)]
        forms.append("--" + flag[2:].replace("-", "_") + "=7")
        yield from (form for form in forms if not owned(version, form) and not is_secret(form))


@pytest.mark.parametrize("engine", PARSERS, ids=lambda e: e.version)
def test_rule_and_parser_are_of_one_mind(engine: Engine, tmp_path: Path) -> None:
    """What the parser refuses of a single flag the rule refuses, and nothing else."""
    spec = parse(EnvironmentSpec, environment(aggregated(model="qwen3-32b", engine=IMAGES[engine.version])))
    (served,), _ = resolve(spec, CATALOG, ROOT)

    bare = served.facts.model_copy(update={"serve_flags": []})  # which stand on no command line here

    def refused(arg: str) -> bool:
        one = replace(served, facts=bare, spec=served.spec.model_copy(update={"extra_args": [arg]}))
        return any(f.level in {None, Level.ERROR} for f in RULE.check(Subject(spec, CATALOG, [one])))

    asked = list(dict.fromkeys(spellings(engine.version)))
    assert len(asked) > 2000
    verdicts = ask(engine, [CommandLine(a, engine.version, served.facts, ("m", a)) for a in asked], tmp_path, config=False)
    assert [v.name for v in verdicts if refused(v.name) and v.accepted and flag(v.name) not in REFUSED_LATER] == []
    known = flags_of(engine.version) or {}
    taken = [v for v in verdicts if not refused(v.name) and not v.accepted and flag(v.name) not in LOOKED_AT]
    assert [f"{v.name}: {v.reason}" for v in taken if known[flag(v.name)].kind not in UNLISTED and not needs_fields(v.reason)] == []


def owned(version: str, form: str) -> bool:
    """Whether the project refuses a flag whatever the parser says of it: extra-args has words of its own."""
    return any(refusals("", form, version, ANY))


def flag(arg: str) -> str:
    """The flag in the parser's spelling."""
    return re.split(r"[.=]", arg, maxsplit=1)[0].replace("_", "-")


def needs_fields(reason: str) -> bool:
    """Whether a JSON object is refused for the keys in it, which nobody lists here."""
    return bool(re.search(r"Unexpected keyword argument|Field required|missing \d required|validation errors? for", reason))
