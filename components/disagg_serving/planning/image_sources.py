"""Where images and charts are read from: an air-gapped environment names mirrors by prefix."""

from __future__ import annotations

from collections.abc import Mapping

DEFAULT_REGISTRY = "docker.io"
OCI, HTTPS = "oci://", "https://"


def located(reference: str, sources: Mapping[str, str]) -> str:
    """`reference` (an image, or a chart as oci://... or https://...) with the longest matching prefix replaced; without a match as it is.

    An image without a registry is looked up as docker.io/...; a prefix ends at a slash, a colon or an @. Mirrors hold charts as OCI
    artifacts, also those of a chart repository.
    """
    scheme = OCI if is_chart(reference) else ""
    longest = source_of(reference, sources)
    if longest is None:
        return reference
    return scheme + sources[longest] + full_name(reference)[len(full_name(longest)) :]


def source_of(reference: str, sources: Mapping[str, str]) -> str | None:
    """The prefix of `sources` that applies to an image or chart."""
    full = full_name(reference)
    matching = [p for p in sources if full == (own := full_name(p)) or (full.startswith(own) and full[len(own)] in "/:@")]
    return max(matching, key=lambda p: len(full_name(p)), default=None)


def full_name(reference: str) -> str:
    """A name with its registry, as container runtimes complete it; a registry alone stays one."""
    if is_chart(reference):
        return reference.removeprefix(OCI).removeprefix(HTTPS)
    first, slash, _ = reference.partition("/")
    host = first if slash else first.partition(":")[0]
    is_registry = "." in host or host == "localhost" or (slash != "" and ":" in host)
    return reference if is_registry else f"{DEFAULT_REGISTRY}/{reference}"


def is_chart(reference: str) -> bool:
    """Whether a reference is that of a chart: only those have a scheme."""
    return reference.startswith((OCI, HTTPS))


def in_repository(chart: str) -> tuple[str, str | None]:
    """A chart's name and the repository whose address stands before it; a chart that is in none as it is."""
    repository, _, name = chart.rpartition("/") if chart.startswith(HTTPS) else ("", "", chart)
    return name, repository or None
