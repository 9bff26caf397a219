"""Around the balance: KV transfer, bounds without rates, and advice."""

from __future__ import annotations

import re

import pytest
from disagg_serving.catalog import Catalog
from disagg_serving.forecast.balance import (
    BalanceError,
    Endpoint,
    MeasuredRate,
    RateCurve,
    Rates,
    Side,
    Situation,
    Split,
    Step,
    Workload,
    advice,
    decode_tokens,
    head_copies,
    headroom,
    kv_bytes,
    kv_transfer,
    mla_copies,
    prefill_tokens,
    rates_at,
)
from disagg_serving.forecast.balance.advice import off_balance
from disagg_serving.forecast.balance.transfer import efa_share
from hypothesis import strategies as st

CATALOG = Catalog()
P5, SMALL = CATALOG.instances["p5.48xlarge"], CATALOG.instances["p5.4xlarge"]
GPU = P5.gpu
LONG = Workload(8192, 1024)
RATES = Rates(MeasuredRate(8192, 3000), MeasuredRate(8192, 750))
"""Balanced at two prefill GPUs for one of decode."""

lengths = st.integers(1, 200_000).map(float)
speeds = st.floats(1, 50_000)
workloads = st.builds(Workload, lengths, lengths, st.floats(0, 0.95))


def split(prefill: int, decode: int, size: int = 8) -> Split:
    """So many engines of one size."""
    return Split(Side(prefill, size), Side(decode, size))


@pytest.mark.parametrize(
    ("instance", "share"), [("p5.48xlarge", 50), ("p5en.48xlarge", 50), ("p6-b200.48xlarge", 50), ("p6-b300.48xlarge", 100), ("p5.4xlarge", 12.5)]
)
def test_share_of_a_gpu(instance: str, share: float) -> None:
    """GB/s of one GPU's EFA devices, by their number and line rate in the catalogue."""
    assert efa_share(CATALOG.instances[instance]) == share * 1e9


@pytest.mark.parametrize(
    ("per_token", "copies", "gpus", "gigabytes", "milliseconds"),
    [
        (327_680, 1.0, 1, 2.68, 60),
        (327_680, head_copies(8, 8), 8, 2.68, 7.5),
        (192_512, head_copies(4, 4), 4, 1.58, 8.8),
        (70_272, mla_copies(8), 8, 0.58, 12.8),
        (61_464, mla_copies(8), 8, 0.50, 11),
    ],
    ids=["llama-tp1", "llama-tp8", "qwen3-235b-tp4", "deepseek-v3-tp8", "glm-5-fp8-tp8"],
)
def test_times_of_a_prompt(per_token: float, copies: float, gpus: int, gigabytes: float, milliseconds: float) -> None:
    """Milliseconds for a prompt of 8,192 tokens at 45 GB/s a GPU, calculated apart from this code."""
    kv = kv_bytes(LONG, per_token, copies)
    end = Endpoint(P5, 1, gpus)
    good = kv_transfer(kv, end, end).scenario("good")
    assert good is not None
    assert kv.total / 1e9 == pytest.approx(gigabytes, abs=0.006)
    assert good.seconds[0] * 1e3 == pytest.approx(milliseconds, rel=0.02)
    assert good.load is None


def test_load_and_saturation() -> None:
    """GLM-5 in bf16 with 8K: 55 requests/s fill a GPU's share at 45 GB/s; TCP of 0.55 GB/s needs 1.5 s for one."""
    end = Endpoint(P5, 2, 8)
    found = kv_transfer(kv_bytes(LONG, 100_152, mla_copies(8)), end, end, requests_per_second=11)
    good, typical, tcp = found.scenarios
    assert good.saturation[0] == pytest.approx(2 * 55, rel=0.01)
    assert good.load == pytest.approx((0.1, 0.1), rel=0.01)
    assert typical.seconds[0] == pytest.approx(2 * good.seconds[0])
    assert tcp.seconds == pytest.approx((8 * 0.164, 8 * 1.64), rel=0.01)
    assert found.expected is typical
    assert tcp.saturation == pytest.approx((2 * 0.5 / 6.564, 2 * 5 / 6.564), rel=0.01)
    assert tcp.load == pytest.approx((11 / tcp.saturation[1], 11 / tcp.saturation[0]))


