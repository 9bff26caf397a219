"""`pulumi-resource-aws` of the bench."""

import sys
from importlib.metadata import version

from pulumi.provider.experimental.server import main

from bench.doubles.provider import Double

if __name__ == "__main__":
    released = version("pulumi-aws")
    main(sys.argv[1:], released, Double("aws", released))
