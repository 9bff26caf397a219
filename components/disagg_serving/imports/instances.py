"""Which instance type a file means: by name, by the GPU that its node selectors tell, or the cheapest one on which the rules find no error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..catalog import Catalog, Instance
from ..labels import INSTANCE_FAMILIES, INSTANCE_TYPE


def named(selectors: Mapping[str, Sequence[str]], catalog: Catalog) -> str:
    """The catalogue's type that the selectors name, also as SageMaker spells it; an empty text where they name none."""
    values = [value.removeprefix("ml.") for value in selectors.get(INSTANCE_TYPE, ())]
    return next((value for value in values if value in catalog.instances), "")


def unknown(selectors: Mapping[str, Sequence[str]], catalog: Catalog) -> str:
    """The type that the selectors name and the catalogue does not have, or an empty text."""
    values = [value.removeprefix("ml.") for value in selectors.get(INSTANCE_TYPE, ())]
    return values[0] if values and not named(selectors, catalog) else ""


def candidates(selectors: Mapping[str, Sequence[str]], catalog: Catalog, least: int = 1) -> list[Instance]:
    """The types that hold the GPU, or are of the family, that the selectors tell of, cheapest first; all where they tell of none.

    Those with fewer than `least` GPUs are left out where others are there.
    """
    by_price = sorted(catalog.instances.values(), key=lambda one: (_price(one), one.id))
    # any label may name a GPU, as `nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3` does: what counts is the catalogue's name of it
    told = " ".join(value.lower() for key, values in selectors.items() for value in values if "gpu" in key.lower() or "accelerator" in key)
    families = {value for key in INSTANCE_FAMILIES for value in selectors.get(key, ())}
    fit = [one for one in by_price if one.gpu.name in told or one.family in families] or by_price
    return [one for one in fit if one.gpu.count >= least] or fit


def tells(selectors: Mapping[str, Sequence[str]], catalog: Catalog) -> bool:
    """Whether the selectors narrow the types down."""
    return len(candidates(selectors, catalog)) < len(catalog.instances)


def _price(one: Instance) -> float:
    prices = [price.usd_per_hour for price in (one.on_demand, one.capacity_block) if price is not None]
    return min(prices) if prices else float("inf")
