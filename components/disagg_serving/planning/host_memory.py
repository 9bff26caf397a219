"""Host memory of a pod that has a use of its own: /dev/shm, and KV that is kept outside of the GPUs."""

from __future__ import annotations

import math

from ..spec import ModelSpec
from ..spec.serving import RoleName
from .connector import connector_of

SHM_GIB, LARGE_SHM_GIB, SMALL_POD_GPUS = 20, 64, 4
"""Shared memory up to four GPUs and above: what llm-d uses for tensor parallelism, and the least of the samples for whole nodes."""


def usual_shm_gib(gpus: int) -> int:
    """Shared memory of a pod of so many GPUs, without KV that is kept there."""
    return SHM_GIB if gpus <= SMALL_POD_GPUS else LARGE_SHM_GIB


def shm_gib_of(model: ModelSpec, name: RoleName, gpus: int, pods: int) -> int:
    """Shared memory of a role's pods: what the role says, else the usual and what is kept there of KV."""
    kept = math.ceil(offloaded_gib(model, name, pods)) if offload_in_shm(model, name) else 0
    return model.roles[name].shm_gib or usual_shm_gib(gpus) + kept


def offloaded_gib(model: ModelSpec, name: RoleName, pods: int) -> float:
    """Host memory of one pod that holds KV, of an engine of so many pods."""
    offload, role = connector_of(model, name).offload, model.roles[name]
    return offload.host_gib * role.data_parallel / pods if offload else 0


def offload_in_shm(model: ModelSpec, name: RoleName) -> bool:
    """Whether that memory is a file in /dev/shm (vllm: v1/kv_offload/cpu/shared_offload_region.py)."""
    offload = connector_of(model, name).offload
    return offload is not None and offload.backend == "native"
