"""Every test of this package runs under its own plugin for tests on trio."""

pytest_plugins = ["harness.testing.pytest_plugin"]
