"""What the real engine says: vLLM's own parser, configuration checks and two servers that move KV by NIXL, on a CPU.

It needs some gigabytes of packages in environments of its own, so it is no part of the other suites: `make engine`.
"""
