"""`rtmem up`: an embedded Redis, a gateway and the demo agent, in one line."""

from __future__ import annotations

import threading
from typing import Annotated

import typer

from rtmem.cli import options, screen


def up(
    config: options.Config = None,
    data_dir: options.DataDir = None,
    profile: options.ProfileName = None,
    redis_url: options.RedisUrl = None,
    host: options.Host = None,
    port: options.Port = None,
    redis_only: Annotated[
        bool, typer.Option("--redis-only", help="Only the embedded Redis, for savers in programs of your own.")
    ] = False,
) -> None:
    """Start everything: an embedded Redis, the gateway, and a demo agent to talk to.

    Runs in the foreground; Ctrl-C lets answers in progress finish.
    What was said stays in the data directory.

    The demo agent follows rules and needs no key. RTMEM_MODEL puts a real
    model behind the same graph: any provider of LangChain, and with
    RTMEM_AGENT__MODEL_BASE_URL any OpenAI-compatible server.

    Examples:
      [bold]rtmem up[/bold]
      [bold]rtmem up --port 8200 --profile durable[/bold]
      [bold]rtmem up --redis-url redis://localhost:6379/0[/bold]
      [bold]RTMEM_MODEL=openai:gpt-5-mini rtmem up[/bold]
    """
    settings = options.load(config, data_dir=data_dir, profile=profile, redis_url=redis_url, host=host, port=port)
    from rtmem.cli import serving

    if redis_only:
        with serving.Signals(), serving.redis_of(settings) as running:
            screen.rows([("URL       ", running.redis.url)])
            screen.out.print("Ctrl-C stops it, unless another process uses it.")
            threading.Event().wait()
        return

    from rtmem.agent import demo
    from rtmem.agent.models import load_model

    agent = settings.agent
    model = (
        load_model(agent.model, agent.model_base_url)
        if agent.model
        else demo.RulesModel(token_interval_ms=agent.token_interval_ms)
    )

    async def build() -> serving.Graph:
        return demo.graph(model=model, across_threads=agent.memory == "principal")

    serving.serve({"demo": build}, settings)
