"""The keys of `plan --format json` as models: what programs may rely on, and from what the schema of a plan is made."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from ..document.capacity import Fit
from ..errors import Level
from ..recording.difference import Op


class Keys(BaseModel):
    """An object of the plan: camelCase keys, all of them known. A key with a default may be left out."""

    model_config = ConfigDict(extra="forbid", alias_generator=to_camel, use_attribute_docstrings=True, defer_build=True)


class Bars(Keys):
    """An estimate with its error bars."""

    low: float
    mid: float
    high: float


class ResourceKeys(Keys):
    """A registration, as the engine would receive it."""

    urn: str
    type: str
    """Type token, such as `kubernetes:core/v1:Namespace`."""
    name: str
    parent: str | None
    """URN."""
    provider: str | None
    """URN, null for the default provider."""
    remote: bool
    """Whether only the engine expands it: a component of a package, or a chart."""
    custom: bool
    """Whether a provider manages it; false for components."""
    inputs: dict[str, Any]
    """As declared; `<computed>` stands for what only the deployment knows, `<secret>` for secrets."""
    depends_on: list[str]
    """URNs."""
    input_dependencies: dict[str, list[str]]
    """By input: URNs of the resources that it is made from."""
    options: dict[str, Any]
    """Options that are set, such as `protect` and `aliases`."""


class FindingKeys(Keys):
    """A result of a check."""

    id: str
    """Rule, see `disagg rules`."""
    level: Level
    path: str
    """Place in the stack file, empty where it is about the whole."""
    message: str
    value: Any
    """What stands at the path; null where it is not shown, or nothing stands there."""
    allowed: str
    fix: str
    reference: str
    corrections: list[dict[str, Any]] = []
    """Values by path: each correction alone removes the finding; null takes a key out. Left out where there is none."""
    accepted: str = ""
    """The stack file's reason to live with it. Left out where it is not accepted."""


class PerGpu(Keys):
    """Memory of one GPU, in GiB."""

    budget_gib: float = Field(alias="budgetGiB")
    """What the engine may use."""
    weights_gib: Bars = Field(alias="weightsGiB")
    overhead_gib: Bars = Field(alias="overheadGiB")
    kv_gib: Bars = Field(alias="kvGiB")


class Owned(Keys):
    """What belongs to a model's role."""

    model: str
    generation: str = ""
    """Left out where the model has none."""
    role: str


class CapacityKeys(Owned):
    """What one engine of a role holds."""

    per_gpu: PerGpu
    kv_bytes_per_token_per_gpu: float
    kv_tokens: Bars
    """Tokens of KV in all ranks of an engine."""
    max_concurrency: Bars
    """Requests of the greatest length at once."""
    fits: Fit
    longest_request: int
    """Tokens."""
    workload_concurrency: Bars | None = None
    """Requests of the workload's mean length at once. Left out without a workload."""


class Rate(Keys):
    """Requests a second."""

    wanted: float
    capacity: float
    kind: str
    """What the capacity is: `capacity`, `lower bound` or `upper bound`."""


class Utilisation(Keys):
    """Shares of the time in which a role is busy."""

    prefill: float
    decode: float


class Ratio(Keys):
    """GPUs for prefill by GPUs for decode: as planned, and the optimum with its error bars."""

    now: float
    low: float
    mid: float
    high: float


class Scenario(Keys):
    """A way on which KV moves."""

    name: str
    seconds: list[float]
    """Low and high end, for one prompt."""
    load: list[float] | None
    """Shares of what the way carries; null where no rate is wanted."""


class Transfer(Keys):
    """How KV comes from prefill to decode."""

    bytes: int
    """Of one prompt."""
    scenarios: list[Scenario]


class ForecastKeys(Keys):
    """What measured rates, or bounds, say about a split model with a workload. `problem` stands alone with the model."""

    model: str
    problem: str = ""
    """Why there is no forecast."""
    advice: str = ""
    better: Literal["aggregated", "disaggregated"] | None = None
    requests_per_second: Rate | None = None
    """From here to `ratio`: only with measured rates of both roles."""
    bound_by: str = ""
    utilisation: Utilisation | None = None
    usd_per_million_tokens: float | None = None
    prefill_wait_seconds: float | None = None
    ratio: Ratio | None = None
    bounds: list[str] = []
    """Sentences; only without measured rates."""
    unmeasured: list[Literal["prefill", "decode"]] = []
    kv_transfer: Transfer | None = None


class NodeKeys(Keys):
    """One node."""

    pods: list[str]
    idle_gpus: int
    idle_efa: int
    """EFA devices that no pod asks for."""


