"""`rtmem chat`: talk to an agent behind a gateway, in a terminal or through a pipe."""

from __future__ import annotations

import asyncio
import io
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from rtmem.cli import options, screen
from rtmem.errors import InvalidRequestError, RunFailedError, UnauthorizedError

if TYPE_CHECKING:
    from rtmem.cli.conversation import Conversation, Heard
    from rtmem.cli.states import Question
    from rtmem.settings import Settings

_HELP = "Type a message and Enter. /quit or Ctrl-D ends, Ctrl-C stops waiting for an answer. The thread stays."
_MESSAGES_SHOWN = 6
_SHOWN_CHARS_MAX = 400


def chat(
    context: typer.Context,
    thread: Annotated[str, typer.Argument(help="Which conversation; the same name comes back to it.")] = "main",
    url: Annotated[
        str | None, typer.Option("--url", envvar="RTMEM_URL", help="The gateway; default: this machine's.")
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", envvar="RTMEM_TOKEN", help="Access token; default: this machine's.")
    ] = None,
    assistant: Annotated[
        str | None, typer.Option("--assistant", help="Which graph answers; needed if the gateway serves several.")
    ] = None,
    config: options.Config = None,
    data_dir: options.DataDir = None,
) -> None:
    """Talk to an agent behind a gateway; come back to a thread by its name.

    Answers stream. When the gateway goes away in the middle, chat waits for
    it and the answer goes on. When the agent asks for approval, chat asks you.
    Through a pipe each line is a message, or the decision that was asked for.

    Examples:
      [bold]rtmem chat[/bold]
      [bold]rtmem chat support-7 --assistant support[/bold]
      [bold]printf 'I live in Oslo\\nwhere do I live?\\n' | rtmem chat t1[/bold]
    """
    settings = options.load(config, data_dir=data_dir)
    _check_name(thread)
    _check_url(url)
    from rtmem.cli import local
    from rtmem.cli.conversation import Conversation

    token = local.known_token(settings) if token is None else token
    with asyncio.Runner() as runner:
        conversation = Conversation(url or local.known_address(settings), token, thread)
        try:
            runner.run(conversation.check())
            runner.run(conversation.choose(assistant))
            _Terminal(conversation, runner, _again(context)).talk()
        except UnauthorizedError as exc:
            raise exc if token else _without_token(conversation.url, settings) from exc
        finally:
            runner.run(conversation.aclose())


def _again(context: typer.Context) -> str:
    """The command that comes back to this thread, with the options that were typed; a token is not shown."""
    words = ["rtmem chat", shlex.quote(context.params["thread"])]
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        if name != "thread" and source is not None and source.name == "COMMANDLINE":
            words += [f"--{name.replace('_', '-')}", "..." if name == "token" else shlex.quote(str(value))]
    return " ".join(words)


def _without_token(url: str, settings: Settings) -> UnauthorizedError:
    from rtmem.server import directory

    layout = directory.locate(settings.server.data_dir)
    return UnauthorizedError(
        f"the gateway at {url} wants a token, and data directory {layout.root} has none, because no gateway of it was "
        f"ever started: start one with `{layout.command('up')}`, or give --data-dir or --token of the one that runs"
    )


def _check_name(thread: str) -> None:
    if not thread:
        raise InvalidRequestError("a thread needs a name, and '' is none: `rtmem chat NAME`, or no name for 'main'")
    # The shell passes on bytes that are no text as surrogates; a URL can tell neither them nor a step up or nowhere.
    if thread in (".", "..") or thread != thread.encode("utf-8", "replace").decode():
        raise InvalidRequestError(f"thread {thread!r} has no name that a URL can tell: choose one of UTF-8 characters")


def _check_url(url: str | None) -> None:
    if url is not None and not (url.startswith(("http://", "https://")) and url.partition("://")[2].strip("/")):
        raise InvalidRequestError(
            f"--url (RTMEM_URL) {url!r} is not the URL of a gateway: write http://host:port, as `rtmem up` prints it"
        )


