"""A headless Chromium for tests of what people look at; they are skipped where there is none."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")

needs_browser = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None,
    reason="needs chromium and chromedriver (Debian: apt-get install chromium chromium-driver)",
)


@contextmanager
def browser() -> Iterator[Any]:
    """A Selenium driver that may use no network and keeps its console and requests."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = str(CHROMIUM)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (
            "headless=new",
            "no-sandbox",
            "disable-gpu",
            "disable-quic",
            "disable-dev-shm-usage",
            "no-first-run",
            "disable-background-networking",
            "disable-component-update",
            "disable-sync",
            "hide-scrollbars",
            f"user-data-dir={profile}",
        ):
            options.add_argument(f"--{flag}")
        driver = Chrome(options=options, service=Service(str(DRIVER)))
        try:
            driver.set_script_timeout(60)
            yield driver
        finally:
            driver.quit()


def view(driver: Any, width: int, height: int = 900, *, dark: bool = False) -> None:
    """Show pages as a device of that size does."""
    driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
