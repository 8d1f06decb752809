"""The `rtmem` command, and `python -m rtmem`. Works, if only to say what is missing, without any extra installed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    try:
        from rtmem.cli.main import main as run
    except ModuleNotFoundError as exc:
        sys.exit(f"error: the rtmem command needs {exc.name}, which is not installed: pip install 'rtmem[all]'")
    run()


if __name__ == "__main__":
    main()
