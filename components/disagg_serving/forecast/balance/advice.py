"""When one role that does both is the better choice, and when a split is off its balance, in plain words with numbers.

Prefill and decode apart keep the time per token steady; they cost TTFT, and with few nodes or a weak network throughput for each GPU as well.
What speaks for it are these public runs, each of them single, and advice of those who publish a guide:

- 1,024/256 tokens, DeepSeek-V3 on p5en, 431.6 and 255 tokens/s a GPU:
  https://github.com/awslabs/awsome-distributed-ai/blob/95b939cd/3.test_cases/pytorch/vllm/dsv3-uccl-nixl/README.md
- 8,000/1,024 tokens, GLM-5.2 on one p5en and on two with separate roles (its authors draw no conclusion from single runs):
  https://github.com/aws-samples/sample-llm-inference-on-eks/blob/7a03f3ab/docs/GLM-5.2-BENCHMARK.md
- apart at 10,000/1,000 tokens and not at 200/200: https://github.com/llm-d/llm-d/blob/027a0532/guides/pd-disaggregation/README.md
- TTFT of 1 s over EFA and 98 s over TCP, Llama-3.1-8B with 8,000 tokens:
  https://docs.nvidia.com/dynamo/kubernetes-deployment/cloud-provider-guides/aws/efa-rdma-over-aws-fabric
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .law import Headroom, Split, balance, best_split
from .rates import Rates, Workload, figure
from .transfer import KvTransfer

SHORT_PROMPT = 2000
"""Tokens. Public pairs: at 1,024 apart loses 41 % a GPU, at 4,000 to 5,000 it gains; the middle is our judgement."""
LOW_RATIO = 4.0
"""Prompt to answer tokens. llm-d advises apart at 10:1 and against it at 1:1; at 4:1 (1024/256) it lost. The limit is our judgement."""
FEW_NODES = 2
TTFT_PART = 0.2
"""A typical transfer that takes more of the TTFT limit is worth a warning: our judgement."""
IDLE = 0.3
"""Utilisation below which neither role needs GPUs of its own: our judgement. A split of one engine each cannot become smaller."""
SAME = 1e-6
OFF_BALANCE = 1.3
"""Factor from the optimum ratio that is worth a warning: our judgement, three times `MEASURED_BAND`."""

SHORT_WORDS = (
    "prompts of {isl:.0f} tokens are short: with 1,024 tokens of prompt and 256 of answer DeepSeek-V3 on p5en gave 431.6 tokens/s a GPU in one role "
    "and 255 apart"
)
RATIO_WORDS = (
    "{ratio:.1f} prompt tokens for one of the answer are few: llm-d advises separate roles at about 10:1 and not at 200/200 tokens, and at 4:1 "
    "DeepSeek-V3 on p5en lost 41 % a GPU"
)
NODES_WORDS = (
    "{nodes} node{s} {are} few: GLM-5.2 with 8,000 and 1,024 tokens gave 552 tokens/s with a median TTFT of 0.87 s on one p5en, and 603 with "
    "5.2 s on two with separate roles, about half for each GPU; what remains is a steadier time per token (27 ms instead of 34)"
)
TCP_WORDS = (
    "EFA does not reach the memory of these GPUs, so KV goes over TCP: {low:.2g} to {high:.2g} s for each prompt of {isl:.0f} tokens; with "
    "8,000 tokens Dynamo saw a TTFT of about 1 s over EFA and 98 s over TCP"
)
SLOW_WORDS = "a typical KV transfer takes {seconds:.2g} s, {part:.0%} of the {limit:.3g} s allowed to the first token; up to {most:.0%} is harmless"
FULL_WORDS = "at {wanted} requests/s a typical network is {load:.0%} busy with KV, more than it can carry"
IDLE_WORDS = (
    "at {wanted} requests/s prefill is busy {prefill:.0%} and decode {decode:.0%} of the time: below {idle:.0%} both can share GPUs, and prompts "
    "disturb answers rarely"
)


@dataclass(frozen=True)
class Reason:
    """One reason or remark: an id for programs, a sentence without its full stop for people."""

    id: str
    text: str


@dataclass(frozen=True)
class Advice:
    """The better mode for this workload and layout, with what speaks for one role, and remarks on the split."""

    better: Literal["aggregated", "disaggregated"]
    reasons: tuple[Reason, ...]
    notes: tuple[Reason, ...] = ()

    def __str__(self) -> str:
        head = "nothing known here speaks against separate prefill and decode"
        if self.reasons:
            unless = " unless a steady time per token matters most" if [r.id for r in self.reasons] == ["few-nodes"] else ""
            head = f"aggregated serving is the better choice here{unless}: " + "; ".join(r.text for r in self.reasons)
        return ". ".join([head, *(n.text for n in self.notes)])


@dataclass(frozen=True)
class Situation:
    """What is known of a layout with separate roles; `nodes` are those of both together.

    What is not given is not judged: without `room` nobody knows whether it is idle, without `transfer` the network is taken for good,
    and without `split` and `rates` nothing is said about the balance.
    """

    workload: Workload
    nodes: int
    split: Split | None = None
    rates: Rates | None = None
    room: Headroom | None = None
    transfer: KvTransfer | None = None
    ttft_limit_seconds: float | None = None


def advice(s: Situation) -> Advice:
    """Judge prefill and decode apart against one role that does both."""
    reasons = (*_by_lengths(s.workload), *_by_nodes(s.nodes), *_by_network(s), *_by_load(s.room))
    note = off_balance(s.split, s.rates, s.workload) if s.split and s.rates else None
    return Advice("aggregated" if reasons else "disaggregated", reasons, (note,) if note else ())


def off_balance(split: Split, rates: Rates, workload: Workload) -> Reason | None:
    """A remark when the split is more than 30 % off the optimum, with the best whole engines of the same sizes and number of GPUs."""
    now = balance(split, rates, workload)
    if now.off <= OFF_BALANCE:
        return None
    best = best_split(rates, workload, split.engines, split.gpus)
    there = balance(best, rates, workload)
    o = now.optimum
    text = (
        f"{now.bound_by} bounds this split: {figure(now.ratio, 2)} prefill GPUs for one of decode, where {figure(o.mid, 2)} ({figure(o.low, 2)} to "
        f"{figure(o.high, 2)}) are the optimum, {now.off - 1:.0%} off"
    )
    gain = there.requests_per_second / now.requests_per_second - 1
    if best == split:
        text += f"; whole engines of these sizes come no closer on {split.gpus} GPUs, smaller ones or more GPUs may"
    elif gain < SAME:
        text += f"; {best} serve as much with {best.gpus} instead of {split.gpus} GPUs"
    else:
        text += f"; {best} serve {figure(there.requests_per_second)} instead of {figure(now.requests_per_second)} requests/s"
    if not rates.saturated:
        text += "; a rate is only known to be at least so high, so this may be wrong by a factor of 2"
    return Reason("off-balance", text)


def _by_lengths(workload: Workload) -> list[Reason]:
    found = []
    if workload.input_tokens < SHORT_PROMPT:
        found.append(Reason("short-prompts", SHORT_WORDS.format(isl=workload.input_tokens)))
    ratio = workload.prefilled_tokens / workload.output_tokens
    if ratio < LOW_RATIO:
        cached = f" ({workload.prefix_hit:.0%} of the prompt is cached)" if workload.prefix_hit else ""
        found.append(Reason("low-ratio", RATIO_WORDS.format(ratio=ratio) + cached))
    return found


def _by_nodes(nodes: int) -> list[Reason]:
    if nodes > FEW_NODES:
        return []
    return [Reason("few-nodes", NODES_WORDS.format(nodes=nodes, s="" if nodes == 1 else "s", are="is" if nodes == 1 else "are"))]


def _by_network(s: Situation) -> list[Reason]:
    if s.transfer is None:
        return []
    scenario, limit = s.transfer.expected, s.ttft_limit_seconds
    low, high = scenario.seconds
    if not s.transfer.efa:
        return [Reason("tcp", TCP_WORDS.format(low=low, high=high, isl=s.workload.input_tokens))]
    found = []
    if limit is not None and high > limit * TTFT_PART:
        found.append(Reason("slow-transfer", SLOW_WORDS.format(seconds=high, part=high / limit, limit=limit, most=TTFT_PART)))
    if s.room is not None and s.room.wanted >= scenario.saturation[0]:
        found.append(Reason("full-network", FULL_WORDS.format(wanted=figure(s.room.wanted), load=s.room.wanted / scenario.saturation[0])))
    return found


def _by_load(room: Headroom | None) -> list[Reason]:
    if room is None or room.utilisation >= IDLE:
        return []
    words = IDLE_WORDS.format(wanted=figure(room.wanted), prefill=room.prefill_utilisation, decode=room.decode_utilisation, idle=IDLE)
    return [Reason("idle", words)]