def test_the_narrow_end_counts() -> None:
    """One prefill GPU that feeds eight ranks sends all copies through its own share."""
    kv = kv_bytes(LONG, 70_272, mla_copies(8))
    wide, narrow = Endpoint(P5, 1, 8), Endpoint(P5, 1, 1)
    assert kv_transfer(kv, narrow, wide).expected.seconds[0] == pytest.approx(8 * kv_transfer(kv, wide, wide).expected.seconds[0])


def test_without_gpu_direct_only_tcp_is_left() -> None:
    """p5.4xlarge has an EFA device, but it does not reach GPU memory."""
    found = kv_transfer(kv_bytes(LONG, 131_072), Endpoint(SMALL, 1, 1), Endpoint(P5, 1, 1))
    assert ([s.name for s in found.scenarios], found.efa) == (["tcp"], False)
    end = Endpoint(P5, 1, 1)
    assert not kv_transfer(kv_bytes(LONG, 131_072), end, end, efa_in_pods=False).efa, "an image without libfabric"


def test_only_the_decoders_prefix_saves_bytes() -> None:
    """What prefill found in its own cache is sent all the same."""
    cached = Workload(8000, 1000, 0.5)
    assert kv_bytes(cached, 10).wire == 80_000
    assert kv_bytes(cached, 10, decode_has_prefix=True).wire == 40_000


def test_a_decode_step_by_hand() -> None:
    """70 GB over 8 GPUs and 1 GB of KV at 65 % of 3.35 TB/s, 160 all-reduces of 10 us and 4 ms: 10.1 ms, with a factor of 2 either way."""
    step = Step(80, 8, 8.75e9, 1e9)
    found = decode_tokens(GPU, step, 64)
    assert (found.low, found.high) == pytest.approx((64 / 0.01008 / 8 / 2, 64 / 0.01008 / 8 * 2), rel=0.01)
    assert "bound, not a prediction" in str(found)


def test_experts_have_the_range_of_public_runs() -> None:
    """A dense model has a roof; with experts 6 to 24 % of it are what runs reach, and what FP4 does is not known."""
    dense = prefill_tokens(CATALOG.models["llama-3.3-70b-instruct-fp8"], GPU)
    assert (dense.low, dense.never_passed) == (None, dense.high)
    assert dense.high == pytest.approx(1979e12 / (2 * 68.5e9), rel=0.01)
    assert dense.beside(13_333.3).startswith("prefill: needs 13,333, at most 14,446 tokens/s/GPU: 92 % of the peak (bound, not a prediction: ")
    experts = prefill_tokens(CATALOG.models["glm-5-fp8"], GPU)
    assert experts.peak == pytest.approx(1979e12 / (2 * 38.1e9), rel=0.01)
    assert (experts.low, experts.high) == pytest.approx((0.06 * (experts.peak or 0), 0.24 * (experts.peak or 0)))
    assert experts.never_passed == experts.peak, "a measured rate above what others reached is no mistake"
    assert "of the most that public runs of models with experts reach (bound, not a prediction: 6 to 24 % of the peak" in experts.beside(1000)
    fp4 = prefill_tokens(CATALOG.models["gpt-oss-120b"], GPU)
    assert fp4.beside(10) == f"prefill: needs 10 tokens/s/GPU, no useful prediction ({fp4.reason})"


def test_drafts_lift_the_high_end() -> None:
    """Four drafts that are all accepted write five tokens a step, and the sentence says so."""
    plain = decode_tokens(GPU, Step(80, 8, 8.75e9, 1e9), 64)
    drafted = plain.with_drafts(5)
    assert (drafted.low, drafted.high) == (plain.low, (plain.high or 0) * 5)
    assert "all drafts accepted" in str(drafted)
    assert plain.with_drafts(1) == plain


def test_long_prompts_on_many_nodes_are_left_alone() -> None:
    """Nothing speaks against a split of long prompts that is busy and balanced."""
    room = headroom(split(2, 1), RATES, LONG, 4)
    found = advice(Situation(LONG, 3, split=split(2, 1), rates=RATES, room=room))
    assert (found.better, found.reasons, found.notes) == ("disaggregated", (), ())


