"""Where the templates and the shipped specs are: beside the package in a checkout, or in a wheel.

Input: nothing. Output: folders that exist; a broken installation is an error that says so.
"""

from __future__ import annotations

from pathlib import Path

from attngen.errors import TargetError

_PACKAGE = Path(__file__).resolve().parent


def _folder(checkout_name: str, wheel_name: str) -> Path:
    for folder in (_PACKAGE / wheel_name, _PACKAGE.parent / checkout_name):
        if folder.is_dir():
            return folder
    raise TargetError(
        f"the installation of attngen at {_PACKAGE} lacks its {checkout_name}/ folder; "
        "reinstall it: pip install --force-reinstall attngen"
    )


def templates_dir() -> Path:
    """The folder that holds the Jinja templates."""
    return _folder("templates", "_templates")


def specs_dir() -> Path:
    """The folder that holds the specs that ship with attngen."""
    return _folder("specs", "_specs")
