"""Rules about prefill and decode as a pair: what has to be equal on both."""

from __future__ import annotations

from collections.abc import Iterator

from ...errors import Level
from ...phrases import say
from ...planning.extras import Extra
from ...planning.paired import SHARED_FLAGS, SHARED_VARIABLES, shared_settings
from ..documents import NIXL_CONNECTOR
from ..registry import Fault, Stage, Subject, remove, rule


@rule("pd-alike", Level.ERROR, Stage.FORM, f"{NIXL_CONNECTOR}metadata.py (compute_nixl_compatibility_hash)")
def pd_alike(s: Subject) -> Iterator[Fault]:
    """Flags and variables that NIXL compares, or that make tokens of a prompt, are equal on prefill and decode."""
    for served in s.served:
        if not {"prefill", "decode"} <= served.spec.roles.keys():
            continue
        prefill, decode = shared_settings(served.spec, "prefill"), shared_settings(served.spec, "decode")
        for setting in sorted(prefill.keys() | decode.keys()):
            mine, theirs = decode.get(setting, []), prefill.get(setting, [])
            if _said(mine) == _said(theirs):
                continue
            shared, extra = {**SHARED_FLAGS, **SHARED_VARIABLES}[setting], _of_a_role(mine + theirs)
            other = "prefill" if extra.place.startswith("decode.") else "decode"
            both = bool(mine and theirs)
            message = f"is {'another one' if both else 'not'} on {other}, and decides {shared.decides}"
            level = None if both or shared.surely else Level.WARNING
            path = f"{served.path}.{extra.place}"
            advice = say("set it in {extraArgs} of the model") if setting.startswith("--") else say("set it in {extraEnv} of the model")
            yield Fault(path, message, extra.value, "the same on both roles", advice, level, [remove(path)])


def _said(extras: list[Extra]) -> list[str]:
    return [extra.value.replace("_", "-").lower() for extra in extras]


def _of_a_role(extras: list[Extra]) -> Extra:
    """The first that stands in a role: what stands in the model alone is equal on both."""
    return next(extra for extra in extras if extra.place.startswith(("prefill.", "decode.")))
