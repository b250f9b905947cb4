"""Which file a spec's name or path means.

Search path: the working folder's ``specs/``, then the specs that ship. Input: a name, a path, or
the value of ``extends``. Output: a path, or the diagnostic of why there is none.
"""

from __future__ import annotations

import os
from pathlib import Path

from attngen.errors import Diagnostic
from attngen.resources import specs_dir
from attngen.source import Span
from attngen.spec.nodes import shorten
from attngen.spec.suggest import nearest

_SUFFIXES = (".yaml", ".yml")


def search_path() -> tuple[Path, ...]:
    """The folders that hold named specs, nearest first."""
    return (Path("specs"), specs_dir())


def spec_names() -> tuple[str, ...]:
    """Every name on the search path, sorted."""
    return tuple(sorted({name for folder in search_path() for name in _names_in(folder)}))


def find_spec(name: str) -> Path | None:
    """The file of the spec called `name` on the search path."""
    return _find(name, search_path())


def is_path(text: str) -> bool:
    """Whether `text` means a file and not a name."""
    separators = {os.sep, os.altsep or os.sep, "/"}
    return text.endswith(_SUFFIXES) or any(s in text for s in separators) or os.path.isfile(text)


def locate(text: str) -> Path | Diagnostic:
    """The file that a caller means by `text`, a name or a path."""
    if is_path(text):
        return Path(text)
    return find_spec(text) or _not_found(f"there is no spec called {shorten(text)}", text)


def locate_parent(text: str, child: Path | None, span: Span | None) -> Path | Diagnostic:
    """The file that ``extends: text`` means in the file `child` (None: in a Python mapping).

    A path is relative to the child's folder. A name is looked up beside the child, then on the
    search path; a file never extends itself, so it may extend the one it shadows.
    """
    folder = child.parent if child else Path()
    if text.endswith(_SUFFIXES) or "/" in text or os.sep in text:
        path = Path(os.path.normpath(folder / text))
        if os.path.isfile(path):
            return path
        message = f"'extends' names {shorten(text)}, and there is no file {shorten(str(path), 200)}"
        hint = _sibling_hint(path)
        return Diagnostic("E-EXTENDS", message, span, "extends", hint=hint)
    if found := _find(text, (folder, *search_path()), child):
        return found
    message = f"'extends' names {shorten(text)}, and there is no such spec"
    return _not_found(message, text, "E-EXTENDS", span, "extends")


def _find(name: str, folders: tuple[Path, ...], other_than: Path | None = None) -> Path | None:
    if not name or name in (".", "..") or "\0" in name:
        return None
    for folder in folders:
        for suffix in _SUFFIXES:
            path = folder / f"{name}{suffix}"
            if os.path.isfile(path) and not (other_than and _same(path, other_than)):
                return path
    return None


def _same(path: Path, other: Path) -> bool:
    return os.path.realpath(path) == os.path.realpath(other)


def _names_in(folder: Path) -> list[str]:
    try:
        return [p.stem for p in folder.iterdir() if p.suffix in _SUFFIXES]
    except OSError:
        return []


def _sibling_hint(path: Path) -> str:
    near = nearest(path.stem, _names_in(path.parent))
    return f"did you mean {near}{path.suffix}?" if near else "paths are relative to this file"


def _not_found(
    message: str, text: str, code: str = "E-NOT-FOUND", span: Span | None = None, key: str = ""
) -> Diagnostic:
    near = nearest(text, spec_names())
    note = f"looked in specs/ of the working folder and in {specs_dir()}"
    if "\n" in text or ": " in text:
        hint = "to compile the text of a spec, pass yaml.safe_load(text)"
    elif os.path.isdir(text):
        hint = f"{shorten(text)} is a folder; name a file in it"
    elif near:
        hint = f"did you mean {near}?"
    else:
        hint = "give a path that ends in .yaml, or one of the names in specs/"
    return Diagnostic(code, message, span, key, note, hint)
