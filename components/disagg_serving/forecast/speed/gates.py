"""What step times must be before anything is planned with them; a table that is not so was measured or interpolated badly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median

from ...catalog.entries import Instance, Model
from ...catalog.step_times import Form, StepTable
from ..fit.constants import newest_engine
from ..fit.engine_shape import EngineShape
from ..fit.kv import kv_plan

DIP = 1.1
"""Factor by which a larger batch may be faster, or a newer GPU slower."""
ROUNDED = 0.99
"""Part of the roofline from which on a time counts as above it; times are rounded when packed."""
GENERATIONS = ("h100", "h200", "b200", "b300")


def refusals(
    tables: Mapping[tuple[str, Form], StepTable], axes: Mapping[str, Sequence[int]], facts: Model, on: Mapping[str, Instance]
) -> dict[tuple[str, Form], str]:
    """The tables of a model that no plan may stand on, each with the first reason; `on` has a node of each GPU."""
    found: dict[tuple[str, Form], str] = {}
    for (gpu, form), table in tables.items():
        older = ((name, tables[name, form]) for name in GENERATIONS[: GENERATIONS.index(gpu)] if (name, form) in tables)
        reasons = [*_dips(table, axes), *_below(table, axes, facts, form, on[gpu]), *_slower(table, older)]
        if reasons:
            found[gpu, form] = reasons[0]
    return found


def _dips(table: StepTable, axes: Mapping[str, Sequence[int]]) -> Iterator[str]:
    for j, context in enumerate(axes["contexts"]):
        most, at = 0.0, 0
        for batch, row in zip(axes["batches"], table.decode, strict=True):
            if row[j] * DIP < most:
                yield f"monotonic: a decode step of batch {batch} takes {row[j]:.3g} ms, of batch {at} {most:.3g} ms, at {context} tokens of context"
                return
            most, at = max((most, at), (row[j], batch))


def _below(table: StepTable, axes: Mapping[str, Sequence[int]], facts: Model, form: Form, node: Instance) -> Iterator[str]:
    """Each token reads the weights that it touches and, without a window or sparse attention, the KV of its context."""
    touched = facts.checkpoint_gb * 1e9 * facts.parameters_b.active / facts.parameters_b.total / form.gpus
    shape = EngineShape(
        facts, newest_engine(), node.gpu.memory_gib_torch, form.tensor_parallel, data_parallel=form.data_parallel, gpu=node.gpu.name
    )  # fmt: skip
    each = 0 if facts.indexer or facts.sliding_window or facts.linear_attention else max(kv_plan(shape).token_bytes)
    for batch, row in zip(axes["batches"], table.decode, strict=True):
        for context, ms in zip(axes["contexts"], row, strict=True):
            least = 1000 * (touched + batch * context * each) / (node.gpu.hbm_tbps * 1e12)
            if ms < ROUNDED * least:
                yield f"roofline: a decode step of batch {batch} at {context} tokens of context takes {ms:.3g} ms, its memory alone {least:.3g} ms"
                return


def _slower(table: StepTable, older: Iterator[tuple[str, StepTable]]) -> Iterator[str]:
    for name, other in older:
        steps = median(a / b for new, old in zip(table.decode, other.decode, strict=True) for a, b in zip(new, old, strict=True))
        reads = median(a / b for a, b in zip(table.prefill, other.prefill, strict=True))
        for what, factor in (("decode steps are", steps), ("prompts are", reads)):
            if factor > DIP:
                yield f"newer: {what} {factor:.2f} times as slow as on {name}, in the median"
