"""Run the command line in this process, with a cache of its own."""

from __future__ import annotations

import pytest
from cli.runner import Attngen, Outcome

from attngen import cli


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One cache for all tests that only want compiled kernels."""
    return str(tmp_path_factory.mktemp("cli-cache"))


@pytest.fixture
def attngen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, shared_cache: str
) -> Attngen:
    """``attngen("run", "gqa")`` gives exit code, stdout and stderr."""
    monkeypatch.setenv("ATTNGEN_CACHE_DIR", shared_cache)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("ATTNGEN_TRACEBACK", raising=False)

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run
