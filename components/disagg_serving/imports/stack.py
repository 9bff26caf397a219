"""From engines to a stack: models, network and instance types, and what the rules say about them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..catalog import Catalog, load_catalog
from ..errors import Finding, Level, SpecError, has_errors
from ..labels import CAPACITY_TYPE, ZONE
from ..pins import DEFAULT_ENGINE
from ..rules import StackContext
from ..rules.evaluation import Evaluation, evaluate
from ..spec.base import DNS_LABEL
from ..spec.network import region_of
from ..spec.stack_file import NAMESPACE
from . import instances
from .extras import corrected, without
from .found import Found, Kind
from .groups import grouped, name_of
from .models import Side, build_model, read_side
from .source import withhold

REGION = "us-east-1"
_UPSTREAM = re.compile(r"(?:docker\.io/)?vllm/vllm-openai:v[\d.]+")
"""Upstream's image without the suffix of the one that has libfabric."""
_GPUS_OF_NODE = 8


@dataclass(frozen=True)
class Wish:
    """What the files do not say."""

    name: str = "imported"
    region: str = ""
    zones: tuple[str, ...] = ()
    instance_type: str = ""
    catalog_dirs: tuple[str, ...] = ()
    secrets: frozenset[str] = frozenset()


@dataclass
class Imported:
    """A stack, and what is to be said about it."""

    region: str
    environment: dict[str, Any]
    found: Found
    evaluation: Evaluation
    comments: dict[str, str]
    """Comments by place: `models[0].model`."""
    read: list[str]
    """A line for each model that was read."""
    secrets: dict[str, str]
    """Keys of secrets that the stack names, with where the files have them."""

    @property
    def failed(self) -> bool:
        """Whether the rules find errors."""
        return has_errors(self.evaluation.findings)

    @property
    def findings(self) -> list[Finding]:
        """What the rules find, without what only informs."""
        return [f for f in self.evaluation.findings if f.level is not Level.INFO]


def assemble(found: Found, wish: Wish, base: Path) -> Imported:
    """The stack of all engines. Raises SpecError where engines cannot be told apart, and for options that are not possible."""
    catalog = load_catalog(wish.catalog_dirs, base)
    if wish.instance_type and wish.instance_type not in catalog.instances:
        raise SpecError([catalog.instances.missing("--instance-type", wish.instance_type)])
    return _Assembly(found, wish, base, catalog, grouped(found.engines)).run()


