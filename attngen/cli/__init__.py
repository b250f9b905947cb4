"""The command line, ``attngen``.

Input: arguments. Output: text (or, with ``--json``, one JSON value) on stdout, messages on stderr,
and an exit code: 0 done, 1 what was asked for failed, 2 wrong usage, 130 interrupted. A mistake of
the user never shows a traceback; ``ATTNGEN_TRACEBACK=1`` shows one for every error.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that `arguments` (default: those of the process) name, and exit."""
    sys.exit(run(sys.argv[1:] if arguments is None else arguments))


def run(arguments: Sequence[str]) -> int:
    """Run a command and give its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell, as with >&-
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for good
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads our output has seen enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return code


def _dispatch(arguments: Sequence[str]) -> int:
    import typer

    from attngen.cli.app import command
    from attngen.errors import AttngenError, SpecError

    try:
        result = command().main(list(arguments), prog_name="attngen", standalone_mode=False)
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except typer.Abort:  # how older versions of Typer say that the user pressed Ctrl-C
        return 130
    except Exception as error:
        if os.environ.get("ATTNGEN_TRACEBACK", "0") not in ("", "0"):
            raise
        show = getattr(error, "show", None)
        if show is not None:  # wrong usage: the parser knows best how to say it
            show()
            return int(getattr(error, "exit_code", 2))
        if isinstance(error, AttngenError):
            prefix = "" if isinstance(error, SpecError) else "error: "  # its own lines have it
            sys.stderr.write(f"{prefix}{error}\n")
            return 1
        kind = f"{type(error).__name__}: " if not isinstance(error, OSError) else ""
        sys.stderr.write(f"error: {kind}{error}\n")
        sys.stderr.write("  hint: ATTNGEN_TRACEBACK=1 shows where this comes from\n")
        return 1
    return result if isinstance(result, int) else 0
