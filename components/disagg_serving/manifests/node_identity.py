"""What NodeClasses name of AWS.

Annotations stay types here: the component plugin reads them, and finds no Required in a text.
"""

from collections.abc import Mapping, Sequence
from typing import NotRequired, Required, TypedDict


class SelectorTerm(TypedDict):
    """One way to find subnets or security groups, by id or by tags."""

    id: NotRequired[str]
    """Id of one."""

    tags: NotRequired[Mapping[str, str]]
    """Tags that all of them carry."""


class NodeIdentity(TypedDict):
    """What a NodeClass takes from AWS."""

    role: Required[str]
    """Name of the nodes' IAM role."""

    subnet_terms: Required[Sequence[SelectorTerm]]
    """Subnets of the nodes; one term has to match."""

    security_group_terms: Required[Sequence[SelectorTerm]]
    """Security groups of the nodes; each that one term matches."""
