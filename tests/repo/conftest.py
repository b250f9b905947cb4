"""``--update-golden``: write what is generated now into tests/golden and the README."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write tests/golden and the README's generated parts instead of comparing them "
        "(give tests/repo as the path)",
    )


@pytest.fixture(scope="session")
def update_golden(pytestconfig: pytest.Config) -> bool:
    return bool(pytestconfig.getoption("--update-golden", default=False))
