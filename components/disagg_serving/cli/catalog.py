"""`disagg catalog`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any

import typer

from ..catalog import Catalog
from .common import CatalogDirs, DataFormat, catalog_with, emit, table


class Kind(StrEnum):
    """Kinds of catalogue entries."""

    MODELS = "models"
    INSTANCES = "instances"
    ENGINES = "engines"
    ROUTERS = "routers"
    METRICS = "metrics"


def catalog(
    kind: Annotated[Kind, typer.Argument(help="What to list.")],
    output_format: Annotated[DataFormat, typer.Option("--format", help="Output format.")] = DataFormat.TEXT,
    catalog_dir: CatalogDirs = None,
) -> int:
    """List what is known, with source and date."""
    known = catalog_with(catalog_dir)
    entries = [getattr(known, kind.value)[i] for i in getattr(known, kind.value)]
    if output_format is DataFormat.JSON:
        emit(json.dumps([e.model_dump(mode="json", by_alias=True, exclude_none=True) for e in entries], indent=2, ensure_ascii=False), None)
    else:
        emit(table(_rows(kind, known)), None)
    return 0


def _rows(kind: Kind, known: Catalog) -> list[list[str]]:
    if kind is Kind.METRICS:
        return _metric_rows(known)
    if kind is Kind.INSTANCES:
        head = ("id", "GPUs", "GPU memory GiB", "EFA", "GPUDirect RDMA", "vCPU", "memory GiB for pods", "NVMe GiB", "USD/h", "price of", "checked")
        rows: list[list[Any]] = [[*head]]
        for i in (known.instances[x] for x in known.instances):
            price = i.on_demand
            rows.append(
                [
                    i.id,
                    f"{i.gpu.count} {i.gpu.name}",
                    i.gpu.memory_gib_torch,
                    f"{i.efa.count} x {i.efa.gbps_each}G",
                    "yes" if i.gpu_direct_rdma else "no",
                    i.vcpu,
                    i.allocatable.memory_gib,
                    i.allocatable.nvme_gib,
                    price.usd_per_hour if price else "none listed",
                    price.as_of if price else "",
                    i.checked,
                ]
            )
    elif kind is Kind.MODELS:
        rows = [["id", "repository", "B total/active", "layers", "attention", "weights", "GB", "context", "checked"]]
        for m in (known.models[x] for x in known.models):
            attention = "MLA + indexer" if m.indexer else "MLA" if m.mla else f"GQA {m.attention_heads}/{m.kv_heads}"
            size = f"{m.parameters_b.total:g}/{m.parameters_b.active:g}"
            rows.append([m.id, m.repository, size, m.layers, attention, m.weight_dtype, f"{m.checkpoint_gb:g}", m.context_length, m.checked])
    elif kind is Kind.ROUTERS:
        rows = [["release", "plugin", "kind", "stability", "parameters", "instead", "checked"]]
        for r in (known.routers[x] for x in known.routers):
            for name, plugin in sorted(r.plugins.items()):
                parameters = plugin.parameters if isinstance(plugin.parameters, str) else ", ".join(plugin.parameters)
                rows.append([r.id, name, plugin.kind, plugin.stability, parameters, plugin.deprecated or "", r.checked])
    else:
        rows = [["id", "image", "version", "NIXL", "libfabric", "stale-peer fix", "tag seen", "asked on a CPU", "checked"]]
        for e in (known.engines[x] for x in known.engines):
            rows.append(
                [
                    e.id,
                    e.image,
                    e.version,
                    e.nixl or "none",
                    *(("yes" if b else "no") for b in (e.libfabric, e.stale_peer_fix, e.tag_verified)),
                    "; ".join(f"{v.date}: {', '.join(v.checks)}" for v in e.verified_on) or "not asked",
                    e.checked,
                ]
            )
    return [[str(cell) for cell in row] for row in rows]


def _metric_rows(known: Catalog) -> list[list[str]]:
    rows = [["list", "metric", "type", "labels", "meaning", "checked"]]
    for found in (known.metrics[x] for x in known.metrics):
        rows += [[found.id, m.name, m.type, ", ".join(m.labels), m.meaning, str(found.checked)] for m in found.metrics]
    return rows
