"""Event files as TensorBoard reads them, with its own writer of records: one a run, of all its attempts."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from analysis.export.run_facts import RunFacts
from analysis.export.series import Point
from experiment_utils import atomic_files
from experiment_utils.json_values import at_path, is_number, seconds

NAME = "events.out.tfevents.highwater"
"""One name for ever: what is written again replaces what was there."""

_FRAME = struct.Struct("<QI")
_CRC_BYTES = 4


def write_events(
    path: Path, facts: RunFacts, points: Iterable[Point], state: str | None, results: Mapping[str, Any]
) -> int:
    """The whole file at once, in the place of an older one; returns how many points it has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_files.atomic_file(path) as file:
        events = _Events(file)
        events.begin(facts)
        count = events.add(points)
        events.end(state, results)
    return count


class EventFile:
    """The file of one run that goes on, appended to, so that a TensorBoard that has it open goes on too.

    after: the last step that it has. What an earlier attempt wrote stays, also of steps taken again.
    """

    def __init__(self, facts: RunFacts, place: Path) -> None:
        self._path = place / NAME
        self.after, whole_bytes = _what_is_there(self._path)
        place.mkdir(parents=True, exist_ok=True)
        self._file = open(self._path, "ab")  # noqa: SIM115
        if self._file.tell() != whole_bytes:
            self._file.truncate(whole_bytes)
        self._events = _Events(self._file)
        if not whole_bytes:
            self._events.begin(facts)

    @property
    def destination(self) -> str:
        return str(self._path)

    def add(self, points: Iterable[Point]) -> int:
        """Returns how many points there were."""
        count = self._events.add(points)
        self._file.flush()
        return count

    def end(self, state: str | None, results: Mapping[str, Any]) -> None:
        """End this attempt. The result of a finished run is written once."""
        if state == "done":
            self._events.end(state, results)
        with suppress(OSError):
            os.fsync(self._file.fileno())
        self._file.close()


class _Events:
    def __init__(self, file: IO[bytes]) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._records = RecordWriter(file)
        self._last = (0, 0.0)

    def begin(self, facts: RunFacts) -> None:
        """The file's version, and the configuration for the page HPARAMS."""
        from tensorboard.plugins.hparams import summary_v2

        began_s = _began_s(facts.attempts)
        self._write(self._event(wall_time=began_s, file_version="brain.Event:2"))
        hparams_by_name = {path: _hparam(value) for path, value in {**facts.columns, **facts.config}.items()}
        hparams = summary_v2.hparams_pb(hparams_by_name, trial_id=facts.label, start_time_secs=began_s)
        self._write(self._event(wall_time=began_s, step=0, summary=hparams))
        self._last = (0, began_s)

    def add(self, points: Iterable[Point]) -> int:
        count = 0
        for point in points:
            values = [
                self._summary.Value(tag=name, simple_value=value) for name, value in point.values.items()
            ]
            summary = self._summary(value=values)
            self._write(self._event(wall_time=point.time_s, step=point.step, summary=summary))
            self._last = (point.step, point.time_s)
            count += 1
        return count

    def end(self, state: str | None, results: Mapping[str, Any]) -> None:
        """The status of its trial, and the numbers that came out of it."""
        if state in (None, "running"):
            return
        from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

        step, time_s = self._last
        numbers = {name: value for name, value in results.items() if is_number(value)}
        values = [
            self._summary.Value(tag=f"results/{name}", simple_value=value) for name, value in numbers.items()
        ]
        status = api_pb2.STATUS_SUCCESS if state == "done" else api_pb2.STATUS_FAILURE
        ended = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=time_s)
        said = metadata.create_summary_metadata(plugin_data_pb2.HParamsPluginData(session_end_info=ended))
        values.append(
            self._summary.Value(tag=metadata.SESSION_END_INFO_TAG, metadata=said, tensor=metadata.NULL_TENSOR)
        )
        self._write(self._event(wall_time=time_s, step=step, summary=self._summary(value=values)))

    def _write(self, event: Any) -> None:
        self._records.write(event.SerializeToString())


def _what_is_there(path: Path) -> tuple[int, int]:
    """(its last step, bytes of its whole records): a kill or a full disk may have torn the last one."""
    if not path.exists():
        return 0, 0
    from google.protobuf.message import DecodeError
    from tensorboard.compat.proto import event_pb2

    step = whole_bytes = 0
    with open(path, "rb") as file:
        for data, end in _records(file):
            try:
                event = event_pb2.Event.FromString(data)
            except DecodeError:  # damaged: what follows it is written again
                break
            step, whole_bytes = max(step, event.step), end
    return step, whole_bytes


def _records(file: IO[bytes]) -> Iterator[tuple[bytes, int]]:
    end, size = 0, os.fstat(file.fileno()).st_size
    while len(head := file.read(_FRAME.size)) == _FRAME.size:
        length, _ = _FRAME.unpack(head)
        if end + _FRAME.size + length + _CRC_BYTES > size:
            return
        end += _FRAME.size + length + _CRC_BYTES
        yield file.read(length + _CRC_BYTES)[:-_CRC_BYTES], end


def _began_s(attempts: Any) -> float:
    first = attempts[0] if isinstance(attempts, list) and attempts else None
    return seconds(at_path(first, "started_s")) or 0.0


def _hparam(value: Any) -> bool | float | str:
    if isinstance(value, bool | int | float | str):
        return value
    return "" if value is None else str(value)
