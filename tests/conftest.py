"""Every test of this package runs under its own plugin for tests on trio."""

import os
import signal

from hypothesis import settings

pytest_plugins = ["harness.testing.pytest_plugin", "scripts.postgres_plugin"]

# No deadline: a busy machine is no fault of an example. In CI the same examples each time.
settings.register_profile("harness", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("harness")

# A job in the background ignores Ctrl-C, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
