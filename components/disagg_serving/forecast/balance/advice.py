"""When one role that does both is the better choice, and when a split is off its balance, in plain words with numbers.

Prefill and decode apart keep the time per token steady; they cost TTFT, and with few nodes or a weak network throughput for each GPU as well.
The thresholds are those of publishers who say when to separate the roles, and one comparison that may be quoted:

- AWS for HyperPod: dense models of 70 billion parameters, 4,000 prompt and 256 answer tokens, 2 requests/s, each of them or more:
  https://docs.aws.amazon.com/sagemaker/latest/dg/sagemaker-hyperpod-model-deployment-dpd.html
- llm-d: large models, 10,000/1,000 tokens and not 200/200, and experts spread wide:
  https://github.com/llm-d/llm-d/blob/027a0532/guides/pd-disaggregation/README.md
- GPUStack, six H100 of one node: steadier answers, a later first token:
  https://docs.gpustack.ai/gpustack-operator/v0.11.2/docs/walkthroughs/model-deployment/prefill-decode/
- TTFT of 1 s over EFA and 98 s over TCP, Llama-3.1-8B with 8,000 tokens:
  https://docs.nvidia.com/dynamo/kubernetes-deployment/cloud-provider-guides/aws/efa-rdma-over-aws-fabric

Nothing rests on two runs of AWS samples on p5en, of DeepSeek-V3 and of GLM-5.2: their authors ask not to quote them, or not to compare their arms.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from .law import Headroom, Split, balance, best_split
from .rates import Rates, Workload, figure
from .transfer import KvTransfer

SHORT_PROMPT, SHORT_ANSWER, FEW_REQUESTS, SMALL_MODEL = 4000, 256, 2.0, 70.0
"""Tokens, tokens, requests a second and billions of parameters of a dense model, below which AWS calls one role simpler."""
LOW_RATIO = 4.0
"""Prompt to answer tokens. llm-d advises apart at 10:1 and against it at 1:1; the limit between them is our judgement."""
FEW_NODES = 2
"""Our judgement: on so few GPUs neither role can be sized by itself."""
TTFT_PART = 0.2
"""A typical transfer that takes more of the TTFT limit is worth a warning: our judgement."""
IDLE = 0.3
"""Utilisation below which neither role needs GPUs of its own: our judgement. A split of one engine each cannot become smaller."""
SAME = 1e-6
OFF_BALANCE = 1.3
"""Factor from the optimum ratio that is worth a warning: our judgement, three times `MEASURED_BAND`."""

AWS_WORDS = "AWS names {least} and more for separate roles on HyperPod"
RATIO_WORDS = (
    "{ratio:.1f} prompt tokens for one of the answer are few: llm-d suggests separate roles at 10,000 prompt tokens for 1,000 of the answer, and not "
    "at 200 for 200"
)
NODES_WORDS = (
    "{nodes} node{s} {are} few: on six H100, with long prompts of 16 clients, GPUStack saw separate roles write tokens steadier (p99 25.6 to 27.8 "
    "times lower) and the first one much later"
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


class Reason(NamedTuple):
    """One reason or remark: an id for programs, a sentence without its full stop for people."""

    id: str
    text: str


class Advice(NamedTuple):
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


class Situation(NamedTuple):
    """What is known of a layout with separate roles.

    `nodes` are those of both together, `dense_parameters_b` billions of parameters of a model without experts. What is not given is not judged:
    without `room` nobody knows whether it is idle, without `transfer` the network is taken for good, and without `split` and `rates` nothing is
    said about the balance.
    """

    workload: Workload
    nodes: int
    requests_per_second: float | None = None
    dense_parameters_b: float | None = None
    split: Split | None = None
    rates: Rates | None = None
    room: Headroom | None = None
    transfer: KvTransfer | None = None
    ttft_limit_seconds: float | None = None


def advice(s: Situation) -> Advice:
    """Judge prefill and decode apart against one role that does both."""
    reasons = (*_by_thresholds(s), *_by_ratio(s.workload), *_by_nodes(s.nodes), *_by_network(s), *_by_load(s.room))
    note = off_balance(s.split, s.rates, s.workload) if s.split and s.rates else None
    return Advice("aggregated" if reasons else "disaggregated", reasons, (note,) if note else ())


def off_balance(split: Split, rates: Rates, workload: Workload) -> Reason | None:
    """A remark when the split is more than 30 % off the optimum, with the best whole engines of the same sizes and number of GPUs."""
    now = balance(split, rates, workload)
    if now.off <= OFF_BALANCE or (not rates.own and now.optimum.low <= now.ratio <= now.optimum.high):
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


def _by_thresholds(s: Situation) -> list[Reason]:
    work, rate, size = s.workload, s.requests_per_second, s.dense_parameters_b
    found = [
        ("short-prompts", work.input_tokens, SHORT_PROMPT, "prompts of {} tokens are short", "{} prompt tokens"),
        ("short-answers", work.output_tokens, SHORT_ANSWER, "answers of {} tokens are short", "{} answer tokens"),
        ("few-requests", rate, FEW_REQUESTS, "{} requests/s are few", "{} requests/s"),
        ("small-model", size, SMALL_MODEL, "a dense model of {} billion parameters is small", "dense models of {} billion parameters"),
    ]
    return [
        Reason(name, f"{words.format(figure(value))}: {AWS_WORDS.format(least=least.format(figure(limit)))}")
        for name, value, limit, words, least in found
        if value is not None and value < limit
    ]


def _by_ratio(workload: Workload) -> list[Reason]:
    ratio = workload.prefilled_tokens / workload.output_tokens
    if ratio >= LOW_RATIO:
        return []
    cached = f" ({workload.prefix_hit:.0%} of the prompt is cached)" if workload.prefix_hit else ""
    return [Reason("low-ratio", RATIO_WORDS.format(ratio=ratio) + cached)]


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
