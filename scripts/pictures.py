"""The pictures of docs/concepts.md, drawn from the shipped stacks, the catalogue and the recorded program. Written by scripts/generate.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path

from disagg_serving.document.resource import Resource
from disagg_serving.manifests.network_policy import PROXY_PORT
from disagg_serving.manifests.node_pools import network_interfaces
from disagg_serving.manifests.serving import build_leader_worker_set
from disagg_serving.planning.shapes import API_PORT, Group, Layout
from disagg_serving.recording.graph import Graph
from disagg_serving.recording.picture import DrawnNode, DrawnPool, scenes_of
from disagg_serving.recording.recorder import record
from disagg_serving.rules.evaluation import evaluate_file
from disagg_serving.spec.stack_file import ENVIRONMENT_KEY, find_project

from scripts.svg import arrow, box, lines, picture, text

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs/pictures"
SHIPPED = find_project(ROOT / "tests/data/shipped")
"""The stacks as they are shipped: frozen copies, since those in stacks/ are their owner's to edit."""


@cache
def layout_of(stack: str) -> Layout:
    """The layout of a shipped stack."""
    return evaluate_file(SHIPPED.stack_file(stack), SHIPPED.root).require_layout()


@cache
def recorded(stack: str) -> Graph:
    """The recorded program of a shipped stack."""
    file = SHIPPED.stack_file(stack)
    return record(SHIPPED.root, SHIPPED.name, stack, {**file.config, ENVIRONMENT_KEY: file.environment}, file.secrets).graph


def _roles(layout: Layout) -> dict[str, Group]:
    return {group.role: group for group in layout.groups}


# ---- the way of a request ---------------------------------------------------------------------------------------------------------------------


def request_path() -> str:
    """How a request of the stack prod runs through router, prefill and decode."""
    layout = layout_of("prod")
    roles = _roles(layout)
    prefill, decode = roles["prefill"], roles["decode"]
    parts = [box(20, 122, 110, 76), *lines(75, 156, ["client", "HTTP, SSE"])]
    parts += [box(190, 122, 130, 76), *lines(255, 156, ["load balancer", "internal NLB"])]
    parts += [box(380, 92, 160, 136), *lines(460, 134, ["router", f"Envoy, port {PROXY_PORT}", "endpoint picker", "chooses one of each"])]
    parts += [
        box(620, 14, 264, 104, "prefill"),
        *lines(752, 42, [_count(prefill), f"vLLM, port {prefill.engine_port}", f"{_devices(prefill)} per pod"]),
    ]
    parts += [box(620, 222, 264, 118, "decode")]
    parts += lines(752, 250, [_count(decode), f"routing sidecar, port {API_PORT}", f"vLLM, port {decode.engine_port}", f"{_devices(decode)} per pod"])
    parts += [arrow([(130, 146), (188, 146)]), text(154, 138, "1", "strong"), arrow([(320, 146), (378, 146)])]
    parts += [arrow([(540, 200), (580, 262), (618, 262)]), text(584, 252, "2", "strong")]
    parts += [arrow([(660, 222), (660, 120)]), text(642, 176, "3", "strong")]
    parts += [
        arrow([(810, 118), (810, 216)], "kv"),
        text(824, 176, "4", "strong"),
        text(686, 164, "KV cache by", "small"),
        text(686, 181, "NIXL over EFA", "small"),
    ]
    back = [[(618, 318), (460, 318), (460, 230)], [(378, 178), (322, 178)], [(188, 178), (132, 178)]]
    parts += [*(arrow(way, "back") for way in back), text(530, 310, "5", "strong"), text(344, 194, "5", "strong"), text(154, 194, "5", "strong")]
    steps = [
        "1  the request reaches the router, which takes headers off that clients may not set",
        "2  it goes to the sidecar of a decode pod, with the address of a prefill pod",
        "3  the sidecar has the prompt calculated there, with an answer of one token",
        "4  decode reads the prompt's KV cache from the memory of prefill's GPUs",
        "5  decode writes the answer, token by token: through its sidecar, the router and the load balancer back to the client",
    ]
    parts += [text(20, 376 + 22 * i, step) for i, step in enumerate(steps)]
    said = "A request goes from the client through load balancer and router to a decode pod, whose sidecar sends the prompt to a prefill pod. "
    return picture(900, 482, "The way of a request", said + "The KV cache then moves from prefill to decode over EFA. " + " ".join(steps), parts)


def _count(group: Group) -> str:
    return f"{group.replicas} x {group.role}, {group.spec.tensor_parallel} GPUs each"


def _devices(group: Group) -> str:
    return f"{group.engine_requests.gpus} GPUs, {group.engine_requests.efa} EFA devices"


# ---- EFA on a p5 node -------------------------------------------------------------------------------------------------------------------------