@dataclass
class _Assembly:
    """One import on its way."""

    found: Found
    wish: Wish
    base: Path
    catalog: Catalog
    groups: list[list[Side]]
    comments: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    region: str = REGION

    def run(self) -> Imported:
        """The stack."""
        taken: set[str] = set()
        read = [_summary(sides) for sides in self.groups]
        models = [self._model(i, sides, taken) for i, sides in enumerate(self.groups)]
        network = {"zones": self._zones()}
        folders = {"catalogDirs": list(self.wish.catalog_dirs)} if self.wish.catalog_dirs else {}
        environment: dict[str, Any] = {**folders, "network": network, "models": models}
        for i, sides in enumerate(self.groups):
            self._instances(i, sides, environment)
        evaluation = corrected(environment, self._judge, self.groups, self.found)
        return Imported(self.region, environment, self.found, evaluation, self.comments, read, self.secrets)

    def _judge(self, environment: dict[str, Any]) -> Evaluation:
        """What the rules say of an environment; the secrets that it names count as set."""
        context = StackContext(self.region, frozenset(f"{NAMESPACE}:{key}" for key in self.secrets))
        return evaluate({"name": self.wish.name, **environment}, self.base, context)

    def _model(self, index: int, sides: list[Side], taken: set[str]) -> dict[str, Any]:
        for side in sides:
            read_side(side, self.found)
        model = build_model(name_of(sides, taken), sides, self.catalog, self.found)
        self._image(index, model, sides)
        self._weights(model, sides)
        self._devices(sides)
        self._namespace(model, sides)
        if model["model"] not in self.catalog.models:
            entry = f"add models/{model['model']}.yaml to a folder of catalogDirs, or give the path of its config.json"
            self.comments[f"models[{index}].model"] = f"not in the catalogue: {entry}"
        for key, engine_has in (("hfToken", "hf_token"), ("apiKey", "api_key")):
            where = next((getattr(side.engine, engine_has) for side in sides if getattr(side.engine, engine_has)), "")
            if where:
                self.secrets.setdefault(key, where)
        self._withhold(model, sides)
        return model

    def _image(self, index: int, model: dict[str, Any], sides: list[Side]) -> None:
        """The image as an engine of the catalogue, where it can do what is asked of it."""
        over_efa = len(sides) > 1 or sides[0].engine.nodes > 1
        for side in sides:
            engine = side.engine
            name, _, digest = engine.image.partition("@")
            known = next((one for one in self.catalog.engines.values() if name == one.image), None)
            if known is not None and (known.libfabric or not over_efa):
                if known.id != DEFAULT_ENGINE:
                    model["engine"] = known.id
                if re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
                    model["imageDigest"] = digest
            elif over_efa and _UPSTREAM.fullmatch(name):
                why = f"has no libfabric, without which nothing moves over EFA; {DEFAULT_ENGINE} is taken, which has it"
                self.found.note(Kind.FAULT, engine.where, "image", why)
            elif name:
                self.found.note(Kind.UNSAID, engine.where, "image", f"is no engine of the catalogue; {DEFAULT_ENGINE} is taken")
                self.comments[f"models[{index}].name"] = f"its image is not in the catalogue, so {DEFAULT_ENGINE} serves it"

    def _namespace(self, model: dict[str, Any], sides: list[Side]) -> None:
        """The namespace of the files; several models have one each, as a router needs one of its own."""
        named = [(side.engine.namespace, side.engine.where) for side in sides if side.engine.namespace not in {"", "default", model["name"]}]
        if named and len(self.groups) == 1 and len({name for name, _ in named}) == 1 and re.fullmatch(DNS_LABEL, named[0][0]):
            model["namespace"] = named[0][0]
        elif named:
            self.found.note(Kind.UNSAID, named[0][1], "namespace", "each model has a namespace of its own")

    def _weights(self, model: dict[str, Any], sides: list[Side]) -> None:
        for side in sides:
            scheme, _, rest = side.engine.weights.partition("://")
            bucket, _, prefix = rest.partition("/")
            if scheme == "s3" and bucket:
                model.setdefault("weights", {})["s3"] = {"bucket": bucket, **({"prefix": prefix.strip("/")} if prefix.strip("/") else {})}
            elif scheme:
                shown = scheme if scheme.isalnum() else "an address"
                self.found.note(Kind.UNSAID, side.engine.where, f"weights in {shown}", "weights come from Hugging Face or S3, with `weights`")

    def _devices(self, sides: list[Side]) -> None:
        for side in sides:
            engine, world = side.engine, _world(side)
            if engine.gpus and engine.gpus * engine.nodes != world:
                why = f"{engine.gpus * engine.nodes} are asked for, and parallelism uses {world}; here their number follows from parallelism"
                self.found.note(Kind.FAULT, engine.where, "GPUs", why)

    def _withhold(self, part: dict[str, Any], sides: list[Side]) -> None:
        """Take out every text in which a secret of the files stands, wherever it came from."""
        for key, value in list(part.items()):
            if isinstance(value, dict):
                self._withhold(value, sides)
            kept = [one for one in value if withhold(one, self.wish.secrets) == one] if isinstance(value, list) else value
            if isinstance(value, str) and withhold(value, self.wish.secrets) != value:
                del part[key]
            elif isinstance(value, list) and len(kept) < len(value):
                part[key] = kept
            else:
                continue
            self.found.note(Kind.UNSAID, sides[0].engine.where, key, "holds a secret, which no stack file may")

    def _zones(self) -> list[str]:
        """Zones and region: the options', those of node selectors, or a default."""
        selected = [zone for sides in self.groups for side in sides for zone in side.engine.selectors.get(ZONE, ())]
        zones = [*dict.fromkeys(self.wish.zones or selected or self.found.pool_selectors.get(ZONE, ()))]
        zones = [zone for zone in zones if re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d[a-z]", zone)]
        self.region = self.wish.region or (region_of(zones[0]) if zones else "") or REGION
        self.comments["network"] = "EFA does not cross zones, so all GPU nodes are in the first one"
        if not zones or any(region_of(zone) != self.region for zone in zones):
            if not self.wish.region:
                self.comments["region"] = "the files name no region: this is a default"
            return [f"{self.region}a", f"{self.region}b"]
        # EKS wants subnets in two zones
        return zones if len(zones) > 1 else [zones[0], f"{self.region}{'b' if zones[0].endswith('a') else 'a'}"]

    def _instances(self, index: int, sides: list[Side], environment: dict[str, Any]) -> None:
        """The instance type of each role: the option's, what the file says, or the cheapest without an error."""
        model, open_sides = environment["models"][index], []
        for side in sides:
            selectors = {**self.found.pool_selectors, **side.engine.selectors}
            self._capacity(model[side.engine.role], side, selectors)
            said = self.wish.instance_type or instances.named(selectors, self.catalog)
            model[side.engine.role]["instanceType"] = said
            if said:
                continue
            open_sides.append(side)
            told = instances.tells(selectors, self.catalog)
            what = (
                "the cheapest type with the GPU that the file names"
                if told
                else "the file names no GPU: the cheapest type of the catalogue that holds it"
            )
            self.comments[f"models[{index}].{side.engine.role}"] = what
        if not open_sides:
            return
        alone = without({**environment, "models": [model]})
        selectors = {**self.found.pool_selectors, **open_sides[0].engine.selectors}
        least = max(side.engine.gpus or min(_world(side), _GPUS_OF_NODE) for side in open_sides)
        tried: list[tuple[int, int, str]] = []
        for order, one in enumerate(instances.candidates(selectors, self.catalog, least)):
            for side in open_sides:
                alone["models"][0][side.engine.role]["instanceType"] = one.id
            errors = sum(f.level is Level.ERROR for f in self._judge(alone).findings)
            tried.append((errors, order, one.id))
            if not errors:
                break
        for side in open_sides:
            model[side.engine.role]["instanceType"] = min(tried)[2]

    def _capacity(self, role: dict[str, Any], side: Side, selectors: dict[str, list[str]]) -> None:
        """Spot and reserved nodes; and a type that the catalogue does not have."""
        missing = instances.unknown(selectors, self.catalog)
        if missing:
            shown = missing if re.fullmatch(r"[a-z0-9.-]{3,24}", missing) else "of the node selector"
            self.found.note(Kind.UNSAID, side.engine.where, f"instance type {shown}", "is not in the catalogue; `disagg catalog instances`")
        kind = selectors.get(CAPACITY_TYPE, [""])[0]
        if kind == "spot":
            role["capacity"] = {"type": "spot"}
        elif kind == "reserved":
            why = "add the reservations, which the file does not name: `capacity` {type: reserved, reservationIds: [cr-...]}"
            self.found.note(Kind.UNSAID, side.engine.where, CAPACITY_TYPE, why)


def _world(side: Side) -> int:
    """The GPUs of an engine by its parallelism."""
    sizes = [side.role.get(key, 1) for key in ("tensorParallel", "pipelineParallel", "dataParallel")]
    world = 1
    for size in sizes:
        world *= size if isinstance(size, int) and size > 0 else 1
    return world


def _summary(sides: list[Side]) -> str:
    parts = []
    for side in sides:
        engine = side.engine
        gpus = (engine.gpus or 0) * engine.nodes
        of = f" of {gpus} GPU{'s' if gpus > 1 else ''}" if gpus else ""
        parts.append(f"{engine.role} {engine.replicas} engine{'s' if engine.replicas > 1 else ''}{of} ({engine.where})")
    return f"{sides[0].engine.form}: {sides[0].model}, {', '.join(parts)}"
