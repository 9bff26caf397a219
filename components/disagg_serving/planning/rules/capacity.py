"""Rules about nodes: does each pod fit one, do all groups fit what is reserved or limited, do pods and pools match."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from ... import labels
from ...errors import Level
from ..cost import OLD_DAYS, cost_of, old_prices, today
from ..placement import bounded, by_pool, pack
from ..shapes import LARGE_SHM_GIB, SCRATCH_GIB, SHM_GIB, SMALL_POD_GPUS, Group, local_disk_gib, pool_name, room_of
from .registry import Fault, Stage, Subject, rule

RESERVATION_ID = re.compile(r"cr-[0-9a-f]{8,17}")
GIB_AN_EFA, LEAST_GIB = 4, 8
"""Memory besides /dev/shm: 128 GiB to enumerate 32 EFA devices (awsome-inference#71), and what no engine starts without."""


@rule("reservations", Level.ERROR, Stage.FORM, "AWS: capacityReservationSelectorTerms; karpenter.sh/capacity-type reserved")
def reservations(s: Subject) -> Iterator[Fault]:
    """Reserved capacity names its reservations, each of one instance type, and how many instances they hold; other capacity names none."""
    yield from _misnamed(s)
    for _served, _name, role, path in s.roles():
        capacity = role.capacity
        for i, given in enumerate(capacity.reservation_ids):
            if not RESERVATION_ID.fullmatch(given):
                offering = "; cb- is the offering that was bought, the reservation's own id starts with cr-" if given.startswith("cb-") else ""
                yield Fault(f"{path}.capacity.reservationIds[{i}]", "is not a reservation's id", given, "cr- and hexadecimal digits" + offering)
        if capacity.type == "reserved":
            if not capacity.reservation_ids:
                yield Fault(
                    f"{path}.capacity.reservationIds",
                    "is required with reserved",
                    None,
                    "cr-...",
                    "add the reservations of this type and zone",
                )
            if capacity.nodes is None:
                yield Fault(f"{path}.capacity.nodes", "is required with reserved", None, "the number of reserved instances", "add it")
        elif capacity.reservation_ids:
            yield Fault(
                f"{path}.capacity.type",
                "does not use reservationIds",
                capacity.type,
                "reserved",
                "set type: reserved or remove reservationIds",
            )


@rule("reservation-shared", Level.WARNING, Stage.FORM, "disagg-serving: nodes is the part of a reservation that a pool may take")
def reservation_shared(s: Subject) -> Iterator[Fault]:
    """Pools that share a reservation take together no more instances than it holds, which the stack file alone cannot tell."""
    claims: dict[str, dict[str, tuple[int, str]]] = defaultdict(dict)
    for served, name, role, path in s.roles():
        for given in role.capacity.reservation_ids if s.spec.makes_pools else ():
            claims[given].setdefault(pool_name(name, served.instances[name], role.capacity), (role.capacity.nodes or 0, path))
    for given, pools in claims.items():
        if len(pools) > 1:
            total, path = sum(nodes for nodes, _ in pools.values()), list(pools.values())[-1][1]
            message = f"is shared by pools {', '.join(sorted(pools))}, which may take {total} instances together"
            fix = "see that it holds as many, or give each pool a reservation of its own"
            yield Fault(f"{path}.capacity.reservationIds", message, given, f"a reservation of at least {total}", fix)


@rule("open-reservations", Level.INFO, Stage.FORM, "AWS: Auto Mode and On-Demand Capacity Reservations")
def open_reservations(s: Subject) -> Iterator[Fault]:
    """Once one NodeClass names reservations, Auto Mode no longer uses open ones for any NodeClass of the cluster."""
    for _served, _name, role, path in s.roles():
        if role.capacity.reservation_ids:
            message = "ends the use of open capacity reservations by every other NodeClass of the cluster"
            yield Fault(f"{path}.capacity.reservationIds", message, None, "", "name the open ones where they are wanted")


@rule("pod-fits-node", Level.ERROR, Stage.LAYOUT, "Kubernetes: a pod is placed whole on one node")
def pod_fits_node(s: Subject) -> Iterator[Fault]:
    """One pod asks for no more CPU, memory, disk, GPUs and EFA devices than an empty node offers, and for the disk that its weights take."""
    yield from _small_disks(s)
    for group in s.layout.groups if s.layout else ():
        for key, what, wanted, offered, sidecar in _quantities(group):
            if wanted + sidecar > offered:
                message = f"is too much: pod asks for {wanted + sidecar:g} {what}, more than {group.spec.instance_type} offers"
                fix = _fix_of(group, key, int(offered - sidecar))
                yield Fault(f"{group.path}.{key}", message, _given(group, key), f"at most {offered - sidecar:g}", fix)
        if group.shm_gib * 1024 >= group.engine_requests.memory_mib:
            most = group.engine_requests.memory_mib // 1024 - 1
            yield Fault(
                f"{group.path}.shmGiB", "counts as memory and leaves none for the engine", group.shm_gib, f"at most {most}", "raise memoryGiB"
            )


@rule("host-memory", Level.WARNING, Stage.LAYOUT, "aws-samples/awsome-inference#71: 128 GiB for 32 EFA devices; llm-d: /dev/shm of 20 GiB up to TP4")
def host_memory(s: Subject) -> Iterator[Fault]:
    """Beside /dev/shm, memory is left for the engine's processes and its EFA devices; CPU and /dev/shm are what such pods run with."""
    for group in s.layout.groups if s.layout else ():
        ask, gpus = group.engine_requests, group.engine_requests.gpus
        memory, shm = ask.memory_mib // 1024, group.shm_gib
        wanted = max(LEAST_GIB, GIB_AN_EFA * ask.efa)
        if shm < memory < shm + wanted:
            level = Level.ERROR if memory < shm + LEAST_GIB else None
            message = f"leaves {memory - shm} GiB beside shmGiB {shm} for processes and {ask.efa} EFA devices"
            yield Fault(f"{group.path}.memoryGiB", message, group.spec.memory_gib, f"{shm + wanted} or more", "raise it or leave it out", level)
        if ask.cpu_millis < 1000 * gpus:
            message = f"is less than a vCPU a GPU, each of which has a process that must keep up with it ({gpus} a pod)"
            yield Fault(f"{group.path}.cpu", message, group.spec.cpu, f"{gpus} or more", "raise it or leave it out")
        usual = SHM_GIB if gpus <= SMALL_POD_GPUS else LARGE_SHM_GIB
        if shm < usual and gpus > 1:
            message = f"is less than pods of {gpus} GPUs are known to run with"
            yield Fault(f"{group.path}.shmGiB", message, group.spec.shm_gib, f"{usual} or more", "raise it or leave it out")


@rule("node-packing", Level.WARNING, Stage.LAYOUT, "placement simulation over the generated pools")
def node_packing(s: Subject) -> Iterator[Fault]:
    """CPU, memory and disk of a pod are no larger than its share of the node, so that the node's GPUs can all be used."""
    for group in s.layout.groups if s.layout else ():
        pods = group.instance.gpu.count // max(1, group.engine_requests.gpus)
        for key, what, wanted, offered, sidecar in _quantities(group):
            fitting = int(offered // (wanted + sidecar))
            if 0 < fitting < pods:
                message = f"lets {fitting} instead of {pods} pods onto a {group.spec.instance_type}; its other GPUs stay idle"
                allowed = f"at most {int(offered / pods - sidecar)} {what}"
                yield Fault(f"{group.path}.{key}", message, _given(group, key), allowed, "lower it or leave it out")


@rule(
    "group-capacity",
    Level.ERROR,
    Stage.LAYOUT,
    "disagg-serving, seen on a real control plane: two groups on capacity for one and a half deadlock, each holding half",
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
        others = f" for {', '.join(g.path for g in groups)}" if len(groups) > 1 else f" for {widest.replicas} x {widest.size} pods"
        number = "autoscaling.maxReplicaCount" if widest.spec.autoscaling else "replicas"
        fix = f"set {number} to {_most_replicas(widest, bound)}" if len(groups) == 1 and _most_replicas(widest, bound) else f"lower {number}"
        yield Fault(
            f"{widest.path}.capacity.nodes", f"is too small: pool {pool} needs {needed} nodes{others} and {bound} are {kind}",
            widest.spec.capacity.nodes, f"at least {needed}", fix,
        )  # fmt: skip


@rule(
    "mixed-pods",
    Level.WARNING,
    Stage.LAYOUT,
    "disagg-serving, seen on a real scheduler and Karpenter: half-node pods took the node of a whole-node one",
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
            message = f"leaves no place for pods of {size} GPUs if the scheduler spreads the smaller ones of {', '.join(g.path for g in smaller)}"
            yield Fault(
                f"{largest.path}.capacity.nodes", f"{message} over pool {pool}, which has at most {bound} nodes",
                largest.spec.capacity.nodes, f"at least {safe}", "raise it, or give one of them another instance type or reservation",
            )  # fmt: skip


@rule("shared-pool", Level.ERROR, Stage.LAYOUT, "disagg-serving: one NodePool a role, instance type and capacity source")
def shared_pool(s: Subject) -> Iterator[Fault]:
    """Models that share a pool do not state different bounds for it."""
    for groups in by_pool(s.layout.groups).values() if s.layout else ():
        stated = {g.spec.capacity.nodes: g for g in groups if g.spec.capacity.nodes is not None}
        if len(stated) > 1:
            first, *others = sorted(stated.values(), key=lambda g: g.path)
            for group in others:
                message = f"differs from {first.path}.capacity.nodes, though both use pool {group.pool}"
                yield Fault(f"{group.path}.capacity.nodes", message, group.spec.capacity.nodes, str(first.spec.capacity.nodes), "state it once")


@rule("pods-match-pools", Level.ERROR, Stage.LAYOUT, "Kubernetes: node selectors, taints and tolerations", firm=True)
def pods_match_pools(s: Subject) -> Iterator[Fault]:
    """Every pod's selector matches exactly one pool, it tolerates that pool's taints, and no foreign pod does."""
    if s.layout is None or not s.layout.pools:
        return
    for group in s.layout.groups:
        matching = [
            p for p in s.layout.pools
            if all({**p.labels, labels.ZONE: p.zone}.get(k) == v for k, v in group.node_selector.items())
            and all(any(t["key"] == taint["key"] and t.get("value") == taint["value"] for t in group.tolerations) for taint in p.taints)
        ]  # fmt: skip
        if [p.name for p in matching] != [group.pool]:
            found = ", ".join(p.name for p in matching) or "none"
            yield Fault(group.path, f"its pods match these pools: {found}", None, group.pool, "report this: the program made both")


@rule("spot-serving", Level.WARNING, Stage.FORM, "AWS: spot is not advised for real-time serving")
def spot_serving(s: Subject) -> Iterator[Fault]:
    """Spot nodes vanish with two minutes' notice, often several of one zone together."""
    for _served, _name, role, path in s.roles():
        if role.capacity.type == "spot":
            yield Fault(f"{path}.capacity.type", "nodes are taken back with two minutes' notice, often together", "spot", "on-demand, reserved")


@rule("template-outage", Level.INFO, Stage.LAYOUT, "LWS: rolling update with maxSurge 0")
def template_outage(s: Subject) -> Iterator[Fault]:
    """With one replica and no room for a second a change of the pods is an outage of that role while it loads again."""
    for group in s.layout.groups if s.layout else ():
        if group.replicas == 1 and not group.surge and group.served.live:
            message = "means that a change of its pods interrupts serving while the model loads again"
            number = "autoscaling.minReplicaCount" if group.spec.autoscaling else "replicas"
            yield Fault(f"{group.path}.{number}", message, 1, "2 or more", "add a replica if that is not acceptable")


@rule("quota", Level.INFO, Stage.LAYOUT, "AWS: Service Quotas L-417A185B, Running On-Demand P instances, in vCPUs; 0 in new accounts")
def quota(s: Subject) -> Iterator[Fault]:
    """On-demand P instances count against a quota in vCPUs that is 0 in a new account."""
    pools = [p for p in s.layout.pools if p.capacity_type == "on-demand" and p.instance.category == "p"] if s.layout else []
    wanted = sum(p.max_nodes * p.instance.vcpu for p in pools)
    if wanted:
        fix = "aws service-quotas get-service-quota --service-code ec2 --quota-code L-417A185B"
        yield Fault(
            "models", f"may start P instances with {wanted} vCPUs, which the account's quota L-417A185B has to allow", None, f"{wanted} or more", fix
        )


@rule("price-age", Level.WARNING, Stage.LAYOUT, "disagg-serving: prices are data with a date")
def price_age(s: Subject) -> Iterator[Fault]:
    """Prices that make up most of the cost are at most 180 days old."""
    for line in old_prices(cost_of(s.layout), today()) if s.layout else ():
        fix = "give a newer one in a catalogue folder of your own (catalogDirs)"
        yield Fault("catalogDirs", f"hold no newer price of {line['item']} than that of {line['asOf']}", None, f"at most {OLD_DAYS} days old", fix)


def _misnamed(s: Subject) -> Iterator[Fault]:
    """Reservations that stand twice in a list, or with two instance types."""
    first: dict[str, tuple[str, str]] = {}
    for _served, _name, role, path in s.roles():
        place = f"{path}.capacity.reservationIds"
        for given, times in Counter(role.capacity.reservation_ids).items():
            if times > 1:
                yield Fault(place, f"name {given} {times} times, which adds no instances", None, "each reservation once", "remove it", Level.WARNING)
            other, instance_type = first.setdefault(given, (path, role.instance_type))
            if instance_type != role.instance_type:
                message = f"is that of {other}, whose nodes are {instance_type}"
                yield Fault(place, message, given, f"reservations of {role.instance_type}", "name another, or use the same instanceType")


def _small_disks(s: Subject) -> Iterator[Fault]:
    """A pod that downloads the weights asks for local disk that holds them: a smaller pod is evicted in the middle of the download."""
    for served, _name, role, path in s.roles():
        least = local_disk_gib(served)
        if role.ephemeral_storage_gib is not None and least > SCRATCH_GIB and role.ephemeral_storage_gib < least - SCRATCH_GIB:
            message = f"does not hold the weights of {served.spec.model}, {least - SCRATCH_GIB} GiB with 10 % to spare"
            fix = f"set {least}, leave it out, or stream the weights with weights.s3"
            yield Fault(f"{path}.ephemeralStorageGiB", message, role.ephemeral_storage_gib, f"{least} or more", fix)


def _quantities(group: Group) -> list[tuple[str, str, float, float, float]]:
    """Key, unit, the engine's request, what a node offers and the sidecar's part, each in the unit."""
    room, ask, own = room_of(group.instance), group.engine_requests, group.sidecar_requests
    return [
        ("cpu", "vCPU", ask.cpu_millis / 1000, room.cpu_millis / 1000, own.cpu_millis / 1000),
        ("memoryGiB", "GiB of memory", ask.memory_mib // 1024, room.memory_mib // 1024, own.memory_mib // 1024),
        ("ephemeralStorageGiB", "GiB of local disk", ask.disk_gib, room.disk_gib, 0),
    ]


def _given(group: Group, key: str) -> object:
    return {"cpu": group.spec.cpu, "memoryGiB": group.spec.memory_gib, "ephemeralStorageGiB": group.spec.ephemeral_storage_gib}[key]


def _fix_of(group: Group, key: str, most: int) -> str:
    """What to do about a pod that is too large: without a value in the stack file there is none to leave out."""
    if _given(group, key) is not None:
        return "lower it or leave it out"
    if key == "ephemeralStorageGiB":
        return "stream the weights with weights.s3, or use an instance type with more local disk"
    return f"set {key}: {most}" if most > 0 else "use a larger instance type"


def _most_replicas(group: Group, nodes: int) -> int:
    per_node = len(next(iter(pack([group])), _Nothing).pods) if group.size == 1 else 1
    return nodes * per_node // group.size


class _Nothing:
    pods: tuple[str, ...] = ()
