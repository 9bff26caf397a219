"""The list of what is replaced where generated command lines are started on a CPU: it fits what is generated, and is shown as it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from disagg_serving.catalog.hf_config import read_model
from engine_stacks import laid_out, pods, stack
from factories import ROOT

from engine.configs import write_config
from engine.serving_pods import Pod
from engine.serving_replacements import REPLACEMENTS, StaleError, replaced, table

MACHINE: Mapping[str, str] = {"models": "/m", "cache": "/c", "folder": "/f", "address": "127.0.0.9", "cores": "0"}
STARTED = [pod for name in ("split", "wide") for pod in pods(laid_out(stack(name))).values()]


def names(pod: Pod) -> set[str]:
    """Flags and variables of a pod, each with its value."""
    return {*pod.command, *(f"{name}={value}" for name, value in pod.env.items())}


@pytest.mark.parametrize("pod", STARTED, ids=lambda p: p.name)
def test_every_replacement_finds_what_it_replaces(pod: Pod) -> None:
    """A command line that has changed stops the run, and nothing but what is listed differs from the generated one."""
    here, changes = replaced(pod, MACHINE)
    assert names(pod) - names(here) == {c.before for c in changes if c.before}
    assert names(here) - names(pod) == {c.after for c in changes}
    for row in REPLACEMENTS:
        if row.old is not None and row.only_with is None:
            with pytest.raises(StaleError):
                replaced(pod, MACHINE, [replace(row, old="gone")])


def test_a_replacement_that_is_not_needed_any_more_is_noticed() -> None:
    """What the project generates by itself is not added a second time."""
    added = next(r for r in REPLACEMENTS if r.name == "HF_HUB_OFFLINE")
    pod = replace(STARTED[0], env={**STARTED[0].env, added.name: "1"})
    with pytest.raises(StaleError, match="need not be added"):
        replaced(pod, MACHINE)


def test_variables_are_filled_in() -> None:
    """Nothing that the kubelet or LeaderWorkerSet would fill in is left, and each pod knows its own address."""
    for pod in STARTED:
        assert not [text for text in names(pod) if "$(" in text]
        assert pod.env["VLLM_HOST_IP"] == pod.address


def test_documentation_shows_the_list() -> None:
    """docs/engine-serving.md has the table that the run prints."""
    assert table() in (ROOT / "docs/engine-serving.md").read_text(encoding="utf-8")


def test_the_entry_is_what_its_config_says(tmp_path: Path) -> None:
    """The planner gets the same facts from the catalogue entry of the tiny model and from the config.json that the engine loads."""
    entry = laid_out(stack("split")).served[0].facts
    found = read_model(write_config(entry, tmp_path), entry.id, entry.repository)
    own = {"notes", "source", "checked", "parameters_b", "checkpoint_gb"}
    assert found.model_dump(exclude=own) == entry.model_dump(exclude=own)
    assert found.parameters_b.total == pytest.approx(entry.parameters_b.total, rel=0.05)
    assert found.checkpoint_gb == pytest.approx(entry.checkpoint_gb, rel=0.2)
