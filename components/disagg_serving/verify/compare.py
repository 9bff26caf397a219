"""Whether an object of the cluster has everything that was generated, whatever the API server and webhooks added."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PLACEHOLDERS = ("<computed>", "<secret>")
"""Values that only `pulumi up` knows; what stands in their place is not compared."""
QUANTITIES = frozenset({"requests", "limits", "sizeLimit"})
"""Keys below which `1000m` and `1` are the same."""
SHOWN = 120


def mismatches(expected: Any, found: Any, *, more: bool = False, path: str = "") -> list[str]:
    """Places where `found` lacks or contradicts what is expected, as sentences.

    Mappings may have more keys. Lists of named things may have more of them; other lists have the same length, unless `more`.
    """
    return list(_compare(expected, found, path, more=more, quantity=False))


def _compare(expected: Any, found: Any, path: str, *, more: bool, quantity: bool) -> Iterator[str]:
    if isinstance(expected, str) and any(p in expected for p in PLACEHOLDERS):
        return
    if isinstance(expected, Mapping):
        if not isinstance(found, Mapping):
            if expected or found:
                yield _differs(path, expected, found)
            return
        for key, value in expected.items():
            inner = f"{path}.{key}" if path else str(key)
            yield from _compare(value, found.get(key), inner, more=more, quantity=quantity or key in QUANTITIES)
    elif isinstance(expected, list):
        yield from _lists(expected, found if isinstance(found, list) else [], path, more=more, quantity=quantity)
    elif expected != found and not (quantity and _same_quantity(expected, found)):
        yield _differs(path, expected, found)


def _lists(expected: Sequence[Any], found: Sequence[Any], path: str, *, more: bool, quantity: bool) -> Iterator[str]:
    if all(isinstance(item, Mapping) and "name" in item for item in expected) and expected:
        # of variables with one name the last counts
        named = {item.get("name"): item for item in found if isinstance(item, Mapping)}
        for item in expected:
            yield from _compare(item, named.get(item["name"]), f"{path}[{item['name']}]", more=more, quantity=quantity)
    elif more and all(isinstance(item, Mapping) for item in expected):
        for item in expected:
            if not any(not list(_compare(item, other, "", more=more, quantity=quantity)) for other in found):
                yield f"{path} lacks {short(item)}"
    elif len(expected) != len(found) or not all(isinstance(item, Mapping) for item in expected):
        if list(expected) != list(found):
            yield _list_differs(path, expected, found)
    else:
        for i, (item, other) in enumerate(zip(expected, found, strict=True)):
            yield from _compare(item, other, f"{path}[{i}]", more=more, quantity=quantity)


def _list_differs(path: str, expected: Sequence[Any], found: Sequence[Any]) -> str:
    lacking, extra = [i for i in expected if i not in found], [i for i in found if i not in expected]
    parts = [f"lacks {', '.join(short(i) for i in lacking)}"] if lacking else []
    parts += [f"has {', '.join(short(i) for i in extra)}"] if extra else []
    return f"{path} {' and '.join(parts) or 'is in another order'}"


def _same_quantity(expected: Any, found: Any) -> bool:
    from kubernetes.utils.quantity import parse_quantity  # noqa: PLC0415 (extra: kubernetes)

    try:
        return bool(parse_quantity(expected) == parse_quantity(found))
    except (ValueError, TypeError):
        return False


def _differs(path: str, expected: Any, found: Any) -> str:
    if found is None:
        return f"{path} is missing"
    return f"{path} is {short(found)} instead of {short(expected)}"


def short(value: Any) -> str:
    """A value as short text."""
    text = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), default=str)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
