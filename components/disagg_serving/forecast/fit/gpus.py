"""What vLLM asks about a GPU besides its memory: catalog/gpus.yaml by name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from ...catalog.loader import PACKAGE_DIR
from ...yaml_io import read_yaml

HOPPER, BLACKWELL = (9, 0), (10, 0)


class Gpu(NamedTuple):
    """A GPU: CUDA compute capability, whether a switch joins all GPUs of a node, and whether vLLM takes small steps in spite of its memory."""

    capability: tuple[int, int]
    switched: bool = True
    small_steps: bool = False

    @property
    def multicast(self) -> bool:
        """Whether NCCL reduces inside the switch, which takes buffers of its own (NVLink SHARP, from Hopper on)."""
        return self.switched and self.capability >= HOPPER


@cache
def gpu_of(name: str, memory_gib: float) -> Gpu:
    """The GPU with the longest known name that `name` starts with; for other names the generation follows from its memory (GiB)."""
    data, lower = _data(), name.lower()
    known = max((n for n in data["gpus"] if lower == n or lower.startswith(f"{n}-")), key=len, default=None)
    if known is None:
        return Gpu(BLACKWELL if memory_gib >= data["blackwellGiB"] else HOPPER)
    facts = data["gpus"][known]
    return Gpu(tuple(facts["capability"]), facts["fabric"] == "switch", facts.get("smallSteps", False))


def native_on(dtype: str, gpu: Gpu) -> bool:
    """Whether vLLM has kernels for weights of this dtype on the GPU that do not unpack them to 16 bits first; true for a dtype that is not listed."""
    least = _data()["native"].get(dtype)
    return least is None or gpu.capability >= tuple(least)


@cache
def _data() -> Mapping[str, Any]:
    data: Mapping[str, Any] = read_yaml(PACKAGE_DIR / "gpus.yaml")
    return data
