"""What holds for every test: Hypothesis has no deadline, as machines differ and are shared."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("attngen", deadline=None, print_blob=True)
settings.load_profile("attngen")


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all processes of the session; see `compiling`."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "kernel-cache"
    folder.mkdir(exist_ok=True)
    return folder
