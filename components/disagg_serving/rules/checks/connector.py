"""Rules about the KV connector: settings without effect, what was never run, and the host memory that it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator

from ...errors import Level
from ...forecast.capacities import capacity_of
from ...phrases import say
from ...planning.connector import connector_of
from ...planning.host_memory import offload_in_shm, offloaded_gib, usual_shm_gib
from ...planning.shapes import Group, room_of
from ..documents import NIXL_CONNECTOR, VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use

PROCESSES_GIB = 8
"""Least of an engine's processes beside what they keep of KV."""
SETTINGS = ("mode", "leaseSeconds", "bufferDevice", "loadFailurePolicy", "numThreads")


@rule("connector-settings", Level.WARNING, Stage.FORM, f"{NIXL_CONNECTOR}base_worker.py and {NIXL_CONNECTOR}base_scheduler.py")
def connector_settings(s: Subject) -> Iterator[Fault]:
    """A setting of the connector takes effect: in server mode no KV moves, and LIBFABRIC takes no threads."""
    for served in s.served:
        model = served.spec
        of_roles = [(f"{served.path}.{name}", role.connector) for name, role in model.roles.items()]
        for path, connector in ((served.path, model.connector), *of_roles):
            given = {field.alias: name for name, field in type(connector).model_fields.items() if name in connector.model_fields_set}
            for key in (k for k in SETTINGS if k in given):
                place, value = f"{path}.connector.{key}", getattr(connector, given[key])
                if not model.disaggregated:
                    yield Fault(place, "has no effect in server mode, where no KV moves", value, "without it", ways=[remove(place)])
                elif key == "numThreads":
                    message = "has no effect: it is of NIXL's UCX backend, and KV moves over EFA by LIBFABRIC"
                    yield Fault(place, message, value, "without it", ways=[remove(place)])
                elif key == "loadFailurePolicy" and path.endswith(".prefill"):
                    yield Fault(place, "has no effect: decode loads KV", value, "without it", ways=[remove(place)])


@rule("connector-unverified", Level.WARNING, Stage.FORM, "docs/proof.md")
def connector_unverified(s: Subject) -> Iterator[Fault]:
    """What was never run on EFA is said, and measured before it is relied on: the push connector, stages on prefill, buffers on the CPU."""
    measure = "run it with your traffic before you rely on it"
    for served in s.served:
        connector, prefill = served.spec.connector, served.spec.prefill
        if not served.spec.disaggregated:
            continue
        if connector.mode == "push":
            place = f"{served.path}.connector.mode"
            yield Fault(place, "unverified: never run on EFA", "push", "pull", measure, ways=[remove(place)])
            if prefill and prefill.pipeline_parallel > 1:
                place = f"{served.path}.prefill.pipelineParallel"
                yield Fault(place, "unverified: never run on EFA", prefill.pipeline_parallel, "1", measure)
        if connector.buffer_device == "cpu":
            place = f"{served.path}.connector.bufferDevice"
            message = "unverified: never run on EFA; each transfer is copied to host memory and back"
            yield Fault(place, message, "cpu", "cuda", measure, ways=[remove(place)])
        for name in served.spec.roles:
            if connector_of(served.spec, name).offload:
                place = f"{served.path}.{name}.connector.offload"
                yield Fault(place, "unverified: offload beside NIXL was never run on EFA", None, "without it", measure, Level.INFO)


