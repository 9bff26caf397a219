"""The connector of a role's engines as vLLM takes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..spec import ModelSpec, RoleSpec
from ..spec.connector import KvOffloadSpec
from ..spec.serving import RoleName

BACKENDS = ("LIBFABRIC",)
GIB = 2**30
_OFFLOADING = {"native": "OffloadingConnector", "lmcache": "LMCacheConnectorV1"}


@dataclass(frozen=True)
class Connector:
    """The settings that take effect on one role; what is None is left to vLLM."""

    nixl: bool
    mode: Literal["pull", "push"]
    load_failure_policy: str
    lease_seconds: int | None
    num_threads: int | None
    buffer_device: str | None
    offload: KvOffloadSpec | None


def connector_of(model: ModelSpec, name: RoleName) -> Connector:
    """A role's connector: the model's settings, and the role's own where it says them."""
    shared, own = model.connector, model.roles[name].connector
    return Connector(
        nixl=name != "server",
        mode=shared.mode,
        load_failure_policy=own.load_failure_policy or shared.load_failure_policy or "fail",
        lease_seconds=shared.lease_seconds,
        num_threads=own.num_threads or shared.num_threads,
        buffer_device=shared.buffer_device,
        offload=own.offload if "offload" in own.model_fields_set else shared.offload,
    )


def kv_transfer_config(model: ModelSpec, name: RoleName) -> dict[str, Any] | None:
    """What follows --kv-transfer-config; None for a server that keeps no KV in host memory.

    No engine_id: replicas would share it and miss a peer's restart. vLLM reads the failure policy of the outer connector alone.
    """
    connector, role = connector_of(model, name), model.roles[name]
    policy = {"kv_load_failure_policy": connector.load_failure_policy}
    kv_role = {"prefill": "kv_producer", "decode": "kv_consumer", "server": "kv_both"}[name]
    offload = _offloading(connector.offload, role) if connector.offload else None
    if not connector.nixl:
        return offload
    nixl = {
        "kv_connector": "NixlPushConnector" if connector.mode == "push" else "NixlConnector",
        "kv_role": kv_role,
        **({} if offload else policy),
        **({"kv_buffer_device": connector.buffer_device} if connector.buffer_device else {}),
        "kv_connector_extra_config": {
            "backends": list(BACKENDS),
            **({"num_threads": connector.num_threads} if connector.num_threads else {}),
            **({"kv_lease_duration": connector.lease_seconds} if connector.lease_seconds else {}),
        },
    }
    if offload is None:
        return nixl
    # the first that has KV of a request is asked for it, so what decode has to fetch comes before what it may have kept
    return {"kv_connector": "MultiConnector", "kv_role": kv_role, **policy, "kv_connector_extra_config": {"connectors": [nixl, offload]}}


def _offloading(offload: KvOffloadSpec, role: RoleSpec) -> dict[str, Any]:
    workers = role.tensor_parallel * role.pipeline_parallel
    # LMCache counts by worker, vLLM by rank
    extra: dict[str, Any] = (
        {"cpu_bytes_to_use": offload.host_gib * GIB}
        if offload.backend == "native"
        else {"lmcache.local_cpu": True, "lmcache.max_local_cpu_size": round(offload.host_gib / workers, 2)}
    )
    return {"kv_connector": _OFFLOADING[offload.backend], "kv_role": "kv_both", "kv_connector_extra_config": extra}