@pytest.mark.parametrize(
    ("workload", "nodes", "ids"),
    [
        (Workload(3999, 256), 4, ["short-prompts"]),
        (Workload(4000, 255), 4, ["short-answers"]),
        (Workload(200, 200), 4, ["short-prompts", "short-answers", "low-ratio"]),
        (Workload(8000, 1000, 0.9), 4, ["low-ratio"]),
        (LONG, 2, ["few-nodes"]),
        (LONG, 1, ["few-nodes"]),
    ],
)
def test_lengths_and_nodes(workload: Workload, nodes: int, ids: list[str]) -> None:
    """Each reason on its own, with the peers' numbers in it."""
    found = advice(Situation(workload, nodes))
    assert ([r.id for r in found.reasons], found.better) == (ids, "aggregated")
    assert str(found).startswith("aggregated serving is the better choice here")
    assert all(any(c.isdigit() for c in r.text) and not r.text.endswith(".") for r in found.reasons)


@pytest.mark.parametrize(
    ("requests", "dense", "ids", "words"),
    [
        (2, 70, [], ""),
        (1.9, 70, ["few-requests"], "1.9 requests/s are few: AWS names 2 requests/s and more for separate roles on HyperPod"),
        (2, 32.8, ["small-model"], "a dense model of 32.8 billion parameters is small: AWS names dense models of 70 billion parameters and more"),
        (2, None, [], ""),
    ],
)
def test_thresholds_of_hyperpod(requests: float, dense: float | None, ids: list[str], words: str) -> None:
    """AWS publishes from where separate roles pay on HyperPod; the size counts for dense models only."""
    found = advice(Situation(Workload(4000, 256), 4, requests, dense))
    assert [r.id for r in found.reasons] == ids
    assert words in str(found)


def test_no_run_is_quoted_whose_authors_forbid_it() -> None:
    """The smoke run of DeepSeek-V3 and the single runs of GLM-5.2 appear in no sentence."""
    kv = kv_transfer(kv_bytes(LONG, 327_680), Endpoint(SMALL, 1, 1), Endpoint(P5, 1, 1))
    text = str(advice(Situation(Workload(200, 200), 1, 0.1, 8, room=headroom(split(2, 1), RATES, LONG, 0.1), transfer=kv)))
    assert not re.search(r"DeepSeek|GLM|431|255|552|603", text)
    assert text.count("AWS names") == 4


def test_network_and_load() -> None:
    """TCP, a transfer that eats the limit of the first token, a full network, and GPUs that idle."""
    kv = kv_bytes(LONG, 327_680)
    ends = Endpoint(CATALOG.instances["p5.4xlarge"], 4, 1), Endpoint(P5, 1, 1)
    idle = headroom(split(2, 1), RATES, LONG, 0.5)
    tcp = advice(Situation(LONG, 4, room=idle, transfer=kv_transfer(kv, *ends)))
    assert [r.id for r in tcp.reasons] == ["tcp", "idle"]
    one = Endpoint(P5, 1, 1)
    slow = advice(Situation(LONG, 4, room=headroom(split(20, 10), RATES, LONG, 40), transfer=kv_transfer(kv, one, one), ttft_limit_seconds=0.5))
    assert [r.id for r in slow.reasons] == ["slow-transfer", "full-network"]


@pytest.mark.parametrize(
    ("given_split", "words"),
    [
        (split(1, 2), "serve 5.86 instead of 2.93"),
        (split(1, 1), f"come no closer on {split(1, 1).gpus} GPUs, smaller ones or more GPUs may"),
        (split(4, 1), "3 x 8 GPUs prefill, 2 x 8 GPUs decode serve 8.79 instead of 5.86"),
        (split(3, 1), "serve as much with 24 instead of 32 GPUs"),
        (split(4, 2), None),
    ],
)
def test_a_split_off_its_balance(given_split: Split, words: str | None) -> None:
    """More than 30 % off is said, with the better split of the same GPUs."""
    note = off_balance(given_split, RATES, LONG)
    assert (note is None) == (words is None)
    assert note is None or (words or "") in note.text


def test_rates_come_from_curves() -> None:
    """The way of a stack file: points by role, a workload, a layout."""
    curve = RateCurve([MeasuredRate(4096, 4000)])
    assert rates_at(curve, curve, LONG).prefill.tokens_per_second_per_gpu == 4000
    with pytest.raises(BalanceError):
        rates_at(curve, curve, Workload(9000, 10))
