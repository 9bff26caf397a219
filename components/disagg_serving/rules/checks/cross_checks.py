"""Rules about flags that a person adds beside other flags and fields: what vLLM's configuration refuses together, and what the pod has to have."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import Level
from ...phrases import say
from ...planning.arguments import Arguments
from ...planning.extras import arguments_of
from ...planning.shapes import Served, group_size, world_size
from ...spec.serving import RoleName
from ..documents import VLLM
from ..registry import Fault, Stage, Subject, remove, rule, use

DCP, PCP, OFFLOAD = "--decode-context-parallel-size", "--prefill-context-parallel-size", "--kv-offloading-size"
GIB = 1024
LEAST_BLOCK = 16
WHOLE_OR_NONE = (0, 33)
"""The version from which vLLM compares decode context parallelism with NIXL (config/vllm.py)."""


@rule("context-parallel", Level.ERROR, Stage.FORM, f"{VLLM}vllm/config/parallel.py and {VLLM}vllm/config/model.py", judges="engine")
def context_parallel(s: Subject) -> Iterator[Fault]:
    """Context parallelism divides what the engine has: its GPUs, its KV heads, and with prefill and decode all of them or none."""
    for served, name, role, _ in s.roles():
        said, tp, facts = _said(served, name), role.tensor_parallel, served.facts
        pcp, dcp = (int(said.number(option) or 1) for option in (PCP, DCP))
        if pcp > 1:
            message = f"makes an engine of {world_size(role) * pcp} GPUs, and its pods ask for {world_size(role)}"
            yield from _at(served, name, PCP, message, "1")
        if dcp <= 1 or pcp > 1:
            continue
        if tp % dcp:
            yield from _at(served, name, DCP, say("does not divide {tensorParallel} {}", tp), f"1 or a divisor of {tp}")
        elif served.spec.disaggregated and _version(served) >= WHOLE_OR_NONE and (facts.mla is None or dcp != tp):
            what = "is for latent attention alone" if facts.mla is None else say("is neither 1 nor {tensorParallel} {}", tp)
            yield from _at(served, name, DCP, say("{}, where KV moves by NIXL", what), "1" if facts.mla is None else f"1 or {tp}")
        elif facts.mla is None:
            most = tp // facts.kv_heads if tp > facts.kv_heads else 1
            if dcp > most or (facts.attention_heads // facts.kv_heads) % dcp:
                message = say(
                    "needs {tensorParallel} of at least {} for {} KV heads, and {} query heads for each", facts.kv_heads * dcp, facts.kv_heads, dcp
                )
                yield from _at(served, name, DCP, message, f"at most {most}")


@rule("flag-pairs", Level.ERROR, Stage.FORM, f"{VLLM}vllm/config/vllm.py and {VLLM}vllm/engine/arg_utils.py", judges="engine")
def flag_pairs(s: Subject) -> Iterator[Fault]:
    """Flags go with each other and with the fields beside them, as vLLM's own configuration checks them."""
    for served, name, role, _ in s.roles():
        said = _said(served, name)
        for option, message, allowed in _pairs(served, name, said):
            yield from _at(served, name, option, message, allowed)
        servers = said.number("--api-server-count")
        if servers is not None and servers <= 0:
            yield from _at(served, name, "--api-server-count", "starts no HTTP server", "1 or more")
        elif servers is not None and group_size(role, served.instances[name]) > 1:
            yield from _at(
                served, name, "--api-server-count", "stops the workers of an engine over several nodes, which have no HTTP server", "without it"
            )