class _Terminal:
    """Reads lines and prints what is heard. The loop runs only while there is something to hear."""

    def __init__(self, conversation: Conversation, runner: asyncio.Runner, again: str) -> None:
        self._conversation = conversation
        self._again = again
        self._runner = runner
        if isinstance(sys.stdin, io.TextIOWrapper):
            # In the C locale it would smuggle bytes that are no text into the message.
            sys.stdin.reconfigure(errors="strict")
        self._interactive = sys.stdin.isatty()
        if self._interactive:
            with suppress(ImportError):  # Windows has none
                import readline  # noqa: F401  (input() edits lines with it)
        self._stream = screen.Stream()
        self._failed = False

    def talk(self) -> None:
        questions = self._greet()
        while True:
            while questions:
                answer = self._ask(questions[0])
                if answer is None:
                    # A script that could not decide has not done its work.
                    raise typer.Exit(0 if self._interactive else 1)
                questions = self._hear(self._conversation.decide(questions[0], answer))
            line = self._read("you> ")
            if line is None or line in ("/quit", "/exit"):
                raise typer.Exit(1 if self._failed and not self._interactive else 0)
            if line == "/help":
                screen.note(_HELP)
            elif line:
                if not self._interactive:
                    screen.out.print(Text(f"you> {line}", style="dim"))
                questions = self._hear(self._conversation.say(line))

    def _greet(self) -> list[Question]:
        """Show where the thread stands; returns what its run still waits for."""
        from rtmem.cli.states import messages_of, questions_of, text_of

        state = self._runner.run(self._conversation.state(wait_ms=0))  # nothing is lost yet: say it at once
        if not self._interactive:
            return questions_of(state)
        screen.note(f"thread {self._conversation.thread_id!r} at {self._conversation.url}. {_HELP}")
        said = [
            message for message in messages_of(state) if message.get("type") in ("human", "ai") and text_of(message)
        ]
        for message in said[-_MESSAGES_SHOWN:]:
            text = text_of(message)
            who = "you> " if message["type"] == "human" else ""
            shown = text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]} ..."
            screen.out.print(Text(who + screen.harmless(shown), style="dim"))
        return questions_of(state)

    def _ask(self, question: Question) -> Any:
        """The user's decision; None when there is nobody left to decide."""
        from rtmem.cli.states import answer_to, is_clear, is_yes_or_no, wording_of

        prompt = "yes or no> " if is_yes_or_no(question) else "answer> "
        screen.out.print(Text.assemble(("? ", "bold yellow"), screen.harmless(wording_of(question))))
        while (words := self._read(prompt)) is not None:
            if not self._interactive:
                screen.out.print(Text(prompt + words, style="dim"))
            if is_clear(question, words):
                return answer_to(question, words)
            screen.note("Please answer yes or no; a reason may follow the no.")
        screen.note(f"No decision: the thread waits for it. Come back with `{self._again}` to decide.")
        return None

    def _read(self, prompt: str) -> str | None:
        try:
            return input(prompt if self._interactive else "").strip()
        except UnicodeDecodeError as exc:
            raise InvalidRequestError(
                f"a line of the input is not {exc.encoding}: send UTF-8, and set PYTHONUTF8=1 or LC_ALL=C.UTF-8"
            ) from exc
        except EOFError:
            if self._interactive:
                screen.out.print()
            return None
        except KeyboardInterrupt:
            if self._interactive:
                screen.out.print()  # the shell's prompt begins a line
            raise

    def _hear(self, turn: AsyncIterator[Heard]) -> list[Question]:
        try:
            return self._runner.run(self._print(turn))
        except RunFailedError as exc:
            # One answer less is no reason to end a conversation; a script is told by the exit code.
            screen.error(exc)
            self._failed = True
            return []
        except KeyboardInterrupt:
            self._stream.end_line()
            if not self._interactive:
                raise
            screen.note("stopped waiting; the run goes on at the gateway, and the thread keeps its answer")
            return []

    async def _print(self, turn: AsyncIterator[Heard]) -> list[Question]:
        from rtmem.cli.conversation import Notice, ToolUse, Words
        from rtmem.cli.states import Question

        questions = []
        try:
            async for heard in turn:
                if isinstance(heard, Words):
                    self._stream.write(heard.text)
                    continue
                self._stream.end_line()
                if isinstance(heard, ToolUse):
                    arguments = ", ".join(f"{name}={value!r}" for name, value in heard.arguments.items())
                    screen.out.print(Text(f"  {heard.name}({arguments})", style="dim"))
                elif isinstance(heard, Notice):
                    screen.note(f"({heard.text})")
                elif isinstance(heard, Question):
                    questions.append(heard)
        finally:
            self._stream.end_line()
        return questions
