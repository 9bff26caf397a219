"""The command line: `disagg`."""
