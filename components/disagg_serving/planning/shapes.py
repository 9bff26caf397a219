"""What each pod asks for and what each pool offers, computed once; the placement simulation and the manifests both read it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import labels
from ..catalog import Engine, Instance, Model
from ..spec import CapacitySpec, EnvironmentSpec, ModelSpec, NodePoolsSpec, RoleSpec
from ..spec.places import pair_path
from ..spec.serving import RoleName
from .drafts import checkpoint_gb
from .host_memory import shm_gib_of
from .image_sources import located

if TYPE_CHECKING:
    from ..catalog.metric_list import MetricList
    from ..catalog.router import Router

GIB = 2**30
DAEMON_SHARE = 0.045
"""Part of a node's allocatable CPU and memory that serving pods leave to DaemonSets and sidecars."""
SCRATCH_GIB = 20
"""Local disk besides the weights: logs, compile caches."""
SIDECAR_CPU_MILLIS, SIDECAR_MEMORY_MIB = 1000, 1024
"""Requests of the routing sidecar on decode pods; they come on top of the engine's share."""

API_PORT, BEHIND_SIDECAR_PORT = 8000, 8200
GQA_BLOCK_SIZE = 128
"""KV block size of grouped-query attention with prefill and decode, as llm-d and vLLM's own NIXL tests use it."""


@dataclass(frozen=True)
class Served:
    """A model of the stack file with the facts that its names stand for."""

    index: int
    spec: ModelSpec
    facts: Model
    engine: Engine
    instances: Mapping[RoleName, Instance]
    routers: Mapping[str, Router]
    router_id: str
    sources: Mapping[str, str]
    region: str | None = None
    metric_lists: Mapping[str, MetricList] = field(default_factory=dict)
    candidate: bool = False
    draft_facts: Model | None = None
    rated_on: Mapping[str, Instance] = field(default_factory=dict)
    """Instance types by id: those of its roles, and those that rates say they were measured on."""

    @property
    def path(self) -> str:
        """Its place in the stack file; an activated candidate still stands there."""
        return pair_path(self.index, candidate=self.candidate)

    @property
    def live(self) -> bool:
        """Whether requests go to it; a candidate only runs until it is activated."""
        return not self.candidate or (self.spec.candidate is not None and self.spec.candidate.activate)

    @property
    def router(self) -> Router:
        """The router's release, read when it is asked for. Raises SpecError for a faulty entry."""
        return self.routers[self.router_id]

    @property
    def repository(self) -> str:
        """The repository on Hugging Face, or a path inside the pod."""
        return self.spec.repository or self.facts.repository

    @property
    def weights_uri(self) -> str | None:
        """Where the weights stream from, or None when each pod downloads them."""
        s3 = self.spec.weights.s3
        return f"s3://{s3.bucket}/{self.s3_prefix}" if s3 else None

    @property
    def s3_base(self) -> str:
        """Folder in the bucket that the model's pods may read: of all its revisions, so that those of the last one go on reading."""
        weights = self.spec.weights
        return (weights.s3.prefix if weights.s3 else None) or self.repository

    @property
    def s3_prefix(self) -> str:
        """Folder of the weights in their bucket; one for each revision, unless the files were put there by somebody else."""
        weights = self.spec.weights
        given = weights.s3 is not None and weights.s3.prefix is not None and not weights.mirror
        return self.s3_base if given or not weights.revision else f"{self.s3_base}/{weights.revision}"

    @property
    def model_argument(self) -> str:
        """The model string of the command line, equal on both roles: NIXL hashes what vLLM makes of it."""
        return self.weights_uri or self.repository

    @property
    def max_model_len(self) -> int:
        """Longest sequence in tokens."""
        return self.spec.max_model_len or self.facts.context_length

    @property
    def image(self) -> str:
        """The engine's image, with the digest where one is given, from where it is read."""
        return self.located(f"{self.engine.image}@{self.spec.image_digest}" if self.spec.image_digest else self.engine.image)

    @property
    def sidecar_image(self) -> str:
        """The routing sidecar's image."""
        return self.located(self.router.images.sidecar.reference)

    def located(self, reference: str) -> str:
        """An image or chart, from where it is read."""
        return located(reference, self.sources)


@dataclass(frozen=True)
class Requests:
    """Resources: millicores, MiB, GiB of local disk, devices."""

    cpu_millis: int = 0
    memory_mib: int = 0
    disk_gib: int = 0
    gpus: int = 0
    efa: int = 0

    def __add__(self, other: Requests) -> Requests:
        return Requests(
            self.cpu_millis + other.cpu_millis,
            self.memory_mib + other.memory_mib,
            self.disk_gib + other.disk_gib,
            self.gpus + other.gpus,
            self.efa + other.efa,
        )

    def fits(self, room: Requests) -> bool:
        """Whether all of it fits into `room`."""
        return (
            self.cpu_millis <= room.cpu_millis
            and self.memory_mib <= room.memory_mib
            and self.disk_gib <= room.disk_gib
            and self.gpus <= room.gpus
            and self.efa <= room.efa
        )


