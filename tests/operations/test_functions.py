from __future__ import annotations

from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

from rtmem.errors import FunctionMissingError, ServerUnavailableError
from rtmem.operations import functions
from rtmem.operations.functions import call, library_of
from tests.scripted import play

NAME = "rtmem_v2_checkpoint_get"
CODES = {
    "rtmem_v2_checkpoint": "6fa22f834da7cc98",
    "rtmem_v2_pointers": "17b08dd3c7e3b842",
    "rtmem_v1_memories": "9e3fb6cca2db3c5f",
    "rtmem_v1_facts": "3d8c24dc7abd79f9",
    "rtmem_v1_cache": "53668bd29be65938",
    "rtmem_v1_nodes": "0ac551361c8cc247",
    "rtmem_v1_reindex": "01fca5bfc76776b0",
    "rtmem_v1_transfer": "0bbec63ad327a02d",
}
"""What the code of each library hashes to."""
MISSING = FunctionMissingError("Function not found")


def test_a_call_is_one_batch_and_answers_the_reply_of_the_function() -> None:
    reply, asked = play(call(NAME, ("k",), ("a", 1), beside=(("PING",),)), [[b"answer", b"PONG"]])
    assert reply == b"answer"
    assert asked[0].commands == (("FCALL", NAME, 1, "k", "a", 1), ("PING",))
    assert not asked[0].atomic


def test_a_missing_library_is_loaded_once_and_the_call_made_again() -> None:
    reply, asked = play(call(NAME, ("k",), ()), [MISSING, [b"OK"], [b"answer"]])
    assert reply == b"answer"
    assert asked[1].commands == (("FUNCTION", "LOAD", "REPLACE", library_of(NAME)),)
    assert asked[0] == asked[2]


def test_a_library_that_is_missing_after_it_was_loaded_is_an_error() -> None:
    with pytest.raises(FunctionMissingError):
        play(call(NAME, ("k",), ()), [MISSING, [b"OK"], MISSING])


@pytest.mark.parametrize("lost_at", [0, 1, 2])
def test_a_lost_connection_rises_at_every_step(lost_at: int) -> None:
    script: list[Any] = [MISSING, [b"OK"], [b"answer"]]
    with pytest.raises(ServerUnavailableError):
        play(call(NAME, ("k",), ()), [*script[:lost_at], ServerUnavailableError("lost")])


def test_commands_before_run_in_one_transaction_with_it_and_those_beside_afterwards() -> None:
    """A transaction must stay in one slot of a Cluster."""
    steps = call(NAME, ("k",), (), before=(("HSET", "k", 1, b"x"),), beside=(("ZADD", "other", 0, "t"),))
    reply, asked = play(steps, [[1, b"answer"], [1]])
    assert reply == b"answer"
    assert [batch.atomic for batch in asked] == [True, False]
    assert asked[0].commands[0][0] == "HSET"
    assert asked[1].commands == (("ZADD", "other", 0, "t"),)


def test_every_function_that_is_called_is_registered_in_its_library() -> None:
    source = library_of(NAME)
    for verb in ("put", "put_writes", "list_page", "delete_thread", "skeleton", "forget", "forget_early", "sweep",
                 "delta_history", "export", "reserve", "import", "inspect"):  # fmt: skip
        assert f"'rtmem_v2_checkpoint_{verb}'" in source


def test_every_lua_file_is_part_of_a_library() -> None:
    """A part that nobody lists would be missing at the server, and only when something calls it."""
    whole = "\n".join(library_of(name) for name in functions._LIBRARIES)
    for path in (Path(functions.__file__).parent / "lua").rglob("*.lua"):
        assert path.read_text("utf-8") in whole, path


@pytest.mark.parametrize("name", functions._LIBRARIES)
def test_a_library_keeps_its_code_as_long_as_it_keeps_its_name(name: str) -> None:
    code = blake2b(library_of(name).encode(), digest_size=8).hexdigest()
    assert CODES[name] == code, (
        f"{name} has other code now, and a server that has it under this name goes on with the old one: give it a new "
        "version, in its name and those of its functions. If no release has it yet, write the new hash into CODES"
    )
