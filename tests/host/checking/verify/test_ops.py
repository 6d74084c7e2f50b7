"""Every op of the repository keeps every promise of its spec; the tests themselves are those of `baracuda-gen test`."""

from baracuda.checking.verify.suite import *  # noqa: F403
from baracuda.checking.verify.suite import pytest_generate_tests  # noqa: F401
