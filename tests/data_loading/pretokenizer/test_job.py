"""The job: exact ids for every way of working, whole files or none, old sets left alone."""

from __future__ import annotations

import dataclasses
import errno
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_loading.pretokenizer.blocks import RUN_LIMIT_BYTES
from data_loading.pretokenizer.job import Result, pretokenize
from data_loading.pretokenizer.options import Options
from data_loading.text_io.content_hash import file_content_hash
from data_loading.text_io.text_file import TextFile
from data_loading.tokenizers.read_files import read_tokenizer
from data_loading.tokenizers.tokenizer import BytesTokenizer, Tokenizer
from data_loading.tokens.disk_errors import another_disk
from data_loading.tokens.set_files import SetFiles
from experiment_utils import lock_file
from memory import record_to
from tests.data_loading.conftest import FRAGMENTS, training_text
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[3]
Folder = Callable[[str], Path]
HOSTILE = ("".join(FRAGMENTS) + " " + "".join(training_text()[:200]) + "\r\n") * 8


def write(path: Path, text: str = HOSTILE) -> Path:
    path.write_bytes(text.encode())
    return path


def make(text: Path, tokenizer: Tokenizer, output: Path | None = None, **options: Any) -> Result:
    output = output or text.with_suffix(".npy")
    source = {k: options.pop(k) for k in ("encoding", "errors", "document_separator") if k in options}
    lines: list[str] = options.pop("lines", [])
    return pretokenize(TextFile(text, **source), tokenizer, output, Options(**options), lines.append)


def files_of(output: Path) -> dict[str, bytes]:
    files = SetFiles(output)
    whole = [files.tokens, files.documents, files.manifest, *sorted(files.tokenizer.iterdir())]
    return {str(path.relative_to(output.parent)): path.read_bytes() for path in whole}


