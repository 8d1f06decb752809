"""`rtmem down`: stop the embedded Redis."""

from __future__ import annotations

from rich.text import Text

from rtmem.cli import options, screen


def down(config: options.Config = None, data_dir: options.DataDir = None) -> None:
    """Stop the embedded Redis; its data stays for the next start (not with profile ephemeral).

    Processes that still use it lose their connection. A gateway (rtmem up,
    rtmem serve) is stopped with Ctrl-C where it runs.
    """
    from rtmem.cli import supervision
    from rtmem.server import directory, embedded

    settings = options.load(config, data_dir=data_dir)
    if embedded.stop(settings.server):
        screen.out.print(f"Embedded Redis stopped; {supervision.what_is_kept(settings.server)}.")
    else:
        root = directory.locate(settings.server.data_dir).root
        there = "" if root.exists() else ", which does not exist"
        screen.out.print(Text(f"No embedded Redis was running in {root}{there}."))
