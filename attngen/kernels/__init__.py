"""Every named spec as a callable: ``from attngen.kernels import mha_4096``.

Input: a name on the search path (the working folder's ``specs/``, then the specs that ship).
Output: the compiled attention; its machine code is made, or taken from the cache, by its first
call. Invariant: a name gives the same object for the whole process; to see later changes of a spec,
use `attngen.compile`.
"""

from __future__ import annotations

import sys as _sys
from typing import TYPE_CHECKING

from attngen.spec import search as _search
from attngen.spec import suggest as _suggest

if TYPE_CHECKING:
    from attngen.attention import Attention


def __getattr__(name: str) -> Attention:
    path = None if name.startswith("_") else _search.find_spec(name)
    if path is None:
        message = f"there is no spec called {name!r}{_hint(name)}"
        # `from attngen.kernels import name` replaces the text of an AttributeError by its own.
        if not name.startswith("_") and _asked_by_import():
            raise ImportError(message, name=f"{__name__}.{name}")
        raise AttributeError(message, name=name, obj=_sys.modules[__name__])
    from attngen.driver import compile_spec

    kernel: Attention = globals().setdefault(name, compile_spec(path))
    return kernel


def __dir__() -> list[str]:
    return list(_search.spec_names())


def _asked_by_import() -> bool:
    caller = _sys._getframe(2).f_globals.get("__name__")
    return caller == "importlib._bootstrap"


def _hint(name: str) -> str:
    names = _search.spec_names()
    near = _suggest.nearest(name, names)
    if near:
        return f"; did you mean {near!r}?"
    return f"; on the search path are: {', '.join(names)}" if names else "; there is no spec at all"
