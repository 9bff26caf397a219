"""`python -m disagg_serving` is `disagg`."""

from .cli.main import run

run()