def efa_layout() -> str:
    """GPUs and EFA devices of the nodes of the stack prod, with the pods that hold them."""
    layout = layout_of("prod")
    (scene,) = scenes_of(layout)
    instance = layout.groups[0].instance
    interfaces = network_interfaces(instance)
    efa = sum(i["interfaceType"] == "efa-only" for i in interfaces)
    parts = [text(20, 30, f"{instance.id}: {instance.gpu.count} GPUs, {instance.efa.network_cards} network cards", "strong")]
    parts += [
        text(
            20,
            48,
            f"card 0 carries the one interface with an address and an EFA device; cards 1 to {instance.efa.network_cards - 1} an EFA device each",
            "small",
        )
    ]
    y = 70
    for pool in scene.pools:
        parts += _node(pool, pool.nodes[0], y)
        y += 190
    parts += [
        text(
            20,
            y + 6,
            "Each GPU is drawn above its share of the devices. Which devices a pod smaller than a node gets is chosen by the device plugin,",
            "small",
        )
    ]
    parts += [text(20, y + 22, "on Auto Mode not by the GPU that they are next to (rule efa-alignment).", "small")]
    nodes = "; ".join(
        f"{p.name}: {', '.join(f'{pod.name} with {pod.gpus} GPUs and {pod.efa} EFA devices' for pod in p.nodes[0].pods)}" for p in scene.pools
    )
    said = f"A {instance.id} has {instance.gpu.count} GPUs and {efa} EFA devices on {instance.efa.network_cards} cards. {nodes}."
    return picture(900, y + 40, f"EFA devices of a {instance.id}", said, parts)


def _node(pool: DrawnPool, node: DrawnNode, y: int) -> list[str]:
    each = node.efa // node.gpus
    wide = 860 / node.gpus
    parts = [text(20, y + 14, f"node of pool {pool.name}", "strong"), box(20, y + 22, 860, 136)]
    at = 0
    for pod in node.pods:
        x = 20 + at * wide
        parts += [box(x + 4, y + 28, pod.gpus * wide - 8, 124, pod.role), text(x + 12, y + 46, pod.name, "small")]
        for i in range(pod.gpus):
            left = x + i * wide + 12
            parts += [box(left, y + 54, wide - 24, 40, "box"), text(left + (wide - 24) / 2, y + 79, f"GPU {at + i}", "", "middle")]
            slot = (wide - 24) / each
            for j in range(each):
                card = (at + i) * each + j
                parts += [
                    box(left + j * slot + 1, y + 108, slot - 2, 34, "box"),
                    text(left + (j + 0.5) * slot, y + 130, str(card), "small", "middle"),
                ]
            parts.append(f'<path class="way" d="M{left + (wide - 24) / 2:g} {y + 94}V{y + 108}"/>')
        at += pod.gpus
    return parts


# ---- groups of the LeaderWorkerSet ------------------------------------------------------------------------------------------------------------


def lws_groups() -> str:
    """LeaderWorkerSets of the stacks prod and glm5-pp: engines of one pod, and an engine over nodes."""
    parts: list[str] = []
    y, said = 20, []
    for stack in ("prod", "glm5-pp"):
        for group in layout_of(stack).groups:
            drawn, height = _set(group, y)
            parts += drawn
            said.append(f"{group.name}: {group.replicas} groups of {group.size} pods, restart policy {_restart(group)}")
            y += height
    parts += [text(20, y + 8, "Services, router and autoscaler see leaders only (label worker-index 0): a worker has no HTTP server.", "small")]
    return picture(900, y + 24, "Groups of LeaderWorkerSets", "; ".join(said) + ". Requests reach the leader of each group only.", parts)


def _set(group: Group, y: int) -> tuple[list[str], int]:
    head = f"{group.name}: replicas {group.replicas}, size {group.size}, restartPolicy {_restart(group)}"
    parts = [text(20, y + 12, head, "strong")]
    wide = 205 if group.size == 1 else 260
    gap = 12 if group.size == 1 else 110
    for g, pods in enumerate(group.pods()):
        x = 20 + g * (len(pods) * (wide + gap))
        if group.size > 1:
            parts.append(box(x, y + 24, len(pods) * wide + gap * (len(pods) - 1) + 24, 96, "box"))
        for i, pod in enumerate(pods):
            left = x + i * (wide + gap) + (12 if group.size > 1 else 0)
            role = "leader, answers HTTP" if i == 0 else "worker, headless"
            parts += [box(left, y + 34, wide, 76, group.role), *lines(left + wide / 2, y + 58, [pod, role, _devices(group)])]
            if i:
                parts += [
                    arrow([(left - gap + 2, y + 72), (left - 2, y + 72)], both=True),
                    text(left - gap / 2, y + 64, "NCCL over EFA", "small", "middle"),
                ]
    return parts, 140


def _restart(group: Group) -> str:
    return str(build_leader_worker_set(group)["spec"]["leaderWorkerTemplate"]["restartPolicy"])


# ---- the order of destroy ---------------------------------------------------------------------------------------------------------------------

Part = Callable[[Resource], bool]
STEP, HIGH, MIDDLE = 80, 50, 450
"""Pixels from one level to the next, of a box, and to the middle."""


def _of(*types: str) -> Part:
    return lambda resource: any(resource.type.startswith(t) for t in types)


