"""Every error a user can meet, as data first and text last.

A mistake in a file is a :class:`Diagnostic`; one error carries all that were found. Each class also
derives from the builtin that a caller would expect (`ValueError`, `TypeError`, `RuntimeError`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from attngen.source import Span, caret_block


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake: what is wrong (a fact), where, and what to do (an action).

    Attributes:
        code: stable identifier, such as ``E-HEADS``.
        message: the fact, naming what was expected and what came.
        span: where it stands, if it stands in a text.
        key: dotted key path in the spec, such as ``window.left``; empty for the whole file.
        note: a further fact that helps to understand.
        hint: what to write instead.
    """

    code: str
    message: str
    span: Span | None = None
    key: str = ""
    note: str = ""
    hint: str = ""

    def render(self) -> str:
        """The diagnostic as a compiler would print it."""
        where = f"{self.span}: " if self.span else ""
        lines = [f"{where}error: {self.message}"]
        if self.span:
            lines.append(caret_block(self.span))
        if self.note:
            lines.append(f"  note: {self.note}")
        tail = f"[{self.code}]"
        lines.append(f"  hint: {self.hint}  {tail}" if self.hint else f"  {tail}")
        return "\n".join(lines)


class AttngenError(Exception):
    """Base of every error raised on purpose."""


class SpecError(AttngenError, ValueError):
    """A spec (or a schedule in it) has mistakes; all of them are in `diagnostics`."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(d.render() for d in self.diagnostics))


class CallTypeError(AttngenError, TypeError):
    """An argument of a call has the wrong kind or dtype."""


class CallValueError(AttngenError, ValueError):
    """An argument of a call has the wrong shape or value."""


class TargetError(AttngenError, RuntimeError):
    """The machine cannot do what was asked, and what would help."""


class CacheError(AttngenError, OSError):
    """The cache folder is unusable and the request cannot be met without it."""


class SweepError(AttngenError, OSError):
    """A sweep cannot keep its results, or not reach those who measure; what is there is safe."""


class InternalError(AttngenError, AssertionError):
    """A stage produced something its verifier rejects: a fault of the compiler, to be reported."""