def _pairs(served: Served, name: RoleName, said: Arguments) -> Iterator[tuple[str, str, str]]:
    role = served.spec.roles[name]
    yield from _routed(served, name, said)
    if said.is_on("--enable-eplb") and not role.expert_parallel:
        yield "--enable-eplb", say("stops vLLM without {expertParallel}"), say("with {expertParallel}: true")
    if said.text("--per-request-spec-decode-metrics") not in {"", "none"} and served.spec.speculative is None:
        yield "--per-request-spec-decode-metrics", say("stops vLLM without {speculative}"), "none"
    if said.of("--collect-detailed-traces") and not said.text("--otlp-traces-endpoint"):
        yield "--collect-detailed-traces", "stops vLLM without --otlp-traces-endpoint", "with it"
    for option in ("--numa-bind-nodes", "--numa-bind-cpus"):
        if said.of(option) and not said.is_on("--numa-bind"):
            yield option, "stops vLLM without --numa-bind", "with it"
    active = said.number("--max-num-active-seqs")
    if active is not None and role.max_num_seqs is not None and active > role.max_num_seqs:
        yield "--max-num-active-seqs", say("is more than {maxNumSeqs} {}", role.max_num_seqs), f"at most {role.max_num_seqs}"


def _routed(served: Served, name: RoleName, said: Arguments) -> Iterator[tuple[str, str, str]]:
    """The flag that returns which experts a token went to, or the key of JSON that says the same."""
    switch, whole = "--enable-return-routed-experts", "--aux-output-config"
    place = switch if said.is_on(switch) else whole
    if place == whole and said.data(whole).get("enable_return_routed_experts") is not True:
        return
    if served.facts.moe is None:
        yield place, f"has no use: {served.spec.model} has no experts", "without it"
    elif served.spec.roles[name].pipeline_parallel > 1 or any((said.number(option) or 1) > 1 for option in (DCP, PCP)):
        yield place, "stops vLLM beside pipeline stages or context parallelism", "without it"
    elif place == whole and served.spec.disaggregated and _version(served) >= WHOLE_OR_NONE:
        yield place, "returns outputs that NixlConnector does not move", "without it"


@rule("block-size", Level.ERROR, Stage.FORM, f"{VLLM}vllm/v1/attention/backends/flash_attn.py (get_supported_kernel_block_sizes)", judges="engine")
def block_size(s: Subject) -> Iterator[Fault]:
    """A KV block is a multiple of the 16 tokens that the smallest block of an attention kernel has."""
    for served in s.served:
        asked, path = served.spec.block_size, f"{served.path}.blockSize"
        if asked is not None and asked % LEAST_BLOCK:
            near = max(LEAST_BLOCK, round(asked / LEAST_BLOCK) * LEAST_BLOCK)
            yield Fault(
                path, "is no block that an attention kernel of these GPUs takes", asked, "a multiple of 16", ways=[use(path, near), remove(path)]
            )


@rule("offload-memory", Level.ERROR, Stage.LAYOUT, f"{VLLM}vllm/config/cache.py (kv_offloading_size)", judges="nodes")
def offload_memory(s: Subject) -> Iterator[Fault]:
    """KV cache that is kept in the node's memory fits what the pods ask for, beside /dev/shm."""
    for group in s.layout.groups if s.layout else ():
        wanted = _said(group.served, group.role).number(OFFLOAD)
        if wanted is None or group.served.spec.disaggregated:
            continue
        a_pod, asked = wanted / group.size, group.engine_requests.memory_mib / GIB
        offered = group.instance.allocatable.memory_mib / GIB
        if a_pod >= asked:
            message = (
                f"GiB of the node's memory in a pod are more than the {asked:,.0f} that it asks for; a {group.spec.instance_type} has {offered:,.0f}"
            )
            yield from _at(group.served, group.role, OFFLOAD, message, f"less than {int(asked * group.size)}")


def _at(served: Served, name: RoleName, option: str, message: str, allowed: str) -> Iterator[Fault]:
    """The fault where the flag stands that says it."""
    for place, text in arguments_of(served.spec, name):
        if Arguments(served.engine.version, [text]).of(option):
            path = f"{served.path}.{place}"
            yield Fault(path, message, text, allowed, ways=[remove(path)])


def _said(served: Served, name: RoleName) -> Arguments:
    return Arguments(served.engine.version, (extra.value for extra in arguments_of(served.spec, name)))


def _version(served: Served) -> tuple[int, ...]:
    return tuple(int(part) for part in served.engine.version.split("."))