@dataclass(frozen=True)
class Group:
    """The pods of one role: `replicas` engines of `size` pods each, all pods alike in what they ask for."""

    served: Served
    role: RoleName
    spec: RoleSpec
    instance: Instance
    name: str
    size: int
    replicas: int
    engine_requests: Requests
    sidecar_requests: Requests
    shm_gib: int
    pool: str
    node_selector: Mapping[str, str]
    tolerations: Sequence[Mapping[str, str]]
    labels: Mapping[str, str]
    surge: int = 0
    calculated: dict[str, Any] = field(init=False, default_factory=dict, compare=False, repr=False)
    """What was calculated about it once, by what."""

    @property
    def path(self) -> str:
        """Its place in the stack file."""
        return f"{self.served.path}.{self.role}"

    @property
    def namespace(self) -> str:
        """Its Kubernetes namespace."""
        return self.served.spec.kubernetes_namespace

    @property
    def pod_requests(self) -> Requests:
        """What the scheduler counts: engine and sidecar."""
        return self.engine_requests + self.sidecar_requests

    @property
    def engine_port(self) -> int:
        """Where vLLM listens: behind the sidecar on decode pods."""
        return BEHIND_SIDECAR_PORT if self.role == "decode" else API_PORT

    @property
    def uses_efa(self) -> bool:
        """Whether its pods talk over EFA."""
        return self.engine_requests.efa > 0

    def pods(self) -> list[tuple[str, ...]]:
        """Pod names, one tuple a group, the leader first, as the LWS controller gives them."""
        return [(f"{self.name}-{g}", *(f"{self.name}-{g}-{w}" for w in range(1, self.size))) for g in range(self.replicas)]


class NodeClass(NamedTuple):
    """One EC2 launch form: an instance type with its network cards, disk and reservations."""

    name: str
    instance: Instance
    reservation_ids: tuple[str, ...]
    disk_gib: int


@dataclass(frozen=True)
class Pool:
    """The nodes of one role, instance type and capacity source."""

    name: str
    role: RoleName
    instance: Instance
    node_class: str
    capacity_type: str
    zone: str
    max_nodes: int
    path: str
    made: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()

    @property
    def room(self) -> Requests:
        """What one empty node offers to pods."""
        return room_of(self.instance)


def room_of(instance: Instance) -> Requests:
    """What one empty node of a type offers to pods."""
    a = instance.allocatable
    return Requests(a.cpu_millis, a.memory_mib, a.nvme_gib, instance.gpu.count, instance.efa.count)


def world_size(role: RoleSpec) -> int:
    """GPUs of one engine, all its data-parallel ranks together."""
    return role.tensor_parallel * role.pipeline_parallel * role.data_parallel


def fills(gpus: int, rank: int, ranks: int = 1) -> bool:
    """Whether `ranks` data-parallel ranks of `rank` GPUs divide a node of `gpus` or fill whole ones, and none lies across a node's edge."""
    whole = gpus % (rank * ranks) == 0 or (rank * ranks) % gpus == 0
    return whole and (gpus % rank == 0 or rank % gpus == 0)


def group_size(role: RoleSpec, instance: Instance) -> int:
    """Pods of one engine: 1 while it fits a node, else whole nodes."""
    return max(1, math.ceil(world_size(role) / instance.gpu.count))


