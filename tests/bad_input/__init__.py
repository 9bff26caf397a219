"""Bad input by the part of a stack file that it is in, and what has to be said about it."""

from __future__ import annotations

from .autoscaling import AUTOSCALING_CASES
from .environment import CAPACITY_CASES, ENVIRONMENT_CASES
from .flags import FLAG_CASES
from .form import CATALOG_CASES, FORM_CASES
from .gateway import GATEWAY_CASES
from .namespaces import NAMESPACE_CASES
from .observability import OBSERVABILITY_CASES
from .planning import PLANNING_CASES
from .reservations import RESERVATION_CASES
from .roles import ROLE_CASES
from .rollout import ROLLOUT_CASES
from .secrets import SECRET_CASES
from .untrusted import CONFIG_JSON_CASES, HOSTILE_CASES

CASES = [
    *FORM_CASES,
    *CATALOG_CASES,
    *ROLE_CASES,
    *FLAG_CASES,
    *CAPACITY_CASES,
    *ENVIRONMENT_CASES,
    *GATEWAY_CASES,
    *OBSERVABILITY_CASES,
    *NAMESPACE_CASES,
    *SECRET_CASES,
    *PLANNING_CASES,
    *AUTOSCALING_CASES,
    *ROLLOUT_CASES,
    *RESERVATION_CASES,
]
UNTRUSTED = [*HOSTILE_CASES, *CONFIG_JSON_CASES]
