"""What keeps a manifest from working as it is written, or slows it: the faults that docs/playbook.md explains, looked for in a peer's objects."""

from __future__ import annotations

from collections.abc import Iterator

from .. import labels
from .found import Engine, Found, Kind
from .source import Part

_NIXL_HOST = "VLLM_NIXL_SIDE_CHANNEL_HOST"
_DOWNLOADS = ("HF_HOME", "HF_HUB_CACHE", "TRANSFORMERS_CACHE", "VLLM_CACHE_ROOT")
_SPREADS = ("--nnodes", "-n", "--headless", "--node-rank", "-r", "--data-parallel-address", "-dpa", "--distributed-executor-backend")


def faults_of_pod(engine: Engine, template: Part, container: Part, found: Found) -> None:
    """Look at one pod template and the container that runs the engine."""
    spec = template.at("spec")
    if spec is None:
        return
    for key, part in template.pairs().items():
        if key not in {"metadata", "spec", "apiVersion", "kind", "status"}:
            found.note(Kind.FAULT, part.where, key, "is beside the pod's `spec`, where it is dropped or refused")
            part.use()
    volumes = {one.text("name") for one in spec.each("volumes")}
    lost = [one for one in container.each("volumeMounts") if one.text("name") not in volumes]
    if lost:
        found.note(Kind.FAULT, lost[0].where, "volumeMounts", "names volumes that the pod does not have")
    asked, bound = (container.pairs("resources", side) for side in ("requests", "limits"))
    for key in asked:
        if "/" in key and key not in bound:
            found.note(Kind.FAULT, asked[key].where, f"resources.requests {key}", "has no limit: the API server refuses the pod")
    devices = {*asked, *bound}
    if (engine.nodes > 1 or _connects(engine)) and labels.EFA not in devices:
        why = "the pod asks for no EFA device, so NCCL and NIXL fall back to TCP on p5 nodes"
        found.note(Kind.FAULT, container.where, "resources", why)
    if not any(container.at(probe) for probe in ("startupProbe", "readinessProbe")):
        found.note(Kind.FAULT, container.where, "startupProbe", "there is none: the pod counts as ready while it loads")
    if _connects(engine) and _NIXL_HOST not in engine.variables:
        found.note(Kind.FAULT, container.where, _NIXL_HOST, "is not set: NIXL's side channel listens on localhost")
    _weights(engine, container, found)


def _connects(engine: Engine) -> bool:
    return any("NixlConnector" in word.text for word in engine.words)


def _weights(engine: Engine, container: Part, found: Found) -> None:
    """A mount that looks like one for weights, to which no variable and no flag leads."""
    said = [v.text for n, v in engine.variables.items() if n in _DOWNLOADS] + [word.text for word in engine.words]
    for mount in container.each("volumeMounts"):
        path = mount.text("mountPath").rstrip("/")
        model = any(word in path.lower() for word in ("model", "weights", "huggingface"))
        home = path.endswith(("/.cache/huggingface", "/.cache"))
        if model and not home and not any(path in text for text in said):
            why = "nothing points to this mount: weights are downloaded into the container's own layer"
            found.note(Kind.FAULT, mount.where, "volumeMounts", why)


def faults_of_group(engine: Engine, worker: Engine | None, spec: Part, found: Found) -> None:
    """Look at a LeaderWorkerSet's spec."""
    template = spec.at("leaderWorkerTemplate") or spec
    policy = template.at("restartPolicy")
    if template.text("restartPolicy") == "RecreateGroupOnPodRestart" and policy is not None:
        why = "pods whose images arrive at different times restart each other (https://github.com/kubernetes-sigs/lws/issues/725)"
        found.note(Kind.FAULT, policy.where, "restartPolicy RecreateGroupOnPodRestart", why)
    start = spec.at("startupPolicy")
    if spec.text("startupPolicy") == "LeaderReady" and start is not None:
        found.note(Kind.FAULT, start.where, "startupPolicy LeaderReady", "the leader waits for workers that wait for it")
    if engine.nodes > 1 and not any(_spreads(word.text) for word in [*engine.words, *(worker.words if worker else [])]):
        why = f"leader and worker have the same arguments, so each of {engine.nodes} pods wants all GPUs: no --nnodes, --node-rank or --headless"
        found.note(Kind.FAULT, engine.where, "args", why)


def _spreads(text: str) -> bool:
    return text.split("=", 1)[0].replace("_", "-") in _SPREADS


def faults_of_pool(document: Part, spec: Part, found: Found) -> None:
    """Look at a NodePool."""
    for one in spec.each("requirements"):
        if one.text("key") in labels.INSTANCE_FAMILIES:
            values = ", ".join(str(v.value) for v in one.each("values"))
            why = (
                f"a family holds several types ({values} also p5.4xlarge, with one GPU and no GPUDirect RDMA)"
                if "p5" in values
                else "holds several types"
            )
            found.note(Kind.FAULT, one.where, "instance-family", why)
    reference = spec.at("nodeClassRef")
    if reference is not None and reference.text("name") == "default" and document.text("kind") == "NodePool":
        why = "carries no EFA interfaces and no reservation, and Auto Mode owns it"
        found.note(Kind.FAULT, reference.where, "nodeClassRef default", why)


def untolerated(found: Found, tolerations: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Taints of pools that no pod tolerates, as key and place; `tolerations` are keys and values, an empty value tolerates any."""
    for key, value, where in found.taints:
        if not any(k in {key, ""} and v in {"", value} for k, v in tolerations):
            yield key, where
