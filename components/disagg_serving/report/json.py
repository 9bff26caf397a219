"""The plan as JSON; numbers and keys are the contract, the order is fixed."""

from __future__ import annotations

import json
from collections.abc import Sequence

from ..document.plan import PlanDocument
from ..records import data_of


def render_json(plans: Sequence[PlanDocument], *, as_list: bool) -> str:
    """One plan as an object; several, or with `as_list`, as a list."""
    data = [data_of(p, PlanDocument) for p in plans]
    return json.dumps(data if as_list else data[0], indent=2, ensure_ascii=False)
