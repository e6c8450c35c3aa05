"""A decorated async generator is the generator itself, for whoever talks with it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

import pytest

from memory import record_to, stage


def test_what_is_sent_into_a_decorated_async_generator_arrives(tmp_path: Path) -> None:
    told: list[object] = []

    async def talk(first: int) -> AsyncGenerator[int, str]:
        try:
            told.append((yield first))
            try:
                yield 2
            except KeyError as error:
                told.append(error.args[0])
                yield 3
            yield 4
        finally:
            await asyncio.sleep(0)
            told.append("closed")

    async def spoken(how: Callable[[int], AsyncGenerator[int, str]]) -> list[int]:
        stream = how(1)
        found = [await anext(stream), await stream.asend("hello"), await stream.athrow(KeyError("key"))]
        await stream.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        return found

    async def broken(how: Callable[[int], AsyncGenerator[int, str]]) -> None:
        stream = how(1)
        await anext(stream)
        with pytest.raises(ValueError, match="uncaught"):
            await stream.athrow(ValueError("uncaught"))

    for how in (talk, stage("talk")(talk)):
        told.clear()
        with record_to(tmp_path / "memory.jsonl", attempt=1):
            assert asyncio.run(spoken(how)) == [1, 2, 3]
            asyncio.run(broken(how))
        assert told == ["hello", "key", "closed", "closed"]
    lines = (tmp_path / "memory.jsonl").read_text().splitlines()
    ends = [record for record in map(json.loads, lines) if record["event"] == "end"]
    assert [record.get("error") for record in ends] == ["GeneratorExit: ", f"{ValueError.__name__}: uncaught"]