def _named(ending: str) -> Part:
    return lambda resource: resource.type == "kubernetes:helm.sh/v4:Chart" and resource.name.endswith(ending)


PARTS: Mapping[str, tuple[Sequence[str], Part]] = {
    "routers": (
        ("routers and their load balancers",),
        lambda r: _named("-router")(r) or (_of("kubernetes:core/v1:Service")(r) and r.name.endswith("-gateway")),
    ),
    "engines": (("LeaderWorkerSets",), _of("kubernetes:leaderworkerset.x-k8s.io")),
    "controller": (("LeaderWorkerSet controller", "its CRDs stay"), _named("-lws")),
    "pools": (("NodePools", "each waits until its nodes are gone"), _of("kubernetes:karpenter.sh")),
    "classes": (("NodeClasses",), _of("kubernetes:eks.amazonaws.com")),
    "access": (("access entry of the GPU nodes' role",), _of("aws:eks/access")),
    "cluster": (("EKS cluster",), _of("eks:index:Cluster")),
    "identity": (
        ("role of the cluster, its policies", "and the KMS key of its secrets"),
        lambda r: _of("aws:kms/key")(r) or (_of("aws:iam/role")(r) and "-cluster" in r.name),
    ),
    "node-role": (("role of the GPU nodes",), lambda r: _of("aws:iam/role:")(r) and r.name.endswith("-gpu-node")),
    "routes": (
        ("routes, NAT gateways", "S3 endpoint"),
        _of("aws:ec2/route:", "aws:ec2/natGateway", "aws:ec2/vpcEndpoint", "aws:ec2/routeTableAssociation"),
    ),
    "subnets": (("subnets",), _of("aws:ec2/subnet")),
    "vpc": (("VPC",), _of("aws:ec2/vpc:")),
}
"""What the picture shows, each with the resources that it stands for."""


def requirements(graph: Graph) -> dict[str, set[str]]:
    """Each part with the parts of which every resource outlives every resource of it."""
    members = {name: [r for r in graph.resources.values() if belongs(r)] for name, (_, belongs) in PARTS.items()}
    required = {name: [graph.requires(r.urn) for r in found] for name, found in members.items()}
    return {
        name: {other for other in PARTS if other != name and all({r.urn for r in members[other]} <= needs for needs in required[name])}
        for name in PARTS
    }


def destroy_order() -> str:
    """What goes before what when the stack prod is destroyed, from the dependencies of the recorded program."""
    needs = requirements(recorded("prod"))
    levels = _levels(needs)
    places: dict[str, tuple[float, float, float]] = {}
    parts = []
    for i, names in enumerate(levels):
        width = min((860 - 20 * (len(names) - 1)) / len(names), 400)
        for j, name in enumerate(names):
            left = MIDDLE - (len(names) * width + 20 * (len(names) - 1)) / 2 + j * (width + 20)
            top = 44 + STEP * i
            places[name] = (left, width, top)
            kind = {"engines": "decode", "pools": "prefill", "classes": "prefill"}.get(name, "box")
            words = PARTS[name][0]
            parts += [box(left, top, width, HIGH, kind), *lines(left + width / 2, top + (30 if len(words) == 1 else 21), words)]
    for name, below in _direct(needs).items():
        for other in below:
            (left, width, y), (to_left, to_width, to_y) = places[name], places[other]
            way = [(left + width / 2, y + HIGH), (to_left + to_width / 2, to_y - 2)]
            if to_y - y > STEP:  # past the boxes between
                x, side = (60, left) if to_left < MIDDLE else (840, left + width)
                way = [*([(x, y + HIGH)] if left < x < left + width else [(side, y + HIGH / 2), (x, y + HIGH / 2)]), (x, to_y - 2)]
            parts.append(arrow(way))
    parts.insert(0, text(20, 26, "pulumi destroy goes from top to bottom, pulumi up from bottom to top", "strong"))
    order = "; then ".join(" and ".join(" ".join(PARTS[n][0]) for n in names) for names in levels)
    return picture(900, 44 + STEP * len(levels), "Order of destroy", f"Deleted in this order: {order}.", parts)


def _levels(needs: Mapping[str, set[str]]) -> list[list[str]]:
    """The parts by when they come at the soonest, the last ones first: each level is required by levels before it only."""
    left, levels = dict(needs), list[list[str]]()
    while left:
        free = [name for name, below in left.items() if not below & left.keys()]
        levels.insert(0, free)
        left = {name: below for name, below in left.items() if name not in free}
    return levels


def _direct(needs: Mapping[str, set[str]]) -> dict[str, Sequence[str]]:
    """Requirements without those that follow from others."""
    return {name: [o for o in PARTS if o in found and not any(o in needs[m] for m in found)] for name, found in needs.items()}


def pictures() -> dict[Path, str]:
    """Every picture by its file."""
    return {
        FOLDER / "request-path.svg": request_path(),
        FOLDER / "efa-layout.svg": efa_layout(),
        FOLDER / "lws-groups.svg": lws_groups(),
        FOLDER / "destroy-order.svg": destroy_order(),
    }