@pytest.mark.parametrize("family", ["gpt2", "qwen2", "llama2", "wordpiece", "rstrip", "bytes"])
def test_ids_are_those_of_the_whole_document_for_every_block_size_and_worker_count(
    family: str, tmp_path: Path, tokenizer_folder: Folder
) -> None:
    tokenizer = BytesTokenizer() if family == "bytes" else read_tokenizer(tokenizer_folder(family), family)
    content = HOSTILE[: len(HOSTILE) // 4]
    text = write(tmp_path / "a.txt", content)
    expected = tokenizer.encode(content).tolist() + ([] if tokenizer.eot_id is None else [tokenizer.eot_id])
    variants = [{"block_bytes": size} for size in (1, 5, 64, 1000)] + [{}, {"workers": 2, "block_bytes": 500}]
    written = set()
    for number, options in enumerate(variants):
        output = tmp_path / str(number) / "a.npy"
        made = make(text, tokenizer, output, **options)
        assert np.load(output).tolist() == expected, options
        assert made.manifest["tokens"] == len(expected)
        written.add(tuple(files_of(output).items()))
    assert len(written) == 1, "every way of working writes the same bytes"


@pytest.mark.slow
def test_tinyshakespeare_is_338025_ids_and_those_of_the_reference(tmp_path: Path, shared_data: Path) -> None:
    tokenizer = read_tokenizer(shared_data / "gpt2", "gpt2")
    text = shared_data / "tinyshakespeare.txt"
    result = make(text, tokenizer, tmp_path / "t.npy")
    ids = np.load(tmp_path / "t.npy")
    whole = tokenizer.encode(text.read_bytes().decode())
    assert result.text_tokens == 338_025 == len(whole)
    assert result.manifest["engine"]["name"] == "fastokens"
    assert np.array_equal(ids[:-1], whole)
    assert ids[-1] == 50256


@pytest.mark.slow
def test_wikitext_in_every_engine_and_two_workers(tmp_path: Path, shared_data: Path) -> None:
    tokenizer = read_tokenizer(shared_data / "gpt2", "gpt2")
    text = shared_data / "wikitext2_valid.txt"
    whole = tokenizer.encode(text.read_bytes().decode())
    for engine in ("fastokens", "huggingface"):
        make(text, tokenizer, tmp_path / f"{engine}.npy", engine=engine, workers=2, block_bytes=10_000)
        assert np.array_equal(np.load(tmp_path / f"{engine}.npy")[:-1], whole)


class TestDocuments:
    def test_each_gets_an_end_of_text_and_a_start(self, tmp_path: Path, tokenizer_folder: Folder) -> None:
        tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
        documents = ["the word\n", "é\n", "a the 文字\n" * 50, "last"]
        text = write(
            tmp_path / "a.txt",
            "---\n" + "---\n".join(documents[:2]) + "---\n---\n" + "---\n".join(documents[2:]),
        )
        for size in (1, 40, 10_000):
            result = make(text, tokenizer, document_separator="---", block_bytes=size, overwrite=True)
            ids, starts = np.load(tmp_path / "a.npy"), np.load(tmp_path / "a.docs.npy")
            assert starts.dtype == np.uint64
            ends = [*starts[1:].tolist(), len(ids)]
            for document, start, end in zip(documents, starts.tolist(), ends, strict=True):
                assert ids[start:end].tolist() == [*tokenizer.encode(document).tolist(), tokenizer.eot_id]
            assert result.manifest["documents"] == 4
            assert result.text_tokens == len(ids) - 4

    def test_without_an_end_of_text_token_nothing_is_appended_and_the_manifest_says_so(
        self, tmp_path: Path, tokenizer_folder: Folder
    ) -> None:
        tokenizer = dataclasses.replace(read_tokenizer(tokenizer_folder("gpt2"), "x"), eot_id=None)  # type: ignore[type-var]
        result = make(write(tmp_path / "a.txt", "a\n-\nb\n"), tokenizer, document_separator="-")
        assert np.load(tmp_path / "a.npy").tolist() == tokenizer.encode("a\nb\n").tolist()
        assert np.load(tmp_path / "a.docs.npy").tolist() == [0, 2]
        assert result.manifest["tokenizer"]["eot_appended"] is False
        assert result.text_tokens == 4

    def test_separators_alone_are_no_text(self, tmp_path: Path, golden: Golden) -> None:
        with golden.refused("no-text"):
            make(write(tmp_path / "a.txt", "-\n-\n-"), BytesTokenizer(), document_separator="-")
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


class TestManifest:
    def test_says_what_the_set_is_made_of(self, tmp_path: Path, tokenizer_folder: Folder) -> None:
        tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
        text = write(tmp_path / "a.txt")
        result = make(text, tokenizer)
        manifest = json.loads((tmp_path / "a.npy.json").read_text())
        assert manifest == result.manifest
        assert manifest["format"] == "highwater token set"
        assert manifest["dtype"] == "<u2"
        assert manifest["sources"] == [
            {
                "path": "a.txt",
                "bytes": text.stat().st_size,
                "mtime_ns": text.stat().st_mtime_ns,
                "content_hash": file_content_hash(text),
                "documents": 1,
                "tokens": manifest["tokens"],
            }
        ]
        assert manifest["tokenizer"] == {
            "name": "gpt2",
            "content_hash": tokenizer.content_hash,
            "vocab_size": tokenizer.vocab_size,
            "eot_id": tokenizer.eot_id,
            "eot_appended": True,
        }
        assert manifest["options"] == {
            "encoding": "utf-8",
            "errors": "strict",
            "document_separator": None,
            "special_tokens": "text",
        }
        assert read_tokenizer(tmp_path / "a.tokenizer", "gpt2").content_hash == tokenizer.content_hash

    def test_checksums_are_of_the_token_data_in_pieces(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import hashlib

        from data_loading.pretokenizer import manifest as manifest_module
        from data_loading.pretokenizer import writer

        for module in (writer, manifest_module):
            monkeypatch.setattr(module, "CHECKSUM_BYTES", 1000)
        manifest = make(write(tmp_path / "a.txt"), BytesTokenizer(), block_bytes=333).manifest
        data = np.load(tmp_path / "a.npy").tobytes()
        expected = [hashlib.sha256(data[i : i + 1000]).hexdigest() for i in range(0, len(data), 1000)]
        assert manifest["checksums"] == {
            "algorithm": "sha256",
            "bytes": 1000,
            "blocks": expected,
            "documents": file_content_hash(tmp_path / "a.docs.npy"),
        }

    def test_fingerprint_is_of_content_tokenizer_and_options_alone(
        self, tmp_path: Path, tokenizer_folder: Folder
    ) -> None:
        gpt2, digits = (read_tokenizer(tokenizer_folder(name), name) for name in ("gpt2", "digits"))
        text, copy = write(tmp_path / "a.txt"), write(tmp_path / "copy.txt")
        other = write(tmp_path / "other.txt", HOSTILE + " ")

        def fingerprint(text: Path, tokenizer: Tokenizer, **options: Any) -> str:
            return make(text, tokenizer, tmp_path / "x.npy", overwrite=True, **options).manifest[
                "fingerprint"
            ]

        first = fingerprint(text, gpt2)
        assert (
            first == fingerprint(copy, gpt2) == fingerprint(text, gpt2, engine="huggingface", block_bytes=99)
        )
        others = [
            fingerprint(other, gpt2),
            fingerprint(text, digits),
            fingerprint(text, gpt2, document_separator="-"),
            fingerprint(text, gpt2, errors="replace"),
            fingerprint(text, gpt2, encoding="latin-1"),
        ]
        assert len({first, *others}) == 6

    def test_ids_beyond_uint16_are_written_as_uint32(self, tmp_path: Path) -> None:
        class Wide(BytesTokenizer):
            vocab_size = 65_537

        assert make(write(tmp_path / "a.txt"), Wide()).manifest["dtype"] == "<u4"
        assert np.load(tmp_path / "a.npy").dtype == np.uint32

    def test_an_id_outside_the_vocabulary_cannot_be_written(self, tmp_path: Path) -> None:
        class Narrow(BytesTokenizer):
            vocab_size = 100

        with pytest.raises(RuntimeError, match=r"2\d\d.*100"):
            make(write(tmp_path / "a.txt"), Narrow())


class TestExistingOutput:
    def test_a_set_that_is_up_to_date_is_left_alone(self, tmp_path: Path) -> None:
        text = write(tmp_path / "a.txt")
        assert make(text, BytesTokenizer()).made
        before = (tmp_path / "a.npy").stat().st_ino
        os.utime(text, (1, 1))
        again = make(text, BytesTokenizer())
        assert not again.made
        assert (tmp_path / "a.npy").stat().st_ino == before

    @pytest.mark.parametrize(
        "change",
        [
            "text",
            "same size",
            "tokenizer",
            "separator",
            "manifest",
            "a.npy",
            "a.docs.npy",
            "short",
            "empty starts",
            "a.tokenizer",
        ],
    )
    def test_another_content_is_refused_unless_overwritten(
        self, change: str, tmp_path: Path, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        text, tokenizer, options = write(tmp_path / "a.txt"), BytesTokenizer(), {}
        make(text, tokenizer)
        if change == "text":
            write(text, HOSTILE + "more")
        elif change == "same size":
            write(text, HOSTILE[:-1] + "!")
            os.utime(text, (1, 1))
        elif change == "tokenizer":
            tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
        elif change == "separator":
            options = {"document_separator": "-"}
        elif change == "short":
            os.truncate(tmp_path / "a.npy", 500)
        elif change == "empty starts":
            (tmp_path / "a.docs.npy").write_bytes(b"")
        elif change == "a.tokenizer":
            shutil.rmtree(tmp_path / change)
        else:
            (tmp_path / ("a.npy.json" if change == "manifest" else change)).unlink()
        before = files_of(tmp_path / "a.npy") if change in ("text", "same size", "separator") else None
        with golden.refused("output-without-manifest" if change == "manifest" else "output-differs"):
            make(text, tokenizer, **options)
        if before:
            assert files_of(tmp_path / "a.npy") == before
        assert make(text, tokenizer, overwrite=True, **options).made

    def test_a_broken_manifest_is_told(self, tmp_path: Path, golden: Golden) -> None:
        text = write(tmp_path / "a.txt")
        make(text, BytesTokenizer())
        manifest = tmp_path / "a.npy.json"
        for content in ("{", "{}"):
            manifest.write_text(content)
            with golden.refused("manifest-damaged"):
                make(text, BytesTokenizer())
        manifest.write_text('{"format": "highwater token set", "version": 99}')
        with golden.refused("version-too-new"):
            make(text, BytesTokenizer())


class TestBadText:
    @pytest.mark.parametrize("workers", [0, 2])
    @pytest.mark.parametrize("family", ["bytes", "gpt2"])
    def test_the_byte_that_is_not_utf8_is_named(
        self, workers: int, family: str, tmp_path: Path, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        tokenizer = (
            BytesTokenizer() if family == "bytes" else read_tokenizer(tokenizer_folder(family), family)
        )
        good = ("word " * 1000).encode()
        (tmp_path / "a.txt").write_bytes(good + b"\xff" + good + b"\xfe")
        with golden.refused("undecodable"):
            make(tmp_path / "a.txt", tokenizer, workers=workers, block_bytes=700)
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]

    @pytest.mark.parametrize("block_bytes", [1, 3, 1000])
    def test_replace_and_ignore_do_as_python_does(self, block_bytes: int, tmp_path: Path) -> None:
        data = b"a\xff b\xe4\xb8 \xe4\xb8\xadc\xf0\x9f\x98"
        (tmp_path / "a.txt").write_bytes(data)
        for errors in ("replace", "ignore"):
            make(tmp_path / "a.txt", BytesTokenizer(), errors=errors, block_bytes=block_bytes, overwrite=True)
            expected = data.decode("utf-8", errors).encode()
            assert np.load(tmp_path / "a.npy").tolist() == [*expected, 256]

    def test_another_encoding_gives_the_ids_of_the_decoded_text(self, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_bytes("naïve\r\n".encode("cp1252"))
        make(tmp_path / "a.txt", BytesTokenizer(), encoding="cp1252")
        assert np.load(tmp_path / "a.npy").tolist() == [*"naïve\r\n".encode(), 256]

    def test_a_run_without_a_safe_cut_is_an_error_that_names_the_byte(
        self, tmp_path: Path, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        text = write(tmp_path / "a.txt", "a b " * 100 + "x" * 30_000 + " c")
        tokenizer = read_tokenizer(tokenizer_folder("gpt2"), "gpt2")
        with golden.refused("run-too-long"):
            make(text, tokenizer, block_bytes=5000, run_limit_bytes=20_000)
        write(text, "a b " * 100 + "x" * 19_000 + " c")
        make(text, tokenizer, block_bytes=5000, run_limit_bytes=20_000)
        assert np.load(tmp_path / "a.npy")[:-1].tolist() == tokenizer.encode(text.read_text()).tolist()

    def test_a_long_document_of_a_tokenizer_without_safe_cuts_as_well(
        self, tmp_path: Path, tokenizer_folder: Folder, golden: Golden
    ) -> None:
        text = write(tmp_path / "a.txt", "short\n-\n" + "a b\n" * 8000)
        tokenizer = read_tokenizer(tokenizer_folder("rstrip"), "rstrip")
        with golden.refused("document-too-long"):
            make(text, tokenizer, document_separator="-", block_bytes=5000, run_limit_bytes=20_000)

    def test_the_limit_is_16_mb(self) -> None:
        assert Options().run_limit_bytes == RUN_LIMIT_BYTES == 16 * 2**20


class TestProgress:
    def run(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: io.StringIO | None) -> list[str]:
        from data_loading.pretokenizer import progress as meter

        monkeypatch.setattr(meter, "_TERMINAL_EVERY_S", 0.0)
        monkeypatch.setattr(meter, "_LOG_FIRST_S", 0.0)
        monkeypatch.setattr(meter, "_LOG_EVERY_S", 0.0)
        lines: list[str] = []
        make(write(tmp_path / "a.txt"), BytesTokenizer(), block_bytes=1000, terminal=terminal, lines=lines)
        return lines

    def test_one_moving_line_on_a_terminal(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        terminal = io.StringIO()
        lines = self.run(tmp_path, monkeypatch, terminal)
        shown = terminal.getvalue()
        assert "\n" not in shown
        assert shown.endswith("\r\x1b[K"), "the line is taken away at the end"
        assert "MB/s" in shown
        assert len(lines) == 2, "only the lines at the start"

    def test_plain_lines_in_a_log(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        lines = self.run(tmp_path, monkeypatch, None)
        assert len(lines) > 3
        assert all("\r" not in line for line in lines)
        assert "MB/s" in lines[2]
        assert re.search(r"[\d.]+ [MG]B", lines[2])

    def test_the_peak_of_all_processes_is_told_and_recorded(self, tmp_path: Path) -> None:
        with record_to(tmp_path / "memory.jsonl", attempt=1):
            made = make(write(tmp_path / "a.txt"), BytesTokenizer(), block_bytes=10_000, workers=2)
        assert made.peak_bytes is not None
        assert made.peak_bytes > 20 << 20
        records = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text().splitlines()]
        (facts,) = [r["facts"] for r in records if (r["stage"], r["event"]) == ("tokenize", "end")]
        assert facts["workers"] == 2
        assert facts["tokens"] == made.manifest["tokens"]
        assert 0 < facts["peak_anon_bytes"] <= made.peak_bytes
        assert make(tmp_path / "a.txt", BytesTokenizer()).peak_bytes is None, "nothing was made"


class TestLock:
    def test_a_second_process_on_one_output_is_told_which(self, tmp_path: Path) -> None:
        text = write(tmp_path / "a.txt")
        with (
            lock_file.lock(SetFiles(tmp_path / "a.npy").lock, "it"),
            pytest.raises(lock_file.LockHeld, match=f"{os.getpid()}"),
        ):
            make(text, BytesTokenizer())

    def test_a_dead_writer_does_not_block(self, tmp_path: Path) -> None:
        text = write(tmp_path / "a.txt")
        lock = SetFiles(tmp_path / "a.npy").lock
        code = (
            "import os\nfrom experiment_utils import lock_file\n"
            f"with lock_file.lock({str(lock)!r}, 'it'): os.kill(os.getpid(), 9)"
        )
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=240)
        assert lock.exists()
        assert make(text, BytesTokenizer()).made
        assert not lock.exists()


class TestDisk:
    def test_a_full_disk_leaves_nothing_and_spares_the_old_set(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        """A process's size limit stands for the disk; tests/test_pretokenize_dataset.py fills a real one."""
        text = write(tmp_path / "a.txt")
        make(text, BytesTokenizer())
        before = files_of(tmp_path / "a.npy")
        write(text, HOSTILE * 20)
        code = (
            "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
            "from pathlib import Path; from experiment_utils.errors import UserError\n"
            "from data_loading.pretokenizer.job import *\n"
            "from data_loading.text_io.text_file import TextFile\n"
            "from data_loading.tokenizers.tokenizer import BytesTokenizer\n"
            f"text = Path({str(text)!r})\n"
            "try: pretokenize(TextFile(text), BytesTokenizer(), text.with_suffix('.npy'), "
            "Options(overwrite=True))\nexcept UserError as error: print(error)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240
        )
        golden.text(done.stdout, numbers=False)
        assert files_of(tmp_path / "a.npy") == before
        assert sorted(path.name for path in tmp_path.iterdir()) == [
            "a.docs.npy", "a.npy", "a.npy.checked.json", "a.npy.json", "a.tokenizer", "a.txt",
        ], "nothing was done, so nothing is kept"  # fmt: skip

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
    @pytest.mark.parametrize("when", ["append", "__init__"])
    def test_no_space_while_writing(
        self, number: int, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        from data_loading.pretokenizer.writer import SetWriter

        def full(*arguments: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(SetWriter, when, full)
        with golden.refused("disk-full"):
            make(write(tmp_path / "a.txt"), BytesTokenizer())
        assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]

    def test_no_space_after_some_blocks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        from data_loading.pretokenizer.writer import SetWriter

        append, room = SetWriter.append, 3

        def nearly_full(writer: SetWriter, block: object) -> int:
            nonlocal room
            room -= 1
            if room < 0:
                raise OSError(errno.ENOSPC, "")
            return append(writer, block)  # type: ignore[arg-type]

        text = write(tmp_path / "a.txt", "water " * 1000)
        with monkeypatch.context() as patched:
            patched.setattr(SetWriter, "append", nearly_full)
            with golden.refused("disk-full"):
                make(text, BytesTokenizer(), block_bytes=100)
        said: list[str] = []
        make(text, BytesTokenizer(), lines=said, block_bytes=100)
        golden.text("\n".join(said), numbers=False)

    @pytest.mark.parametrize("end", ["_train", "_validation"])
    def test_the_way_out_of_a_set_with_text_held_out(self, end: str, tmp_path: Path, golden: Golden) -> None:
        golden.text(another_disk(tmp_path / f"x{end}.npy"))
        assert "--output /ANOTHER/FOLDER/x, all" in another_disk(tmp_path / f"x{end}")

    def test_a_set_that_grows_is_not_sent_elsewhere(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        from data_loading.pretokenizer.writer import SetWriter

        def full(*arguments: object) -> None:
            raise OSError(errno.ENOSPC, "")

        output = tmp_path / "set"
        make(write(tmp_path / "a.txt"), BytesTokenizer(), output, shard_tokens=100)
        monkeypatch.setattr(SetWriter, "append", full)
        with golden.refused("disk-full"):
            make(write(tmp_path / "b.txt", "more"), BytesTokenizer(), output, append=True)

    def test_other_errors_of_the_system_are_not_hidden(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from data_loading.pretokenizer.writer import SetWriter

        def broken(*arguments: object) -> None:
            raise OSError(errno.EIO, "I/O error")

        monkeypatch.setattr(SetWriter, "append", broken)
        with pytest.raises(OSError, match="I/O error"):
            make(write(tmp_path / "a.txt"), BytesTokenizer())

    def test_the_folder_of_the_output_is_made(self, tmp_path: Path) -> None:
        assert make(write(tmp_path / "a.txt"), BytesTokenizer(), tmp_path / "new" / "deep" / "a.npy").made


def test_an_interrupt_before_the_first_block_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from data_loading.pretokenizer.writer import SetWriter

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SetWriter, "append", interrupted)
    with pytest.raises(KeyboardInterrupt):
        make(write(tmp_path / "a.txt"), BytesTokenizer(), workers=2, block_bytes=100)
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]
