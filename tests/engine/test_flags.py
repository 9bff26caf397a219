"""Every flag of every version, in every spelling: the fast rule says what the parser says."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from disagg_serving.catalog import Catalog
from disagg_serving.catalog.flags import flags_of
from disagg_serving.errors import Level
from disagg_serving.planning.layout import resolve
from disagg_serving.planning.rules import Subject, rules
from disagg_serving.planning.rules.engine import is_owned, is_secret
from disagg_serving.spec import EnvironmentSpec
from disagg_serving.spec.validation import parse
from factories import ROOT, aggregated, environment

from engine.agreement import IMAGES
from engine.build import PARSERS, Engine
from engine.cases import CommandLine, ask

CATALOG = Catalog()
(RULE,) = (r for r in rules() if r.id == "engine-flags")
VALUES = ("=7", "=1.5", "=A-b", "={}", "=None", "=", "", ".a=1")


def spellings(version: str) -> Iterator[str]:
    """Each flag that a person may add, with values of all kinds, cut short, negated, and with underscores."""
    for flag in flags_of(version) or {}:
        forms = [flag + value for value in VALUES]
        forms += [flag[:-1], flag[:-2] + "=7", flag.replace("--", "--no-", 1), flag.replace("--enable-", "--disable-", 1)]
        forms.append("--" + flag[2:].replace("-", "_") + "=7")
        yield from (form for form in forms if not is_owned(form.split("=", 1)[0]) and not is_secret(form))


@pytest.mark.parametrize("engine", PARSERS, ids=lambda e: e.version)
def test_rule_and_parser_are_of_one_mind(engine: Engine, tmp_path: Path) -> None:
    """What the parser refuses of a single flag the rule refuses, and nothing else."""
    spec = parse(EnvironmentSpec, environment(aggregated(model="qwen3-32b", engine=IMAGES[engine.version])))
    (served,), _ = resolve(spec, CATALOG, ROOT)

    def refused(arg: str) -> bool:
        one = replace(served, spec=served.spec.model_copy(update={"extra_args": [arg]}))
        return any(f.level in {None, Level.ERROR} for f in RULE.check(Subject(spec, CATALOG, [one])))

    asked = list(dict.fromkeys(spellings(engine.version)))
    assert len(asked) > 2000
    verdicts = ask(engine, [CommandLine(a, engine.version, served.facts, ("m", a)) for a in asked], tmp_path, config=False)
    differ = [f"{v.name}: parser {'takes it' if v.accepted else v.reason}" for v in verdicts if refused(v.name) == v.accepted]
    assert differ == []
