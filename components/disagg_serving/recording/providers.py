"""The default AWS provider: what a stack's `aws:` configuration says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ..document.resource import SECRET

AWS = "aws"
CREDENTIALS = frozenset({"accessKey", "secretKey", "token", "webIdentityToken", "externalId"})
"""Keys whose values no plan shows, also where a file holds them in the clear."""


def provider_configuration(config: Mapping[str, Any], secrets: frozenset[str]) -> dict[str, dict[str, Any]]:
    """`providers` of a plan: the `aws:` configuration by key; what is encrypted or a credential is `<secret>`."""
    prefix = f"{AWS}:"
    plain = {key.removeprefix(prefix): _shown(key.removeprefix(prefix), value) for key, value in config.items() if key.startswith(prefix)}
    hidden = dict.fromkeys((key.removeprefix(prefix) for key in secrets if key.startswith(prefix)), SECRET)
    return {AWS: dict(sorted({**plain, **hidden}.items()))}


def _shown(key: str, value: Any) -> Any:
    if key in CREDENTIALS or (isinstance(value, Mapping) and value.keys() == {"secure"}):
        return SECRET
    if isinstance(value, Mapping):
        return {str(k): _shown(str(k), v) for k, v in value.items()}
    if isinstance(value, str) and value.startswith(("{", "[")):
        with suppress(ValueError):  # the form in which `pulumi config set` keeps structures
            return _shown(key, json.loads(value))
    return [_shown("", v) for v in value] if isinstance(value, list) else value
