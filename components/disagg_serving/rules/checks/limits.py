"""The rule about the limits of a workload: does the layout keep them, by measured step times."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...corrections import Correction
from ...errors import Level
from ...forecast.balance.rates import figure
from ...forecast.sizing.layout import Judged, judge
from ...forecast.sizing.search import Candidate
from ...forecast.sizing.units import RoleSize
from ...phrases import say
from ...planning.scaling import at_most
from ...planning.shapes import Served
from ..registry import Fault, Stage, Subject, rule


@rule("limits", Level.WARNING, Stage.LAYOUT, "docs/how-to/size.md", reads=("workload", "measuredRates"))
def limits(s: Subject) -> Iterator[Fault]:
    """The layout keeps the limits of its workload, also with steps as slow as public runs have seen them; what it comes to is said."""
    for served in s.served if s.layout else ():
        groups = at_most(s.layout).groups_of(served) if s.layout else []
        found = judge(groups)
        work, path = served.spec.workload, f"{served.path}.workload"
        if found is None or work is None:
            continue
        if isinstance(found, str):
            yield Fault(path, say("has limits that cannot be forecast: {}", found), None, "", "measure it: `disagg bench`", Level.INFO)
        elif found.keeps("high"):
            yield Fault(path, say("keeps its limits by forecast: {}", _figures(found)), None, "", "", Level.INFO)
        else:
            sure = "with slow steps" if found.keeps("mid") else "by forecast"
            told = _figures(found) if found.bars["mid"] else "requests come faster than it serves them"
            message = say("does not keep its limits {}: {}", sure, told)
            yield Fault(path, message, work.requests_per_second, _allowed(found), ways=_ways(served, found), otherwise="size it anew: `disagg size`")


def _figures(found: Judged) -> str:
    point = f"{found.ask.limits.percentile} % of requests get their first token within {found.span('ttft_at', 0)} ms"
    stands = f"{found.rows} measured runs" if found.rows else "not validated"
    scaled = say(", scaled by {measuredRates}") if found.corrected else ""
    return say("{} and each further one within {} ms ({}{})", point, found.span("tpot_at", 1), stands, scaled)


def _allowed(found: Judged) -> str:
    """The limits, and the rate at which the layout keeps them."""
    wanted = found.ask.limits
    kept = [f"{figure(wanted.ttft_ms)} ms to the first token"] if wanted.ttft_ms else []
    kept += [f"{figure(wanted.tpot_ms)} ms a token"] if wanted.tpot_ms else []
    rate = found.rate()
    return ", ".join([*kept, f"at most {figure(rate)} requests/s here" if rate else "not kept at any rate here"])


def _ways(served: Served, found: Judged) -> list[Iterator[Correction]]:
    """More engines of the same forms, and the layouts that sizing finds; calculated when they are asked for."""
    return [_more(served, found), _others(served, found)]


def _more(served: Served, found: Judged) -> Iterator[Correction]:
    if same := found.enough():
        yield {_number(served, size): size.engines for size in same.sizes}


def _others(served: Served, found: Judged) -> Iterator[Correction]:
    roles = [size.unit.role for size in found.sizes]
    same = (c for c in found.better() if [size.unit.role for size in c.sizes] == roles)
    yield from (_correction(served, c) for c in islice(same, 3))


def _correction(served: Served, candidate: Candidate) -> Correction:
    changed: dict[str, Any] = {}
    for size in candidate.sizes:
        place, form, now = f"{served.path}.{size.unit.role}", size.unit.form, served.spec.roles[size.unit.role]
        wanted = {
            "instanceType": (now.instance_type, size.unit.instance.id),
            "tensorParallel": (now.tensor_parallel, form.tensor_parallel),
            "dataParallel": (now.data_parallel, form.data_parallel),
            "expertParallel": (now.expert_parallel, form.expert_parallel),
        }
        changed |= {f"{place}.{key}": new for key, (old, new) in wanted.items() if old != new}
        changed[_number(served, size)] = size.engines
    return changed


def _number(served: Served, size: RoleSize) -> str:
    role: Any = size.unit.role
    bound = "maxReplicaCount" if served.live else "minReplicaCount"
    key = f"autoscaling.{bound}" if served.spec.roles[role].autoscaling else "replicas"
    return f"{served.path}.{role}.{key}"
