"""Kubernetes objects as a program declares them, read for the rules about objects: pods, pools, containers.

A value may be a word for what only the deployment knows; then nothing is concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import labels

KUBERNETES, OWNER, STACK = "kubernetes:", labels.OWNER, "pulumi:pulumi:Stack"
"""Beginnings of type tokens: objects, and our components; and the type of what has no parent."""
LEADS = ("kubeconfig", "context", "cluster", "renderYamlToDirectory")
"""Inputs of a Kubernetes provider that say where its objects go."""
POD_KINDS = {"Pod", "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "LeaderWorkerSet"}


@dataclass(frozen=True)
class Declared:
    """A resource with the name that a reader knows it by, kind and resource name; its inputs are the manifest of a Kubernetes object.

    `type` is its type token, `provider` the URN of its provider, `default` gives those without one, a word where it is not known, and
    `parent` the URN of what it is a part of.
    """

    path: str
    manifest: Mapping[str, Any]
    type: str = KUBERNETES
    urn: str = ""
    provider: str = ""
    parent: str = ""

    @property
    def kind(self) -> str:
        """Its kind, empty where it is no Kubernetes object."""
        return str(self.manifest.get("kind", "")) if self.type.startswith(KUBERNETES) else ""

    @property
    def is_part_of_ours(self) -> bool:
        """Whether a component of this project made it."""
        return f"{OWNER}:index:" in self.urn

    @property
    def component(self) -> str:
        """The type of the component of this project that made it, the innermost one: `ModelServing`; empty where none did."""
        return str((re.findall(rf"{OWNER}:index:(\w+)", self.urn) or [""])[-1])

    @property
    def owner(self) -> str:
        """What it is a part of, in words: `ModelServing m`, or the program itself."""
        _, _, chain, name = self.parent.split("::", 3) if self.parent else ("", "", STACK, "")
        kind = chain.rpartition("$")[2].rpartition(":")[2]
        return f"{kind} {name}" if chain != STACK else "the program"


def default(kind: str, config: Collection[str]) -> str:
    """Stands for the URN of a resource's default provider: empty, so that a rule can tell it, unless a stack's configuration leads it to a cluster.

    `config` holds keys of the configuration, `kubernetes:context`.
    """
    return "default" if kind.startswith(KUBERNETES) and any(f"{KUBERNETES}{key}" in config for key in LEADS) else ""


@dataclass(frozen=True)
class PodTemplate:
    """The pods that an object makes. `path` ends with the template's place in it."""

    path: str
    metadata: Any
    spec: Mapping[str, Any]

    def containers(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """All containers with their paths, init containers first."""
        for key in ("initContainers", "containers"):
            for i, container in enumerate(entries(self.spec, key)):
                yield f"{self.path}.{key}[{i}]", container

    def asks_for(self, resource: str) -> int:
        """Devices of its containers together; a sidecar's count as well."""
        return sum(amount(mapping_at(c, "resources", "limits"), resource) or 0 for _, c in self.containers())

    def annotation(self, key: str) -> str:
        """The text of an annotation of the pods, empty where there is none."""
        for value in (self.metadata, mapping_at(self.metadata).get("annotations")):
            if unknown(value):
                return str(value)
        return str(mapping_at(self.metadata, "annotations").get(key, ""))

    @property
    def on_gpus(self) -> bool:
        """Whether any container names GPUs, as request or limit."""
        return any(labels.GPU in mapping_at(c, "resources", part) for _, c in self.containers() for part in ("requests", "limits"))


def pod_templates(objects: Sequence[Declared]) -> Iterator[PodTemplate]:
    """Every pod template of the objects that make pods."""
    for declared in objects:
        if declared.kind in POD_KINDS:
            yield from _templates(declared)


def _templates(declared: Declared) -> Iterator[PodTemplate]:
    manifest = declared.manifest
    if declared.kind == "Pod":
        yield PodTemplate(f"{declared.path}: spec", manifest.get("metadata"), mapping_at(manifest, "spec"))
        return
    places: list[tuple[str, ...]] = [("spec", "template")]
    if declared.kind == "LeaderWorkerSet":
        places = [("spec", "leaderWorkerTemplate", which) for which in ("leaderTemplate", "workerTemplate")]
    for place in places:
        template = mapping_at(manifest, *place)
        if template:
            yield PodTemplate(f"{declared.path}: {'.'.join(place)}.spec", template.get("metadata"), mapping_at(template, "spec"))


def node_pools(objects: Sequence[Declared]) -> list[Declared]:
    """Karpenter's NodePools among the objects."""
    return [o for o in objects if o.kind == "NodePool" and str(o.manifest.get("apiVersion", "")).startswith("karpenter.sh")]


def pools_of(template: PodTemplate, pools: Sequence[Declared]) -> list[Declared]:
    """The pools whose nodes the template's selector picks; none where it picks none of them by our labels."""
    selector = mapping_at(template.spec, "nodeSelector")
    return [p for p in pools if selector and selector.items() & labels_of(p).items() and not _conflicts(selector, labels_of(p))]


def labels_of(pool: Declared) -> dict[str, Any]:
    """What a pool's nodes are known to have, labels and requirements of one value."""
    template = mapping_at(pool.manifest, "spec", "template")
    required = {
        str(r.get("key")): r["values"][0]
        for r in entries(mapping_at(template, "spec"), "requirements")
        if r.get("operator") == "In" and isinstance(r.get("values"), Sequence) and len(r["values"]) == 1
    }
    return {**required, **mapping_at(template, "metadata", "labels")}


def refused(pool: Declared, selector: Mapping[str, Any]) -> str:
    """The label for which no node of a pool can be what pods select, that of the pool first; empty where nodes may be, for all that is known."""
    for key in sorted(selector, key=lambda k: k != labels.POOL):
        values = values_of(pool, key)
        if values is not None and not unknown(selector[key]) and selector[key] not in values:
            return key
    return ""


def values_of(pool: Declared, key: str) -> list[Any] | None:
    """What a label of a pool's nodes is one of, none of it where they lack the label; None where that is not known or left open."""
    places = (("metadata", "labels"), ("spec", "requirements"))
    if any(_is_word(pool.manifest, "spec", "template", *place) for place in places):
        return None
    template = mapping_at(pool.manifest, "spec", "template")
    given = mapping_at(template, "metadata", "labels")
    if key in given:
        return None if unknown(given[key]) else [given[key]]
    required = [r for r in entries(mapping_at(template, "spec"), "requirements") if r.get("key") == key or unknown(r.get("key"))]
    lists = [r["values"] for r in required if r.get("key") == key and r.get("operator") == "In" and isinstance(r.get("values"), list)]
    return next((v for v in lists if not unknown(v)), [] if key == labels.POOL and not required else None)


def _is_word(data: Any, *keys: str) -> bool:
    """Whether a value at a place, or one that it is in, is a word."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else data
    return unknown(data)


def _conflicts(selector: Mapping[str, Any], there: Mapping[str, Any]) -> bool:
    return any(key in there and there[key] != value for key, value in selector.items())


def taints_of(pool: Declared) -> list[Mapping[str, Any]]:
    """Taints of a pool's nodes."""
    return list(entries(mapping_at(pool.manifest, "spec", "template", "spec"), "taints"))


def instance_types_of(pool: Declared) -> list[str]:
    """Instance types that a pool names exactly."""
    requirements = entries(mapping_at(pool.manifest, "spec", "template", "spec"), "requirements")
    return [str(v) for r in requirements if r.get("key") == labels.INSTANCE_TYPE and r.get("operator") == "In" for v in r.get("values") or ()]


def tolerates(template: PodTemplate, taint: Mapping[str, Any]) -> bool:
    """Whether the pods accept a taint, as the scheduler decides it, or may do so for all that is known."""
    return unknown(template.spec.get("tolerations")) or any(_tolerates(t, taint) for t in entries(template.spec, "tolerations"))


def _tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    if unknown(list(toleration.values())):
        return True
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return toleration.get("key") in (None, "", taint.get("key"))
    return toleration.get("key") == taint.get("key") and (toleration.get("value") or "") == (taint.get("value") or "")


def mapping_at(data: Any, *keys: str) -> Mapping[str, Any]:
    """The mapping at a place, empty where there is none."""
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def entries(data: Mapping[str, Any], key: str) -> Iterator[Mapping[str, Any]]:
    """The mappings of a list."""
    found = data.get(key)
    return (e for e in found if isinstance(e, Mapping)) if isinstance(found, Sequence) and not isinstance(found, str) else iter(())


def unknown(value: Any) -> bool:
    """Whether a value, or an entry of a list, is a word for what only the deployment knows."""
    return any(unknown(v) for v in value) if isinstance(value, list) else isinstance(value, str) and value.startswith("<") and value.endswith(">")


def amount(resources: Mapping[str, Any], name: str) -> int | None:
    """A whole number of devices: 0 where none is named, None for a word."""
    text = str(resources.get(name, 0)).removesuffix(".0")
    return int(text) if text.isdecimal() else None
