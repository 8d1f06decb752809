"""The `rtmem` command, and `python -m rtmem`. Works, if only to say what is missing, without any extra installed."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    _open_closed_streams()
    try:
        from rtmem.cli.main import main as run
    except ModuleNotFoundError as exc:
        sys.exit(f"error: the rtmem command needs {exc.name}, which is not installed: pip install 'rtmem[all]'")
    run()


def _open_closed_streams() -> None:
    """A daemon may be started with `<&- >&-`: give it streams, and its files other numbers than 0, 1 and 2."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for as long as the process lives


if __name__ == "__main__":
    main()
