"""Rules about nodes: does each pod fit one, and do all groups fit what is reserved or limited."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import date

from ...corrections import Correction
from ...errors import Level
from ...forecast.cost import OLD_DAYS, cost_of, old_prices, today
from ...phrases import Phrase, join, say
from ...place import Place
from ...planning.host_memory import usual_shm_gib
from ...planning.node_bounds import most_replicas, sources
from ...planning.placement import bounded, by_pool, pack
from ...planning.reserved import reserved_on_demand
from ...planning.shapes import SCRATCH_GIB, Group, local_disk_gib, room_of
from ..documents import EC2, KUBERNETES, LLM_D, LWS, QUOTAS
from ..registry import Fault, Stage, Subject, remove, rule, use

GIB_AN_EFA, LEAST_GIB = 4, 8
"""Memory besides /dev/shm: to enumerate EFA devices (https://github.com/aws-samples/awsome-inference/issues/71), and the least of an engine."""
SMALLER = {
    "replicas": "lower replicas, or the GPUs of an engine",
    "autoscaling.maxReplicaCount": say("lower {autoscaling.maxReplicaCount}, or the GPUs of an engine"),
}
LARGER, STREAM = "use a larger instance type", say("stream the weights with {weights.s3}")
OTHERWISE = {"cpu": LARGER, "memoryGiB": LARGER, "ephemeralStorageGiB": say("{}, or use an instance type with more disk", STREAM)}


@rule("pod-fits-node", Level.ERROR, Stage.LAYOUT, f"{KUBERNETES}concepts/scheduling-eviction/kube-scheduler/", judges="nodes")
def pod_fits_node(s: Subject) -> Iterator[Fault]:
    """One pod asks for no more CPU, memory, disk, GPUs and EFA devices than an empty node offers, and for the disk that its weights take."""
    yield from _small_disks(s)
    for group in s.layout.groups if s.layout else ():
        for key, what, wanted, offered, sidecar in _quantities(group):
            if wanted + sidecar > offered:
                message = f"is too much: pod asks for {wanted + sidecar:g} {what}, more than {group.spec.instance_type} offers"
                place, most = f"{group.path}.{key}", offered - sidecar
                fitting = [n for n in (_part(group, offered, sidecar), int(most)) if n >= 1]
                ways = [use(place, *fitting), remove(place) if _given(group, key) is not None else []]
                yield Fault(place, message, _given(group, key), f"at most {most:g}", ways=ways, otherwise=OTHERWISE[key])
        # what host memory holds of KV has a rule of its own, host-kv
        if (group.spec.shm_gib or usual_shm_gib(group.engine_requests.gpus)) * 1024 >= group.engine_requests.memory_mib:
            most, place, memory = group.engine_requests.memory_mib // 1024 - 1, f"{group.path}.shmGiB", f"{group.path}.memoryGiB"
            roomy = [n for n in (most + 1 - _beside_shm(group), most) if n >= 1]
            ways = [use(place, *roomy), [*remove(memory), *use(memory, group.shm_gib + _beside_shm(group))]]
            message = "counts as memory as it fills, and full it leaves none for the engine"
            yield Fault(place, message, group.shm_gib, f"at most {most}", level=Level.WARNING, ways=ways)


@rule(
    "host-memory",
    Level.WARNING,
    Stage.LAYOUT,
    "https://github.com/aws-samples/awsome-inference/issues/71 and "
    f"{LLM_D}34272a64/guides/pd-disaggregation/modelserver/gpu/vllm/base/patch-decode.yaml",
)
def host_memory(s: Subject) -> Iterator[Fault]:
    """Beside /dev/shm, memory is left for the engine's processes and its EFA devices; CPU and /dev/shm are what such pods run with."""
    for group in s.layout.groups if s.layout else ():
        ask, gpus = group.engine_requests, group.engine_requests.gpus
        memory, shm = ask.memory_mib // 1024, group.shm_gib
        wanted = _beside_shm(group)
        if shm < memory < shm + wanted:
            # /dev/shm takes memory only as it fills, so what is sure to be too little is less than the processes need without it
            level = Level.ERROR if memory < wanted else None
            left = say("leaves {} GiB beside {shmGiB} {} for processes and {} EFA devices", memory - shm, shm, ask.efa)
            yield _too_little(f"{group.path}.memoryGiB", left, group.spec.memory_gib, shm + wanted, level)
        if ask.cpu_millis < 1000 * gpus:
            message = f"is less than a vCPU a GPU, each of which has a process that must keep up with it ({gpus} a pod)"
            yield _too_little(f"{group.path}.cpu", message, group.spec.cpu, gpus)
        usual = usual_shm_gib(gpus)
        if shm < usual and gpus > 1:
            message = f"is less than pods of {gpus} GPUs are known to run with"
            yield _too_little(f"{group.path}.shmGiB", message, group.spec.shm_gib, usual)


@rule("node-packing", Level.WARNING, Stage.LAYOUT, "tests/live/test_placement.py compares it with a real scheduler and Karpenter")
def node_packing(s: Subject) -> Iterator[Fault]:
    """CPU, memory and disk of a pod are no larger than its share of the node, so that the node's GPUs can all be used."""
    for group in s.layout.groups if s.layout else ():
        pods = group.instance.gpu.count // max(1, group.engine_requests.gpus)
        for key, what, wanted, offered, sidecar in _quantities(group):
            fitting = int(offered // (wanted + sidecar))
            if 0 < fitting < pods:
                message = f"lets {fitting} instead of {pods} pods onto a {group.spec.instance_type}; its other GPUs stay idle"
                place, most = f"{group.path}.{key}", _part(group, offered, sidecar)
                ways = [use(place, most), remove(place)]
                yield Fault(place, message, _given(group, key), f"at most {most} {what}", ways=ways, otherwise=STREAM)


@rule(
    "group-capacity",
    Level.ERROR,
    Stage.LAYOUT,
    "tests/live/test_shortage.py, on a real control plane",
    judges="nodes",
)
def group_capacity(s: Subject) -> Iterator[Fault]:
    """All groups of a pool fit the nodes that are reserved or allowed: half-placed groups hold nodes and never serve."""
    for pool, everybody, bound in bounded(s.layout) if s.layout else ():
        groups = [g for g in everybody if g.served.live]  # of the others speaks rule candidate-capacity
        needed = len(pack(groups)) if groups else 0
        if needed <= bound:
            continue
        widest = max(groups, key=lambda g: (g.size * g.replicas, g.path))
        kind = "reserved" if widest.spec.capacity.type == "reserved" else "allowed"
        others = _paths(groups) if len(groups) > 1 else f"{widest.replicas} x {widest.size} pods"
        number = "autoscaling.maxReplicaCount" if widest.spec.autoscaling else "replicas"
        place = f"{widest.path}.capacity.nodes"
        message = say("is too small: pool {} needs {} nodes for {} and {} are {}", pool, needed, others, bound, kind)
        most = most_replicas(widest, groups, bound)
        ways = [use(f"{widest.path}.{number}", most) if most else [], use(place, needed) if kind == "allowed" else []]
        yield Fault(place, message, widest.spec.capacity.nodes, f"at least {needed}", ways=ways, otherwise=SMALLER[number])


@rule(
    "mixed-pods",
    Level.WARNING,
    Stage.LAYOUT,
    "tests/live/test_placement.py, on a real scheduler and Karpenter",
)
def mixed_pods(s: Subject) -> Iterator[Fault]:
    """Where pods of different size share a pool, the scheduler may spread the small ones over nodes that the large ones need."""
    for pool, groups, bound in bounded(s.layout) if s.layout else ():
        largest = max(groups, key=lambda g: (g.pod_requests.gpus, g.path))
        gpus, size = largest.instance.gpu.count, largest.pod_requests.gpus
        smaller = [g for g in groups if g.pod_requests.gpus < size]
        if not smaller or size > gpus:
            continue
        wanted = sum(g.size * g.replicas for g in groups if g.pod_requests.gpus == size)
        # one place for a large pod is lost on a node as soon as small ones use more than what the large ones leave over
        lost = sum(g.size * g.replicas // (gpus % size // g.pod_requests.gpus + 1) for g in smaller)
        safe = -(-(wanted + lost) // (gpus // size))
        if len(pack(groups)) <= bound < safe:
            spread = f"over pool {pool}, which has at most {bound} nodes"
            message = say("leaves no place for pods of {} GPUs if the scheduler spreads the smaller ones of {} {}", size, _paths(smaller), spread)
            place, asked = f"{largest.path}.capacity.nodes", largest.spec.capacity.nodes
            ways = [use(place, safe) if largest.spec.capacity.type != "reserved" else []]
            advice = "give one of them another instance type or reservation"
            yield Fault(place, message, asked, f"at least {safe}", advice, ways=ways)


@rule("shared-pool", Level.ERROR, Stage.LAYOUT, "our choice: docs/concepts.md")
def shared_pool(s: Subject) -> Iterator[Fault]:
    """Models that share a pool do not state different bounds for it."""
    for groups in (source for members in by_pool(s.layout.groups).values() for source in sources(members)) if s.layout else ():
        stated = {n: g for g in groups if (n := g.spec.capacity.most_nodes) is not None}
        if len(stated) > 1:
            first, *others = sorted(stated.values(), key=lambda g: g.path)
            largest = max(stated)
            for group in others:
                message = say("differs from {}, though both use pool {}", Place.parse(f"{first.path}.capacity.nodes"), group.pool)
                place, same = f"{group.path}.capacity.nodes", first.spec.capacity.nodes
                together: Correction = {f"{g.path}.capacity.nodes": largest for g in stated.values()}
                yield Fault(place, message, group.spec.capacity.nodes, "one bound for all", ways=[use(place, same), [together], remove(place)])


@rule("spot-serving", Level.WARNING, Stage.FORM, f"{EC2}spot-best-practices.html")
def spot_serving(s: Subject) -> Iterator[Fault]:
    """Spot nodes vanish with two minutes' notice, often several of one zone together."""
    for _served, _name, role, path in s.roles():
        if role.capacity.type == "spot":
            place, message = f"{path}.capacity.type", "nodes are taken back with two minutes' notice, often together"
            yield Fault(place, message, "spot", "on-demand, reserved", "reserve what must not go", ways=[use(place, "on-demand")])


@rule("template-outage", Level.INFO, Stage.LAYOUT, f"{LWS}concepts/rollout-strategy/")
def template_outage(s: Subject) -> Iterator[Fault]:
    """With one replica and no room for a second a change of the pods is an outage of that role while it loads again."""
    for group in s.layout.groups if s.layout else ():
        if group.replicas == 1 and not group.surge and group.served.live:
            message = "means that a change of its pods interrupts serving while the model loads again"
            number = "autoscaling.minReplicaCount" if group.spec.autoscaling else "replicas"
            yield Fault(f"{group.path}.{number}", message, 1, "2 or more", "add a replica if that is not acceptable")


@rule(
    "quota",
    Level.INFO,
    Stage.LAYOUT,
    f"{EC2}ec2-capacity-reservations.html#capacity-reservations-limitations and {QUOTAS} (Running On-Demand P instances, L-417A185B)",
)
def quota(s: Subject) -> Iterator[Fault]:
    """P instances on demand count against a quota in vCPUs that is 0 in a new account, and so do those that are reserved on demand."""
    pools = [p for p in s.layout.pools if p.capacity_type == "on-demand" and p.instance.category == "p"] if s.layout else []
    started = sum(p.max_nodes * p.instance.vcpu for p in pools)
    reserved, unsaid = reserved_on_demand(s.layout) if s.layout else (0, False)
    wanted = started + reserved
    if wanted:
        fix = "`aws service-quotas get-service-quota --service-code ec2 --quota-code L-417A185B` shows it"
        parts = [f"may start P instances with {started} vCPUs"] * bool(started) + [f"reserves P instances with {reserved} vCPUs"] * bool(reserved)
        blocks = "; Capacity Blocks among the reservations do not count: say their type" if unsaid else ""
        message = f"{' and '.join(parts)}, which the account's quota L-417A185B has to allow{blocks}"
        yield Fault("models", message, None, f"{wanted} or more", fix)


@rule("price-age", Level.WARNING, Stage.LAYOUT, "our choice: docs/reference/catalogue.md")
def price_age(s: Subject) -> Iterator[Fault]:
    """Prices that make up most of the cost are at most 180 days old; the age of those that come with this package is only said."""
    types = {pool.name: pool.instance.id for pool in s.layout.pools} if s.layout else {}
    for line in old_prices(cost_of(s.layout), today()) if s.layout else ():
        kind = types.get(line.name)
        if kind is not None and s.catalog.instances.is_added(kind):
            message = f"hold no newer price of {kind} than that of {line.as_of}"
            yield Fault("catalogDirs", message, None, f"at most {OLD_DAYS} days old", f"put the price of today into `instances/{kind}.yaml`")
        else:
            newer = say("`--look-up` asks AWS for the one of today, and a folder of {catalogDirs} may hold it") if kind is not None else ""
            age = (today() - date.fromisoformat(line.as_of or "")).days
            yield Fault("models", f"rest on a list price of {line.item} that is {age} days old ({line.as_of})", None, "", newer, Level.INFO)


def _paths(groups: Iterable[Group]) -> Phrase:
    return join(", ", (say("{}", Place.parse(g.path)) for g in groups))


def _small_disks(s: Subject) -> Iterator[Fault]:
    """A pod that downloads the weights asks for local disk that holds them: a smaller pod is evicted in the middle of the download."""
    for served, _name, role, path in s.roles():
        least = local_disk_gib(served)
        if role.ephemeral_storage_gib is not None and least > SCRATCH_GIB and role.ephemeral_storage_gib < least - SCRATCH_GIB:
            message = f"does not hold the weights of {served.spec.model}, {least - SCRATCH_GIB} GiB with 10 % to spare"
            place = f"{path}.ephemeralStorageGiB"
            ways = [use(place, least), remove(place)]
            yield Fault(place, message, role.ephemeral_storage_gib, f"{least} or more", STREAM, ways=ways)


def _quantities(group: Group) -> list[tuple[str, str, float, float, float]]:
    """Key, unit, the engine's request, what a node offers and the sidecar's part, each in the unit."""
    room, ask, own = room_of(group.instance), group.engine_requests, group.sidecar_requests
    return [
        ("cpu", "vCPU", ask.cpu_millis / 1000, room.cpu_millis / 1000, own.cpu_millis / 1000),
        ("memoryGiB", "GiB of memory", ask.memory_mib // 1024, room.memory_mib // 1024, own.memory_mib // 1024),
        ("ephemeralStorageGiB", "GiB of local disk", ask.disk_gib, room.disk_gib, 0),
    ]


def _part(group: Group, offered: float, sidecar: float) -> int:
    """What the engine may ask for when its node's GPUs are all to be used."""
    return int(offered / (group.instance.gpu.count // max(1, group.engine_requests.gpus)) - sidecar)


def _given(group: Group, key: str) -> object:
    return {"cpu": group.spec.cpu, "memoryGiB": group.spec.memory_gib, "ephemeralStorageGiB": group.spec.ephemeral_storage_gib}[key]


def _beside_shm(group: Group) -> int:
    """GiB of memory that processes and EFA devices of a pod need besides /dev/shm."""
    return max(LEAST_GIB, GIB_AN_EFA * group.engine_requests.efa)


def _too_little(path: str, message: str, given: object, enough: int, level: Level | None = None) -> Fault:
    return Fault(path, message, given, f"{enough} or more", level=level, ways=[use(path, enough), remove(path)])
