"""Asks AWS: quotas, offerings, reservations and prices; what is not answered is told with the IAM action that it needs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from ..errors import ToolError
from ..rules.looked_up import Failure, LookedUp, LookUp, Questions, Reservation
from .failures import explain

T = TypeVar("T")
ACTIONS: dict[str, tuple[str, ...]] = {
    "quota": ("servicequotas:GetServiceQuota", "servicequotas:GetAWSDefaultServiceQuota"),
    "offering": ("ec2:DescribeInstanceTypeOfferings",),
    "reservation": ("ec2:DescribeCapacityReservations",),
    "price": ("pricing:GetProducts", "ec2:DescribeSpotPriceHistory"),
}
"""The IAM actions of each look-up: all that the policy in docs/look-ups.md holds."""
PRICE_LIST = {"aws": "us-east-1", "aws-cn": "cn-northwest-1"}
"""Region of the Price List's endpoint, a partition."""
NO_QUOTA, NO_RESERVATION = "NoSuchResourceException", "InvalidCapacityReservationId"
SECONDS, TRIES = 10, 3


def open_session(region: str, profile: str | None = None) -> boto3.Session:
    """A session with the usual chain of credentials. Raises ToolError for a profile that does not exist."""
    try:
        return boto3.Session(profile_name=profile, region_name=region)
    except BotoCoreError as problem:
        raise ToolError(f"no session with AWS: {problem}") from None


def look_up(questions: Questions, session: boto3.Session, now: datetime | None = None) -> LookedUp:
    """All answers. Never raises for what AWS or the network do: a question without an answer is among the failures."""
    at = now or datetime.now(UTC)
    failures: list[Failure] = []
    asked = _Asked(session, questions, failures)
    if not asked.has_credentials():
        return LookedUp(at, failures=failures)
    return LookedUp(
        at,
        quotas=asked.each("quota", ACTIONS["quota"][0], questions.quotas, asked.quota),
        zones=asked.once("offering", ACTIONS["offering"][0], asked.zones, {}),
        reservations=asked.each("reservation", ACTIONS["reservation"][0], questions.reservations, asked.reservation),
        on_demand=asked.each("price", ACTIONS["price"][0], questions.on_demand, asked.on_demand),
        spot=asked.each("price", ACTIONS["price"][1], questions.spot, lambda kind: asked.spot(kind, at)),
        failures=failures,
    )


class _Asked:
    """Clients of one session, and the failures so far."""

    def __init__(self, session: boto3.Session, questions: Questions, failures: list[Failure]) -> None:
        self._session, self._questions, self._failures = session, questions, failures
        self._clients: dict[str, Any] = {}

    def has_credentials(self) -> bool:
        """Whether there are any; without, one failure says so instead of one a question."""

        def find() -> bool:
            if self._session.get_credentials() is None:
                raise NoCredentialsError
            return True

        return self.once("credentials", "", find, default=False)

    def once(self, look_up: LookUp, action: str, ask: Callable[[], T], default: T) -> T:
        """The answer, or `default` and a failure."""
        try:
            return ask()
        except (BotoCoreError, ClientError) as problem:
            self._failures.append(explain(look_up, action, problem, self._questions.region))
            return default

    def each(self, look_up: LookUp, action: str, names: Any, ask: Callable[[str], T]) -> dict[str, T]:
        """Answers by name; the first failure ends it, since the others would fail alike."""
        found: dict[str, T] = {}

        def all_of_them() -> None:
            for name in names:
                found[name] = ask(name)

        self.once(look_up, action, all_of_them, None)
        return found

    def client(self, service: str, region: str | None = None) -> Any:
        """A client with short timeouts: a preview must not hang on a network that drops packets."""
        if service not in self._clients:
            config = Config(connect_timeout=SECONDS, read_timeout=SECONDS, retries={"mode": "standard", "total_max_attempts": TRIES})
            self._clients[service] = self._session.client(service, region_name=region or self._questions.region, config=config)
        return self._clients[service]

    def quota(self, code: str) -> float:
        """The account's own value in vCPUs, or AWS's default where it never had one."""
        quotas = self.client("service-quotas")
        try:
            found = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)
        except quotas.exceptions.NoSuchResourceException:
            found = quotas.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=code)
        return float(found["Quota"]["Value"])

    def zones(self) -> dict[str, frozenset[str]]:
        """Zones of the region by instance type, empty for a type that it does not have."""
        pages = (
            self.client("ec2")
            .get_paginator("describe_instance_type_offerings")
            .paginate(LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": list(self._questions.types)}])
        )
        offered = [(o["InstanceType"], o["Location"]) for page in pages for o in page["InstanceTypeOfferings"]]
        return {kind: frozenset(zone for other, zone in offered if other == kind) for kind in self._questions.types}

    def reservation(self, given: str) -> Reservation | None:
        """One reservation; None where this account sees none of this id."""
        try:
            found = self.client("ec2").describe_capacity_reservations(CapacityReservationIds=[given])["CapacityReservations"]
        except ClientError as problem:
            if problem.response["Error"]["Code"].startswith(NO_RESERVATION):
                return None
            raise
        return _reservation(found[0]) if found else None

    def on_demand(self, kind: str) -> float | None:
        """USD an hour on demand, Linux, shared tenancy; None where the list has none."""
        region = self._questions.region
        wanted = {
            "instanceType": kind,
            "regionCode": region,
            "operatingSystem": "Linux",
            "preInstalledSw": "NA",
            "tenancy": "Shared",
            "capacitystatus": "Used",
        }
        prices = self.client("pricing", PRICE_LIST.get(self._session.get_partition_for_region(region), PRICE_LIST["aws"]))
        filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in wanted.items()]
        found = prices.get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
        return next((p for text in found for p in _hourly(json.loads(text))), None)

    def spot(self, kind: str, at: datetime) -> float | None:
        """USD an hour on spot in the zone; None where there is no market."""
        zone, linux = self._questions.zone, ["Linux/UNIX"]
        history = self.client("ec2").describe_spot_price_history(InstanceTypes=[kind], AvailabilityZone=zone, ProductDescriptions=linux, StartTime=at)
        newest = max(history["SpotPriceHistory"], key=lambda p: p["Timestamp"], default=None)
        return float(newest["SpotPrice"]) if newest else None


def _reservation(found: Mapping[str, Any]) -> Reservation:
    return Reservation(
        state=found["State"],
        instance_type=found["InstanceType"],
        zone=found.get("AvailabilityZone", ""),
        total=found["TotalInstanceCount"],
        available=found["AvailableInstanceCount"],
        block=found.get("ReservationType") == "capacity-block",
        start=found.get("StartDate"),
        end=found.get("EndDate"),
    )


def _hourly(product: Mapping[str, Any]) -> list[float]:
    """Prices above 0 in USD an hour of one product of the Price List."""
    terms = product.get("terms", {}).get("OnDemand", {}).values()
    dimensions = [d for term in terms for d in term["priceDimensions"].values() if d.get("unit") == "Hrs"]
    return [usd for d in dimensions if (usd := float(d["pricePerUnit"].get("USD", 0))) > 0]
