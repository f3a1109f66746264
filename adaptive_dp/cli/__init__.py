"""The command line, ``adaptive-dp``: its entry point is `adaptive_dp.cli.main.main`."""
