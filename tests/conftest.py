"""Every test of this package runs under its own plugin for tests on trio."""

import os

from hypothesis import settings

pytest_plugins = ["harness.testing.pytest_plugin"]

# No deadline: a busy machine is no fault of an example. In CI the same examples each time.
settings.register_profile("harness", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("harness")
