"""What a refusal for memory suggests, done to the stack file, ends the refusal."""

from __future__ import annotations

import re
from copy import deepcopy
from typing import Any

from disagg_serving.catalog import load_catalog
from disagg_serving.errors import Finding, Level
from factories import aggregated, check, environment, model, role
from hypothesis import assume, given, settings
from hypothesis import strategies as st

MEMORY = ("memory-fit", "context-fit")
LAYOUT = re.compile(
    r"use tensorParallel (\d+)(?: with pipelineParallel (\d+))?(?: with dataParallel (\d+) and expertParallel)? on (\S+)( in both roles)?"
)
CONTEXT, DTYPE = re.compile(r"set maxModelLen: (\d+)"), re.compile(r"set kvCacheDtype: (\S+)")
SETTING = re.compile(r"set (\w+)\.(maxNumBatchedTokens|gpuMemoryUtilization): (\S+)")
GENERAL = {"use more GPUs an engine", "use more GPUs an engine or a smaller model", "set calibration from the log of a start"}
"""Advice that names no value."""
TYPES = ("p5.4xlarge", "p5.48xlarge", "p5en.48xlarge", "p6-b200.48xlarge")


def of_memory(data: dict[str, Any]) -> list[Finding]:
    """Findings about memory."""
    return [f for f in check(data).findings if f.id in MEMORY]


def errors_of(data: dict[str, Any], side: str) -> set[tuple[str, str]]:
    """Rules that are broken by a role, or by the model of both, with the places."""
    return {(f.id, f.path) for f in check(data).findings if f.level is Level.ERROR and _side(f) in (side, "")}


def applied(data: dict[str, Any], finding: Finding, way: str) -> dict[str, Any] | None:
    """The environment after one way of a fix; None for advice that names no value. Fails for a way that cannot be read."""
    changed = deepcopy(data)
    served = changed["models"][0]
    side = _side(finding)
    if found := LAYOUT.fullmatch(way):
        ranks = int(found[3] or 1)
        for moved in ("prefill", "decode") if found[5] else (side,):
            served[moved] |= {"tensorParallel": int(found[1]), "pipelineParallel": int(found[2] or 1), "instanceType": found[4]}
            served[moved] |= {"dataParallel": ranks, **({"expertParallel": True} if ranks > 1 else {})}
    elif found := CONTEXT.fullmatch(way):
        served["maxModelLen"] = int(found[1])
    elif found := DTYPE.fullmatch(way):
        served["kvCacheDtype"] = found[1]
    elif found := SETTING.fullmatch(way):
        served[found[1]][found[2]] = float(found[3]) if "." in found[3] else int(found[3])
    else:
        assert way in GENERAL, way
        return None
    return changed


@st.composite
def tight(draw: st.DrawFn) -> dict[str, Any]:
    """Engines of all models of the catalogue on small and large instances, with short and long contexts."""
    catalog = load_catalog()
    name, instance = draw(st.sampled_from(sorted(catalog.models))), draw(st.sampled_from(TYPES))
    longest = catalog.models[name].context_length
    common = {
        "model": name,
        "maxModelLen": draw(st.integers(1, longest // 1024)) * 1024,
        "gpuMemoryUtilization": draw(st.sampled_from((0.5, 0.8, 0.9))),
    }
    batch = draw(st.sampled_from((None, None, 131072)))
    options = {"instanceType": instance, **({"maxNumBatchedTokens": batch} if batch else {})}
    options |= {"expertParallel": True} if catalog.models[name].moe is not None and draw(st.booleans()) else {}
    options |= {"dataParallel": draw(st.sampled_from((1, 1, 2, 4)))} if "expertParallel" in options else {}
    engine = role(**options, tensorParallel=draw(st.sampled_from((1, 2, 4, 8))))
    if draw(st.booleans()):
        return environment(aggregated(**common, server=engine))
    return environment(model(**common, prefill=engine, decode=role(**options, tensorParallel=draw(st.sampled_from((2, 4, 8))))))


@given(tight())
@settings(max_examples=150, deadline=None)
def test_every_way_that_is_suggested_removes_its_finding(data: dict[str, Any]) -> None:
    """The same rule says nothing about the same role afterwards, neither as an error nor as a warning, and no other rule refuses what was done."""
    found = of_memory(data)
    assume(found)
    for finding in found:
        for way in finding.fix.split(", or "):
            changed = applied(data, finding, way)
            if changed is None:
                continue
            left = [f for f in of_memory(changed) if f.id == finding.id and f.path == finding.path and _side(f) == _side(finding)]
            assert not left, (way, finding.sentence(), [f.sentence() for f in left])
            new = errors_of(changed, _side(finding)) - errors_of(data, _side(finding))
            assert not new, (way, finding.sentence(), new)


def _side(finding: Finding) -> str:
    return next((k for k in ("prefill", "decode", "server") if f".{k}." in finding.path or f" of {k} " in finding.message), "")


def test_a_calibrated_engine_is_not_proposed_to_itself() -> None:
    """A record that leaves too little room is answered with other engines, not with the same one without its record."""
    engine = role(calibration={"weightsGiB": 34.2, "kvCacheGiB": 5})
    (found,) = [f for f in of_memory(environment(aggregated(maxModelLen=131072, server=engine))) if f.id == "context-fit"]
    assert "tensorParallel 2 on p5.48xlarge" not in found.sentence()
    assert "tensorParallel 4 on p5.48xlarge" in found.sentence()