@rule("engine-lmcache", Level.ERROR, Stage.FORM, f"{VLLM}vllm/distributed/kv_transfer/kv_connector/v1/lmcache_connector.py")
def engine_lmcache(s: Subject) -> Iterator[Fault]:
    """LMCache keeps KV only with an image that holds it, and where prefill and decode have hybrid attention on both roles alike."""
    for served in s.served:
        using = [name for name in served.spec.roles if (o := connector_of(served.spec, name).offload) and o.backend == "lmcache"]
        hybrid = served.facts.sliding_window is not None or served.facts.linear_attention is not None
        for name in using:
            own = "offload" in served.spec.roles[name].connector.model_fields_set
            path = f"{served.path}.{name}.connector.offload.backend" if own else f"{served.path}.connector.offload.backend"
            if served.engine.lmcache is None:
                message = f"is not known to be in {served.engine.image}: no public build file of that release that was read installs it"
                fix = say("add an engine to a folder of {catalogDirs} whose entry says `lmcache` with its version, and the build file as its source")
                yield Fault(path, message, "lmcache", "native", fix, ways=[use(path, "native")])
            elif hybrid and served.spec.disaggregated and len(using) == 1:
                message = "turns the hybrid KV cache manager off on this role alone, and NIXL's compatibility hash holds it"
                yield Fault(path, message, "lmcache", "native, or lmcache on both roles", ways=[use(path, "native")])


@rule("host-kv", Level.ERROR, Stage.LAYOUT, f"{VLLM}vllm/v1/kv_offload/cpu/shared_offload_region.py", judges="nodes")
def host_kv(s: Subject) -> Iterator[Fault]:
    """What a pod keeps of KV in host memory is in its /dev/shm, its memory and its node."""
    for group in s.layout.groups if s.layout else ():
        model, memory = group.served.spec, group.engine_requests.memory_mib / 1024
        kept = offloaded_gib(model, group.role, group.size)
        least, most = _buffered(group)
        if not kept and not most:
            continue
        where, value = _place(group)
        needed = math.ceil(kept + least) + PROCESSES_GIB
        room = room_of(group.instance).memory_mib // 1024
        if kept and offload_in_shm(model, group.role) and group.shm_gib < kept:
            place = f"{group.path}.shmGiB"
            message = f"does not hold the {kept:g} GiB of KV that each pod keeps there, so vLLM stops"
            ways = [use(place, math.ceil(kept) + usual_shm_gib(group.engine_requests.gpus)), remove(place)]
            yield Fault(place, message, group.shm_gib, f"{math.ceil(kept)} or more", ways=ways)
        what = f"{kept + least:.0f} GiB of KV in host memory and {PROCESSES_GIB} GiB for processes"
        if memory < needed:
            roomy = [use(f"{group.path}.memoryGiB", needed)] if needed <= room else []
            message = f"takes more memory than a pod asks for: {what}, of {memory:.0f} GiB"
            enough = int(memory - PROCESSES_GIB - least) * group.size // group.spec.data_parallel
            less = use(where, enough) if kept and enough >= 1 else []
            yield Fault(where, message, value, "what fits the pod's memory", ways=[*roomy, less], otherwise="use an instance type with more memory")
        elif memory < math.ceil(kept + most) + PROCESSES_GIB:
            message = f"may take more memory than a pod asks for: up to {kept + most:.0f} GiB of KV, of {memory:.0f} GiB"
            ways = [use(f"{group.path}.memoryGiB", math.ceil(kept + most) + PROCESSES_GIB)]
            yield Fault(where, message, value, "what fits the pod's memory", level=Level.WARNING, ways=ways)


def _buffered(group: Group) -> tuple[float, float]:
    """Least and most GiB of a pod's host memory into which NIXL copies the whole KV cache of its GPUs."""
    if group.served.spec.connector.buffer_device != "cpu" or group.role == "server":
        return 0, 0
    found = capacity_of(group)
    gpus = group.engine_requests.gpus
    return (found.kv_gib.low * gpus, found.kv_gib.high * gpus) if found else (0, 0)


def _place(group: Group) -> tuple[str, object]:
    """What to lower: the offload of the role or of the model, or the buffers."""
    model = group.served.spec
    if (offload := connector_of(model, group.role).offload) is None:
        return f"{group.served.path}.connector.bufferDevice", "cpu"
    own = "offload" in model.roles[group.role].connector.model_fields_set
    return f"{group.path if own else group.served.path}.connector.offload.hostGiB", offload.host_gib
