"""From a spec to its layout: names looked up in the catalogue, then shapes, pools and node classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..catalog import Catalog, Engine, Instance, Model, is_path
from ..errors import Finding, Level, SpecError
from ..spec import EnvironmentSpec, ModelSpec
from ..spec.network import region_of
from ..spec.places import pair_path
from ..yaml_io import inside
from .node_bounds import stated_bound
from .node_classes import build_node_classes
from .pairs import identified, pairs_of
from .placement import by_pool, pack
from .scaling import scaled_out
from .shapes import Group, Layout, Served, build_group, build_pools
from .surge import with_surge


def resolve(spec: EnvironmentSpec, catalog: Catalog, base: Path) -> tuple[list[Served], list[Finding]]:
    """The models whose names are all known, and the findings about the others."""
    served: list[Served] = []
    findings: list[Finding] = []
    region = region_of(spec.network.zone) if spec.network.zone else None
    router = spec.router.version
    if router not in catalog.routers:
        findings.append(catalog.routers.missing("router.version", router))
    for i, model, candidate in ((i, *pair) for i, written in enumerate(spec.models) for pair in pairs_of(written)):
        path = pair_path(i, candidate=candidate)
        facts, engine = None, None
        try:
            facts = _facts(model, catalog, base, path)
        except SpecError as problem:
            findings += problem.findings
        try:
            engine = _engine(model, catalog, path)
        except SpecError as problem:
            findings += problem.findings
        named = _instance_names(model)
        found, missing = _instances(named, catalog, path)
        findings += missing
        if facts and engine and router in catalog.routers and len(found) == len(named):
            instances = {name: found[f"{name}.instanceType"] for name in model.roles}
            rated = {named[place]: instance for place, instance in found.items()}
            known = (catalog.routers, router, spec.image_sources, region, catalog.metrics)
            served.append(Served(i, model, facts, engine, instances, *known, candidate, _draft_facts(model, catalog), rated))
    return served, findings


def build_layout(spec: EnvironmentSpec, served: list[Served]) -> Layout:
    """Groups, pools and node classes of models that have passed the rules about their form."""
    zone = spec.network.zone
    groups = [group for s in served for group in _pair(s, zone, pools_made=spec.makes_pools)]
    live, candidates = [s for s in served if s.live], [s for s in served if not s.live]
    if not spec.makes_pools:
        return Layout(spec, live, groups, [], [], spec.node_pools, candidates)
    bounds = {pool: stated_bound(members) or len(pack(members)) for pool, members in by_pool(scaled_out(groups)).items()}
    pools = build_pools(groups, zone or "", bounds)
    return Layout(spec, live, with_surge(groups, pools), pools, build_node_classes(groups), spec.node_pools, candidates)


def _pair(served: Served, zone: str | None, *, pools_made: bool) -> list[Group]:
    return identified([build_group(served, name, role, zone, pools_made=pools_made) for name, role in served.spec.roles.items()])


def merge_layouts(layouts: Sequence[Layout]) -> Layout | None:
    """One layout of what several components of a program were given; each group and pool once, by name."""
    if not layouts:
        return None
    first = layouts[0]
    served = {s.spec.name: s for layout in layouts for s in layout.served}
    candidates = {s.spec.name: s for layout in layouts for s in layout.candidates}
    groups = {(g.namespace, g.name): g for layout in layouts for g in layout.groups}
    pools = {p.name: p for layout in reversed(layouts) for p in layout.pools}
    classes = {c.name: c for layout in reversed(layouts) for c in layout.node_classes}
    made = list(pools.values()), list(classes.values())
    return Layout(first.spec, list(served.values()), list(groups.values()), *made, first.settings, list(candidates.values()))


def _instance_names(model: ModelSpec) -> dict[str, str]:
    """Instance types by their places below the model: of roles, and of what their rates were measured on."""
    named = {f"{role}.instanceType": spec.instance_type for role, spec in model.roles.items()}
    for role, spec in model.roles.items():
        for i, rate in enumerate(spec.measured_rates):
            if rate.measured_on and rate.measured_on.instance_type:
                named[f"{role}.measuredRates[{i}].measuredOn.instanceType"] = rate.measured_on.instance_type
    return named


def _instances(named: Mapping[str, str], catalog: Catalog, path: str) -> tuple[dict[str, Instance], list[Finding]]:
    """Instance types by their places, and the findings about those that are not there or faulty."""
    found: dict[str, Instance] = {}
    findings: list[Finding] = []
    for place, name in named.items():
        try:
            found[place] = catalog.instances[name]
        except KeyError:
            findings.append(catalog.instances.missing(f"{path}.{place}", name))
        except SpecError as problem:
            findings += problem.findings
    return found, findings


def _facts(model: ModelSpec, catalog: Catalog, base: Path, path: str) -> Model:
    if (entry := catalog.known_model(model.model)) is not None:
        return entry
    if not is_path(model.model, base):
        raise SpecError([catalog.unknown_model(f"{path}.model", model.model)])
    if not model.repository:
        allowed = "the Hugging Face repository or the path inside the pod"
        raise SpecError([Finding("model-config", Level.ERROR, f"{path}.repository", "is required when model is a path", None, allowed, "add it")])
    file = inside(base, model.model)
    if file is None:
        message = "is no path, or leads out of the project"
        raise SpecError([Finding("model-config", Level.ERROR, f"{path}.model", message, model.model, "a path inside it")])
    from ..catalog.hf_config import read_model  # noqa: PLC0415 (slow)

    try:
        return read_model(file, model.name, model.repository, base)
    except SpecError as problem:
        raise SpecError([f.below(f"{path}.model: ") if f.path else f.below(f"{path}.model") for f in problem.findings]) from None


def _draft_facts(model: ModelSpec, catalog: Catalog) -> Model | None:
    named = model.speculative.model if model.speculative else None
    try:
        return catalog.known_model(named) if named else None
    except SpecError:  # an entry that cannot be read is no reason to refuse another model
        return None


def _engine(model: ModelSpec, catalog: Catalog, path: str) -> Engine:
    if model.engine not in catalog.engines:
        raise SpecError([catalog.engines.missing(f"{path}.engine", model.engine)])
    return catalog.engines[model.engine]
