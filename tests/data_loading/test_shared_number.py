"""A number seen by copies in other processes."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from pathlib import Path

import pytest

from data_loading.shared_number import SharedNumber


def tell(number: SharedNumber, pipe: Connection) -> None:
    while pipe.recv():
        pipe.send(number.value)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_copies_see_it_change(method: str) -> None:
    context: BaseContext = multiprocessing.get_context(method)
    number = SharedNumber(3)
    ours, theirs = context.Pipe()
    process = context.Process(target=tell, args=(number, theirs))
    process.start()
    for value in (3, 0, 2**62):
        number.value = value
        ours.send(True)
        assert ours.recv() == value
    ours.send(False)
    process.join()


def test_a_copy_whose_original_is_gone_keeps_the_value(tmp_path: Path) -> None:
    program = (
        "import pickle, sys; from data_loading.shared_number import SharedNumber; "
        "number = SharedNumber(41); open(sys.argv[1], 'wb').write(pickle.dumps(number))"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "number")], check=True)
    found: SharedNumber = pickle.loads((tmp_path / "number").read_bytes())
    assert found.value == 41
    found.value = 42
    assert pickle.loads(pickle.dumps(found)).value == 42


def test_another_file_of_that_descriptor_is_not_taken(tmp_path: Path) -> None:
    number = SharedNumber(5)
    state = pickle.dumps(number)
    with open(number._path, "r+b") as file:
        file.seek(8)
        file.write(b"another".ljust(16))
    number.value = 6
    assert pickle.loads(state).value == 5
