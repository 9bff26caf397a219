"""AWS as look-ups see it: moto where it implements a call, else answers put in at the HTTP boundary of botocore."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import boto3
import botocore.session
from botocore.awsrequest import AWSResponse
from botocore.loaders import create_loader

REGION = "us-east-1"
XML = '<?xml version="1.0"?><{name}Response xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>r</requestId>{body}</{name}Response>'
LOADER = create_loader()
"""Descriptions of AWS's services, read once: each session would read its own, EC2's is several megabytes."""
EC2_ERROR = (
    '<?xml version="1.0"?><Response><Errors><Error><Code>{code}</Code><Message>m</Message></Error></Errors><RequestID>r</RequestID></Response>'
)


class Raw:
    """A body that botocore can read once."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self, **_: Any) -> Any:
        """The body in one piece."""
        yield self._body


def answer(status: int, body: str, kind: str) -> AWSResponse:
    """One HTTP response."""
    return AWSResponse("https://aws.invalid", status, {"Content-Type": kind}, Raw(body.encode()))


class Aws:
    """A session whose requests are answered here; `asked` lists the operations in order."""

    def __init__(self) -> None:
        core = botocore.session.Session()
        core.register_component("data_loader", LOADER)
        self.session = boto3.Session("AKIAEXAMPLE", "secret-of-the-test", region_name=REGION, botocore_session=core)
        self.asked: list[str] = []

    def replies(self, service: str, operation: str, make: Callable[[Any], AWSResponse]) -> Aws:
        """Answer an operation; `make` gets the request."""

        def handler(request: Any, **_: Any) -> AWSResponse:
            self.asked.append(operation)
            return make(request)

        self.session.events.register(f"before-send.{service}.{operation}", handler)
        return self

    def json(self, service: str, operation: str, body: Any, status: int = 200) -> Aws:
        """Answer an operation of a JSON service."""
        return self.replies(service, operation, lambda _: answer(status, json.dumps(body), "application/x-amz-json-1.1"))

    def ec2(self, operation: str, body: str) -> Aws:
        """Answer an operation of EC2 with what stands inside its response."""
        return self.replies("ec2", operation, lambda _: answer(200, XML.format(name=operation, body=body), "text/xml"))

    def refuses(self, service: str, operation: str, code: str) -> Aws:
        """Answer with an error of AWS."""
        if service == "ec2":
            return self.replies("ec2", operation, lambda _: answer(400, EC2_ERROR.format(code=code), "text/xml"))
        return self.json(service, operation, {"__type": code, "message": "m"}, 400)

    def quota(self, vcpus: float) -> Aws:
        """The account's own quotas, all of this value."""
        return self.json("service-quotas", "GetServiceQuota", {"Quota": {"Value": vcpus}})

    def offers(self, *pairs: tuple[str, str]) -> Aws:
        """Instance types with their zones."""
        items = "".join(f"<item><instanceType>{kind}</instanceType><location>{zone}</location></item>" for kind, zone in pairs)
        return self.ec2("DescribeInstanceTypeOfferings", f"<instanceTypeOfferingSet>{items}</instanceTypeOfferingSet>")

    def reserves(self, **fields: Any) -> Aws:
        """One reservation; fields by their names in EC2's XML."""
        usual = {
            "capacityReservationId": "cr-0123456789abcdef0",
            "state": "active",
            "instanceType": "p5.48xlarge",
            "availabilityZone": "us-east-1a",
            "totalInstanceCount": 2,
            "availableInstanceCount": 1,
        }
        inside = "".join(f"<{key}>{value}</{key}>" for key, value in {**usual, **fields}.items())
        return self.ec2("DescribeCapacityReservations", f"<capacityReservationSet><item>{inside}</item></capacityReservationSet>")

    def prices(self, usd: float | None) -> Aws:
        """The price list: one product, with the zero-priced dimension that reservations have beside it; None for an empty list."""
        dimensions = {"free": {"unit": "Hrs", "pricePerUnit": {"USD": "0.0"}}, "paid": {"unit": "Hrs", "pricePerUnit": {"USD": f"{usd}"}}}
        product = {"product": {}, "terms": {"OnDemand": {"sku.term": {"priceDimensions": dimensions}}}}
        return self.json("pricing", "GetProducts", {"PriceList": [json.dumps(product)] if usd is not None else []})

    def spot(self, usd: float) -> Aws:
        """The spot price history: an old price and this one."""

        def item(price: float, day: str) -> str:
            return f"<item><instanceType>x</instanceType><spotPrice>{price}</spotPrice><timestamp>{day}T00:00:00Z</timestamp></item>"

        items = item(usd * 2, "2026-11-01") + item(usd, "2026-11-29")
        return self.ec2("DescribeSpotPriceHistory", f"<spotPriceHistorySet>{items}</spotPriceHistorySet>")