def build_group(served: Served, name: RoleName, role: RoleSpec, zone: str | None, *, pools_made: bool) -> Group:
    """The pods of one role. The role's parallelism must divide the node's GPUs (rule `tensor-parallel` says so before)."""
    instance = served.instances[name]
    size = group_size(role, instance)
    gpus = world_size(role) // size
    needs_efa = size > 1 or name != "server"
    sidecar = Requests(SIDECAR_CPU_MILLIS, SIDECAR_MEMORY_MIB) if name == "decode" else Requests()
    # on a small node the sidecar takes more than what is kept back for DaemonSets
    beside = (instance.allocatable.cpu_millis * gpus // instance.gpu.count - sidecar.cpu_millis) // 1000
    engine = Requests(
        cpu_millis=round(role.cpu * 1000) if role.cpu else min(_share(instance.allocatable.cpu_millis / 1000, gpus, instance), beside) * 1000,
        memory_mib=(role.memory_gib or _share(instance.allocatable.memory_mib / 1024, gpus, instance)) * 1024,
        disk_gib=role.ephemeral_storage_gib or local_disk_gib(served),
        gpus=gpus,
        efa=instance.efa.count * gpus // instance.gpu.count if needs_efa else 0,
    )
    pool = pool_name(name, instance, role.capacity) if pools_made else ""
    parts = (served.spec.name, served.spec.generation, None if name == "server" else name)
    return Group(
        served=served,
        role=name,
        spec=role,
        instance=instance,
        name="-".join(p for p in parts if p),
        size=size,
        replicas=role.least_replicas,
        engine_requests=engine,
        sidecar_requests=sidecar,
        shm_gib=shm_gib_of(served.spec, name, gpus, size),
        pool=pool,
        node_selector=_node_selector(name, role, pool, zone),
        tolerations=_tolerations(name, role, made=pools_made),
        labels={
            labels.APP_NAME: "vllm",
            labels.COMPONENT: name,
            labels.MANAGED_BY: labels.OWNER,
            labels.PART_OF: served.spec.name,
            labels.LLM_D_INFERENCE_SERVING: "true",
            labels.LLM_D_MODEL: served.spec.name,
            labels.LLM_D_ROLE: "prefill-decode" if name == "server" else name,
        },
    )


def local_disk_gib(served: Served) -> int:
    """Local disk of a pod: 1.1 x the checkpoint where it keeps a download of its own, and scratch."""
    keeps = served.weights_uri is None and served.spec.weights.cache == "pod"
    return (math.ceil(1.1 * checkpoint_gb(served) * 1e9 / GIB) if keeps else 0) + SCRATCH_GIB


def pool_name(role: RoleName, instance: Instance, capacity: CapacitySpec) -> str:
    """Name of the NodePool that a role's pods select; it depends on nothing but role, type and capacity source."""
    return f"{role}-{_dashed(instance.id)}{'' if capacity.type == 'on-demand' else f'-{capacity.type}'}"


def node_class_name(instance: Instance, capacity: CapacitySpec) -> str:
    """Name of the NodeClass of an instance type, reserved or not; never `default`, which Auto Mode owns.

    The reservations' ids are not in it: a renewed reservation must not replace pools and pods.
    """
    return _dashed(instance.id) + ("-reserved" if capacity.type == "reserved" else "")


def role_taints(role: RoleName) -> list[dict[str, str]]:
    """Taints of a role's nodes."""
    return [
        {"key": labels.ROLE, "value": role, "effect": "NoSchedule"},
        {"key": labels.GPU, "value": "present", "effect": "NoSchedule"},
    ]


def block_size_of(served: Served) -> int | None:
    """Tokens in a KV block, or None where the engine chooses by itself."""
    model, facts = served.spec, served.facts
    by_default = GQA_BLOCK_SIZE if model.disaggregated and facts.mla is None else None
    return model.block_size or facts.block_size or by_default


def build_pools(groups: Sequence[Group], zone: str, bounds: Mapping[str, int]) -> list[Pool]:
    """The NodePools that the groups need, by name, with the most nodes that each may have."""
    pools: dict[str, Pool] = {}
    for group in groups:
        capacity = group.spec.capacity
        pools.setdefault(
            group.pool,
            Pool(
                name=group.pool,
                role=group.role,
                instance=group.instance,
                node_class=node_class_name(group.instance, capacity),
                capacity_type=capacity.type,
                zone=zone,
                max_nodes=bounds[group.pool],
                path=group.path,
                labels={labels.ROLE: group.role, labels.POOL: group.pool},
                taints=role_taints(group.role),
            ),
        )
    return [pools[name] for name in sorted(pools)]


def _share(allocatable: float, gpus: int, instance: Instance) -> int:
    """A pod's part of a node, in whole units: the node less the DaemonSets' part, to two digits, by GPUs."""
    usable = allocatable * (1 - DAEMON_SHARE)
    digits = 10 ** max(0, math.floor(math.log10(usable)) - 1)
    return int(usable // digits * digits * gpus // instance.gpu.count) or 1


def _node_selector(name: RoleName, role: RoleSpec, pool: str, zone: str | None) -> dict[str, str]:
    if not pool:
        return dict(role.node_selector)
    return {labels.ROLE: name, labels.POOL: pool, **({labels.ZONE: zone} if zone else {})}


def _tolerations(name: RoleName, role: RoleSpec, *, made: bool) -> list[dict[str, str]]:
    if made:
        return [{"key": t["key"], "operator": "Equal", "value": t["value"], "effect": t["effect"]} for t in role_taints(name)]
    return [t.model_dump(exclude_none=True) for t in role.tolerations] or [{"key": labels.GPU, "operator": "Exists", "effect": "NoSchedule"}]


def _dashed(text: str) -> str:
    return text.replace(".", "-")


@dataclass(frozen=True)
class Layout:
    """Everything that follows from a valid environment: groups of pods, pools and node classes."""

    spec: EnvironmentSpec
    served: Sequence[Served]
    groups: Sequence[Group]
    pools: Sequence[Pool]
    node_classes: Sequence[NodeClass]
    settings: NodePoolsSpec
    candidates: Sequence[Served] = ()

    def groups_of(self, served: Served) -> list[Group]:
        """The groups of one pair of a model."""
        return [g for g in self.groups if g.served.spec.name == served.spec.name and g.served.candidate == served.candidate]

    def candidates_of(self, served: Served) -> list[Served]:
        """The pairs of the same model that run and get no requests."""
        return [c for c in self.candidates if c.spec.name == served.spec.name]
