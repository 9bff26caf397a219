"""From a spec to its layout: names looked up in the catalogue, then shapes, pools and node classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..catalog import Catalog, Engine, Instance, Model
from ..errors import Finding, Level, SpecError
from ..spec import EnvironmentSpec, ModelSpec
from ..spec.network import region_of
from ..spec.serving import RoleName
from ..yaml_io import inside
from .placement import by_pool, pack
from .shapes import Layout, Served, build_group, build_node_classes, build_pools


def resolve(spec: EnvironmentSpec, catalog: Catalog, base: Path) -> tuple[list[Served], list[Finding]]:
    """The models whose names are all known, and the findings about the others."""
    served: list[Served] = []
    findings: list[Finding] = []
    region = region_of(spec.network.zone) if spec.network.zone else None
    router = spec.router.version
    if router not in catalog.routers:
        findings.append(catalog.routers.missing("router.version", router))
    for i, model in enumerate(spec.models):
        path = f"models[{i}]"
        facts, engine = None, None
        try:
            facts = _facts(model, catalog, base, path)
        except SpecError as problem:
            findings += problem.findings
        try:
            engine = _engine(model, catalog, path)
        except SpecError as problem:
            findings += problem.findings
        instances: dict[RoleName, Instance] = {}
        for name, role in model.roles.items():
            try:
                instances[name] = catalog.instances[role.instance_type]
            except KeyError:
                findings.append(catalog.instances.missing(f"{path}.{name}.instanceType", role.instance_type))
            except SpecError as problem:
                findings += problem.findings
        if facts and engine and router in catalog.routers and len(instances) == len(model.roles):
            served.append(Served(i, model, facts, engine, instances, catalog.routers, router, spec.image_sources, region))
    return served, findings


def build_layout(spec: EnvironmentSpec, served: list[Served]) -> Layout:
    """Groups, pools and node classes of models that have passed the rules about their form."""
    zone = spec.network.zone
    groups = [build_group(s, name, role, zone, pools_made=spec.makes_pools) for s in served for name, role in s.spec.roles.items()]
    if not spec.makes_pools:
        return Layout(spec, served, groups, [], [], spec.node_pools)
    needed = {pool: len(pack(members)) for pool, members in by_pool(groups).items()}
    return Layout(spec, served, groups, build_pools(groups, zone or "", needed), build_node_classes(groups), spec.node_pools)


def merge_layouts(layouts: Sequence[Layout]) -> Layout | None:
    """One layout of what several components of a program were given; each group and pool once, by name."""
    if not layouts:
        return None
    first = layouts[0]
    served = {s.spec.name: s for layout in layouts for s in layout.served}
    groups = {(g.namespace, g.name): g for layout in layouts for g in layout.groups}
    pools = {p.name: p for layout in reversed(layouts) for p in layout.pools}
    classes = {c.name: c for layout in reversed(layouts) for c in layout.node_classes}
    return Layout(first.spec, list(served.values()), list(groups.values()), list(pools.values()), list(classes.values()), first.settings)


def _facts(model: ModelSpec, catalog: Catalog, base: Path, path: str) -> Model:
    if model.model in catalog.models:
        return catalog.models[model.model]
    if not ("/" in model.model or model.model.endswith(".json") or model.model.startswith(".")):
        raise SpecError([catalog.models.missing(f"{path}.model", model.model)])
    if not model.repository:
        allowed = "the Hugging Face repository or the path inside the pod"
        raise SpecError([Finding("model-config", Level.ERROR, f"{path}.repository", "is required when model is a path", None, allowed, "add it")])
    from ..catalog.hf_config import read_model  # noqa: PLC0415 (most models are catalogue entries)

    file = inside(base, model.model)
    if file is None:
        message = "is no path, or leads out of the project"
        raise SpecError([Finding("model-config", Level.ERROR, f"{path}.model", message, model.model, "a path inside it")])
    try:
        return read_model(file, model.name, model.repository, base)
    except SpecError as problem:
        raise SpecError([f.below(f"{path}.model: ") if f.path else f.below(f"{path}.model") for f in problem.findings]) from None


def _engine(model: ModelSpec, catalog: Catalog, path: str) -> Engine:
    if model.engine not in catalog.engines:
        raise SpecError([catalog.engines.missing(f"{path}.engine", model.engine)])
    return catalog.engines[model.engine]
