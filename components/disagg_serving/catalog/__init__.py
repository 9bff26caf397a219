"""What is known about instance types, models, engine images and routers: data with source and date, extended by adding YAML files."""

from __future__ import annotations

from .entries import Engine, Instance, Model
from .loader import Catalog, is_path, load_catalog

__all__ = ["Catalog", "Engine", "Instance", "Model", "is_path", "load_catalog"]
