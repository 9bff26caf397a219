"""Moving the KV cache from prefill to decode: bytes, time and load of the network in three scenarios.

The achieved bandwidth is not known before it is measured, so there are scenarios and no forecast.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from ...catalog.entries import Instance
from .rates import BalanceError, Workload

GOOD, TYPICAL = 0.9, 0.45
"""Part of a GPU's EFA share. Our choice below what is measured between two idle nodes, 0.76 to 0.98 of the line rate on p5, p5en, p6-b200 and
p6-b300: https://github.com/kvcache-ai/Mooncake/blob/3b5a5941/docs/source/design/transfer-engine/efa_transport.md. In production single transfers
are far slower, 4.3 GB/s on average: https://github.com/vllm-project/vllm/issues/50913."""
TCP_GB_PER_SECOND = (0.5, 5.0)
"""GB/s a node without EFA, around what NIXL reaches over TCP by UCX (0.55) and by UCCL (4.9):
https://github.com/llm-d/llm-d.github.io/blob/9a8058f7/blog/2026-06-23_networking-for-distributed-inference-llm-d.mdx."""
GIGABIT_BYTES = 1e9 / 8

ScenarioName = Literal["good", "typical", "tcp"]


class Endpoint(NamedTuple):
    """The engines of one role as the network sees them.

    `gpus` are those that hold one request's KV: the tensor-parallel size. With data parallelism each rank is an engine here.
    """

    instance: Instance
    engines: int
    gpus: int

    @property
    def nodes(self) -> float:
        """Nodes that its engines fill; a part of one when they leave room, since the rest of the node's network may be used by others."""
        return self.engines * self.gpus / self.instance.gpu.count


class KvBytes(NamedTuple):
    """KV of one request. `total` is one copy of all layers; on the wire go `copies` of it, an equal part to each decode GPU."""

    total: float
    copies: float

    @property
    def wire(self) -> float:
        """Bytes that leave prefill."""
        return self.total * self.copies


class Scenario(NamedTuple):
    """One assumption about the network; low and high are equal but for TCP. Seconds of one request's transfer when nothing else is moved.

    `load` is the busy part of the narrowest link at the wanted rate (None without one), `saturation` the requests a second that fill it.
    """

    name: ScenarioName
    seconds: tuple[float, float]
    load: tuple[float, float] | None
    saturation: tuple[float, float]


class KvTransfer(NamedTuple):
    """What the transfer of one request costs. `efa` is false where EFA does not reach GPU memory: then TCP is the only scenario."""

    kv: KvBytes
    efa: bool
    scenarios: tuple[Scenario, ...]

    def scenario(self, name: ScenarioName) -> Scenario | None:
        """A scenario by name; None where it cannot happen."""
        return next((s for s in self.scenarios if s.name == name), None)

    @property
    def expected(self) -> Scenario:
        """The typical scenario, or TCP where there is no other."""
        return self.scenario("typical") or self.scenarios[-1]


def efa_share(instance: Instance) -> float:
    """Line rate in bytes a second of the EFA devices that belong to one GPU; 50e9 on p5, p5e, p5en and p6-b200."""
    return instance.efa.count * instance.efa.gbps_each * GIGABIT_BYTES / instance.gpu.count


def mla_copies(decode_tensor_parallel: int) -> float:
    """Copies with multi-head latent attention: each decode rank holds and pulls the whole latent.

    Source: https://github.com/vllm-project/vllm/blob/v0.33.0/docs/features/nixl_connector_compatibility.md.
    """
    return float(decode_tensor_parallel)


def head_copies(kv_heads: int, decode_tensor_parallel: int) -> float:
    """Copies with grouped-query attention: 1 while each rank has heads of its own, else heads are repeated."""
    return max(1.0, decode_tensor_parallel / kv_heads)


def kv_bytes(workload: Workload, bytes_per_token: float, copies: float = 1.0, *, decode_has_prefix: bool = False) -> KvBytes:
    """KV of a mean prompt from the bytes of one token over all layers and heads, one copy.

    The prefix cache that counts here is the decoder's: what prefill found in its own cache still has to be moved.
    """
    if bytes_per_token <= 0 or copies < 1:
        raise BalanceError(f"{bytes_per_token:g} bytes a token in {copies:g} copies: bytes must be above 0 and copies at least 1")
    tokens = workload.prefilled_tokens if decode_has_prefix else workload.input_tokens
    return KvBytes(bytes_per_token * tokens, copies)


def kv_transfer(
    kv: KvBytes, prefill: Endpoint, decode: Endpoint, requests_per_second: float | None = None, *, efa_in_pods: bool = True
) -> KvTransfer:
    """Time and load in the scenarios good, typical and TCP. The slower end counts: a prefill of one GPU feeds all ranks of its decoder.

    `efa_in_pods` is false where the image has no libfabric or the pods no devices.
    """
    ends = (prefill, decode)
    efa = efa_in_pods and all(e.instance.gpu_direct_rdma for e in ends)
    found: list[Scenario] = []
    if efa:
        seconds = max(kv.wire / e.gpus / efa_share(e.instance) for e in ends)
        saturation = min(e.engines * e.gpus * efa_share(e.instance) / kv.wire for e in ends)
        names: tuple[tuple[ScenarioName, float], ...] = (("good", GOOD), ("typical", TYPICAL))
        for name, part in names:
            found.append(_scenario(name, (seconds / part, seconds / part), (saturation * part, saturation * part), requests_per_second))
    slow, fast = (rate * 1e9 for rate in TCP_GB_PER_SECOND)
    nodes = min(math.ceil(e.nodes) for e in ends)
    found.append(_scenario("tcp", (kv.wire / fast, kv.wire / slow), (nodes * slow / kv.wire, nodes * fast / kv.wire), requests_per_second))
    return KvTransfer(kv, efa, tuple(found))


def _scenario(name: ScenarioName, seconds: tuple[float, float], saturation: tuple[float, float], wanted: float | None) -> Scenario:
    load = None if wanted is None else (wanted / saturation[1], wanted / saturation[0])
    return Scenario(name, seconds, load, saturation)
