"""The endpoint picker's configuration: which pod a request goes to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..planning.shapes import Served
from ..spec import PluginSpec

PREFILL, DECODE, SINGLE = "prefill", "decode", "default"
"""Names of scheduling profiles; the disaggregated profile handler expects the first two."""
PREFIX = "approx-prefix-cache-producer"
IN_FLIGHT = "inflight-load-producer"
"""It publishes the tokens in flight, which a role may be scaled on."""
PICKER = "max-score-picker"
ROLE_FILTERS = {PREFILL: "prefill-filter", DECODE: "decode-filter"}
HANDLERS = {True: "disagg-profile-handler", False: "single-profile-handler"}
IN_PROFILES = frozenset({"filter", "scorer", "picker"})
"""Kinds of plugins that a profile refers to; producers are only listed."""


def _scorer(name: str, weight: float) -> PluginSpec:
    return PluginSpec(type=name, weight=weight)


BY_CHART = [_scorer("prefix-cache-scorer", 3), _scorer("kv-cache-utilization-scorer", 2), _scorer("queue-scorer", 2)]
"""The weights of the chart's own default: what is cached counts most, and load on both counts outweighs it."""
DEFAULTS: dict[str, list[PluginSpec]] = {
    PREFILL: BY_CHART,
    # an answer occupies KV cache until it ends, so room for it counts as much as what is cached
    DECODE: [_scorer("prefix-cache-scorer", 2), _scorer("kv-cache-utilization-scorer", 2), _scorer("active-request-scorer", 1)],
    SINGLE: BY_CHART,
}


def profiles(served: Served) -> dict[str, list[PluginSpec]]:
    """The plugins of each scheduling profile, as asked for or by default."""
    routing = served.spec.gateway.routing
    if not served.spec.disaggregated:
        return {SINGLE: routing.server or DEFAULTS[SINGLE]}
    return {PREFILL: routing.prefill or DEFAULTS[PREFILL], DECODE: routing.decode or DEFAULTS[DECODE]}


def picker_config(served: Served, *, counts_tokens: bool = False) -> dict[str, Any]:
    """EndpointPickerConfig of one model.

    With prefill and decode every request is split by default, as long as a prefill pod is ready: the sidecar then replaces KV-transfer
    fields that a client sends. `counts_tokens` makes it publish tokens in flight.
    """
    listed = _Plugins(served)
    if not any(p.type == PREFIX for plugins in profiles(served).values() for p in plugins):
        # prefixes longer than the context never match
        listed.add(PREFIX, {"maxPrefixTokensToMatch": served.max_model_len})
    if counts_tokens:
        listed.add(IN_FLIGHT, {})
    if served.spec.disaggregated:
        listed.add(HANDLERS[True], {"deciders": {"prefill": listed.add(*decider(served))}})
    else:
        listed.add(HANDLERS[False], {})
    found = [{"name": name, "plugins": listed.profile(name, plugins)} for name, plugins in profiles(served).items()]
    return {
        "apiVersion": served.router.config_api_version,
        "kind": "EndpointPickerConfig",
        "plugins": listed.entries,
        "schedulingProfiles": found,
    }


def decider(served: Served) -> tuple[str, dict[str, Any]]:
    """The plugin that decides whether a request is split, with its parameters."""
    routing = served.spec.gateway.routing
    if routing.disaggregation == "always":
        return "always-disagg-pd-decider", {}
    return "prefix-based-pd-decider", {"nonCachedTokens": routing.non_cached_tokens}


class _Plugins:
    """The configuration's list of plugins: equal ones once, different ones of a type under numbered names."""

    def __init__(self, served: Served) -> None:
        self.entries: list[dict[str, Any]] = []
        self._kinds = {name: plugin.kind for name, plugin in served.router.plugins.items()}
        self._names: dict[str, list[dict[str, Any]]] = {}

    def add(self, kind: str, parameters: dict[str, Any]) -> str:
        """List a plugin, if it is not there yet; its name."""
        same_type = self._names.setdefault(kind, [])
        if parameters not in same_type:
            same_type.append(parameters)
            number = len(same_type)
            named = {"name": f"{kind}-{number}"} if number > 1 else {}
            self.entries.append({**named, "type": kind, **({"parameters": parameters} if parameters else {})})
        number = same_type.index(parameters) + 1
        return kind if number == 1 else f"{kind}-{number}"

    def profile(self, name: str, plugins: Sequence[PluginSpec]) -> list[dict[str, Any]]:
        """The references of one profile: the role's filter first, a picker last."""
        references: list[dict[str, Any]] = [{"pluginRef": self.add(ROLE_FILTERS[name], {})}] if name in ROLE_FILTERS else []
        for plugin in plugins:
            reference = self.add(plugin.type, dict(plugin.parameters))
            if self._kinds.get(plugin.type) in IN_PROFILES:
                scores = self._kinds[plugin.type] == "scorer"
                references.append({"pluginRef": reference, **({"weight": _number(plugin.weight or 1)} if scores else {})})
        if not any(self._kinds.get(p.type) == "picker" for p in plugins):
            references.append({"pluginRef": self.add(PICKER, {})})
        return references


def _number(weight: float) -> float | int:
    return int(weight) if weight == int(weight) else weight