class PlacementKeys(Keys):
    """Nodes of a pool."""

    pool: str
    instance_type: str
    nodes: list[NodeKeys]
    unplaced: list[str] = []
    """Pods that no node can hold. Left out where there is none."""


class CostLine(Keys):
    """A line of the bill; amounts are null where no price is known, and `note` says why."""

    name: str
    item: str
    quantity: int
    unit_per_hour: float | None
    per_hour: float | None
    per_month: float | None
    region: str | None
    as_of: str | None
    """Day of the price, as YYYY-MM-DD."""
    note: str


class Price(Keys):
    """What GPUs cost as shares of their nodes."""

    per_hour: float
    per_month: float
    as_of: str
    """Day of the price, as YYYY-MM-DD."""


class RoleCost(Owned):
    """What a role's GPUs cost; null where no price is listed."""

    gpus: int
    on_demand: Price | None
    capacity_block: Price | None


class CostKeys(Keys):
    """Dated list prices; totals are sums of what is known."""

    currency: Literal["USD"]
    per_hour: float
    per_month: float
    """730 hours."""
    as_of: str | None
    """Day of the oldest price, as YYYY-MM-DD."""
    complete: bool
    """Whether every line has a price."""
    lines: list[CostLine]
    roles: list[RoleCost]


class Signal(Keys):
    """What an engine carries before another one is added."""

    name: str
    threshold: float


class ScaledRole(Owned):
    """A role that KEDA scales."""

    min_replica_count: int
    max_replica_count: int
    signals: list[Signal]
    ready_seconds: float
    scale_up_period_seconds: float
    scale_down_window_seconds: float


class AtMost(Keys):
    """The plan with all roles at their most; `placement` and `cost` of the plan are at their least."""

    placement: list[PlacementKeys]
    cost: CostKeys


class AutoscalingKeys(Keys):
    """Scaled roles, and what they may come to."""

    roles: list[ScaledRole]
    at_most: AtMost | None
    """Null where nothing is scaled."""


class PathKeys(Keys):
    """A value that differs; null is a value that is not there."""

    path: str
    """Of the inputs (`spec.replicas`), or an option (`options.protect`)."""
    before: Any
    after: Any
    forces_replacement: bool


class ChangeKeys(Keys):
    """What happens to one resource."""

    urn: str
    type: str
    name: str
    op: Op
    paths: list[PathKeys]
    effect: str
    """What it means for what runs; empty where there is nothing to say."""
    severity: Level
    former: str | None
    """URN before a rename."""


class DeltaKeys(Keys):
    """A figure that differs; null where one revision has no such."""

    subject: str
    figure: str
    before: float | str | None
    after: float | str | None
    unit: str
    severity: Level


class CheckKeys(Keys):
    """Findings that only this revision has, that only the base has, and that both have."""

    new: list[FindingKeys]
    gone: list[FindingKeys]
    same: list[FindingKeys]


class DifferenceKeys(Keys):
    """What differs from the base, beside `changes`."""

    base: str
    """The revision as asked for."""
    commit: str
    """The one that was recorded, empty where there is none."""
    compared: bool
    """False where only the checks could be compared."""
    notes: list[str]
    unchanged: int
    """Resources."""
    capacity: list[DeltaKeys]
    placement: list[DeltaKeys]
    cost: list[DeltaKeys]
    checks: CheckKeys


class PlanKeys(Keys):
    """The plan of one stack, as `disagg plan STACK --format json` prints it; `--all` prints a list of these."""

    version: Literal[1]
    """Grows when a key is renamed, removed or means something else; new keys do not change it."""
    project: str
    stack: str
    providers: dict[str, dict[str, Any]]
    """Configuration of default providers, credentials as `<secret>`."""
    resources: list[ResourceKeys]
    callbacks: dict[Literal["transforms", "invokeTransforms", "hooks", "stateMigrations"], int]
    """Functions of the program that only the engine calls, by kind; kinds that there are none of are left out."""
    checks: list[FindingKeys]
    """Worst first."""
    capacity: list[CapacityKeys]
    """An entry a role whose memory is known."""
    forecast: list[ForecastKeys]
    placement: list[PlacementKeys]
    cost: CostKeys
    autoscaling: AutoscalingKeys
    changes: list[ChangeKeys]
    """Worst first; empty without `--base`."""
    difference: DifferenceKeys | None
    """Null without `--base`."""
    topology: str
    """Mermaid flowchart, empty where nothing is placed."""
