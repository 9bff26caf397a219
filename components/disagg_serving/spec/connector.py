"""How KV moves between prefill and decode, and what of it is kept in host memory."""

from typing import Annotated, Literal

from pydantic import Field

from .base import AtLeastOne, Count, Spec


class KvOffloadSpec(Spec):
    """Host memory to which an engine's KV cache overflows, so that a prefix that left the GPUs need not be calculated again."""

    host_gib: Count = Field(
        ...,
        alias="hostGiB",
        description="Host memory of one data-parallel rank in GiB, all its GPUs together; it counts as memory of the pod. A p5 node has 2 TB.",
    )
    backend: Literal["native", "lmcache"] = Field(
        "native",
        description="native is vLLM's OffloadingConnector, which keeps KV in /dev/shm. lmcache needs an engine whose catalogue entry names the "
        "`lmcache` that its image holds. Default: native.",
    )


class RoleConnectorSpec(Spec):
    """Settings of the connector that each role may have for itself."""

    load_failure_policy: Literal["fail", "recompute"] | None = Field(
        None,
        description="What decode does with a request whose KV did not arrive: fail answers with an error, recompute calculates the missing blocks "
        "again (kv_load_failure_policy). Default: fail.",
    )
    num_threads: Annotated[AtLeastOne, Field(le=64)] | None = Field(
        None, description="Threads of NIXL's UCX backend (num_threads); LIBFABRIC, by which KV moves over EFA, takes none. Default: vLLM's 4."
    )
    offload: KvOffloadSpec | None = Field(
        None, description="Keep KV in host memory, too: beside NIXL by MultiConnector, or in server mode. Default: off."
    )


class ConnectorSpec(RoleConnectorSpec):
    """The NIXL connector of vLLM. A role's own `connector` wins where both say the same setting."""

    mode: Literal["pull", "push"] = Field(
        "pull",
        description="pull lets decode read KV, push lets prefill write it (NixlPushConnector) and may have pipeline stages. push was never run on "
        "EFA. NIXL compares it, so it is of the model. Default: pull.",
    )
    lease_seconds: Annotated[AtLeastOne, Field(ge=6, le=3600)] | None = Field(
        None,
        description="How long prefill keeps KV that nobody has fetched or renewed (kv_lease_duration); decode renews it every sixth of this. "
        "Default: vLLM's 30.",
    )
    buffer_device: Literal["cuda", "cpu"] | None = Field(
        None,
        description="Where NIXL reads and writes KV (kv_buffer_device). cpu copies all of a GPU's KV cache to host memory and counts as memory of "
        "the pod. Both roles have the same. Default: cuda.",
    )
