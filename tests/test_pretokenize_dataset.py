"""The command: what it prints, its exit status, and each bad input as one clear line."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import gzip
import io
import json
import os
import pty
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from as_written import as_written
from composed_once import compose_once

import experiments
import pretokenize_dataset
from tests.golden_text import Golden

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = str(ROOT / "pretokenize_dataset.py")


def typed(cwd: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = [sys.executable, SCRIPT, *arguments]
    return as_written(
        subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=240, **options)
    )


def run(cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in this process, which takes a tenth of the time: what it prints and its exit status."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.chdir(cwd), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = pretokenize_dataset.main(list(arguments))
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def assert_planned(cwd: Path, done: subprocess.CompletedProcess[str]) -> str:
    """That the command which was told to be the next one can be planned; returns its arguments."""
    command = done.stdout.splitlines()[-1].removeprefix("next: python experiments.py")
    told, before = io.StringIO(), signal.getsignal(signal.SIGTERM)
    with (
        pytest.MonkeyPatch.context() as patch, contextlib.chdir(cwd),
        contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(told),
    ):  # fmt: skip
        compose_once(patch)
        status = experiments.main([*shlex.split(command), "plan=true"])
    signal.signal(signal.SIGTERM, before)
    assert status == 0, (command, told.getvalue())
    return command


def heed_permissions() -> None:
    """Take from root, before it starts a program, the right to write anywhere (capabilities(7))."""
    pr_capbset_drop, cap_dac_override = 24, 1
    ctypes.CDLL(None).prctl(pr_capbset_drop, cap_dac_override, 0, 0, 0)


def refused(cwd: Path, *arguments: str, **options: Any) -> str:
    """Standard error of a command whose input cannot be used."""
    done = typed(cwd, *arguments, **options) if options else run(cwd, *arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, "one message"
    return errors[0]


def timeless(output: str) -> str:
    """What is printed, without the lines of times and memory."""
    return "\n".join(line for line in output.splitlines() if "/s)" not in line and "[mem]" not in line)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "Datasets" / "my.txt"
    path.parent.mkdir()
    path.write_text("A text.\n" * 100)
    return path


def test_a_text_becomes_a_token_set_and_the_next_command_is_told(
    text: Path, tmp_path: Path, golden: Golden
) -> None:
    done = typed(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes")
    assert done.returncode == 0, done.stderr
    golden.text(timeless(done.stdout), numbers=False)
    assert done.stdout.endswith("training.seq_len=64 training.effective_batch=11\n")
    assert "\r" not in done.stderr, "no moving line when it is not a terminal"
    assert np.load(text.with_suffix(".npy")).shape == (801,)
    again = run(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes")
    assert again.returncode == 0
    golden.text(again.stdout, "again", numbers=False)


def test_json_is_one_object_on_standard_output(text: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes", "--output", "out/x.npy", "--json")
    facts = json.loads(done.stdout)
    assert facts["path"] == "out/x.npy"
    assert (facts["tokens"], facts["text_tokens"], facts["documents"], facts["made"]) == (801, 800, 1, True)
    assert facts["tokenizer"]["name"] == "bytes"
    assert facts["file_bytes"] == (tmp_path / "out/x.npy").stat().st_size


def test_stdlib_is_a_text_of_its_own(tmp_path: Path) -> None:
    done = run(tmp_path, "stdlib")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].endswith("experiments.py model=32d")
    assert len(list((tmp_path / "Datasets").glob("stdlib-py*-bytes.npy"))) == 1


def test_a_file_named_stdlib_is_that_file(tmp_path: Path) -> None:
    (tmp_path / "stdlib").write_text("my own")
    assert run(tmp_path, "stdlib", "--tokenizer", "bytes").stdout.startswith("stdlib.npy: 6 ")


@pytest.mark.slow
def test_tinyshakespeare_with_a_tokenizer_folder(tmp_path: Path, shared_data: Path) -> None:
    output = tmp_path / "t.npy"
    text, folder = str(shared_data / "tinyshakespeare.txt"), str(shared_data / "gpt2")
    done = typed(tmp_path, text, "--tokenizer", folder, "--output", str(output), "--workers", "2")
    assert "338,025" in done.stdout, done.stderr
    assert f"tokenizer.path={folder}" in done.stdout


@pytest.mark.parametrize("question", ["--help", "--version"])
def test_help_and_version_answer_at_once(question: str, tmp_path: Path) -> None:
    """Nothing heavy is imported for them; how long they take is measured in benchmarks/startup.py."""
    code = (
        f"import sys; sys.argv = ['pretokenize_dataset.py', {question!r}]\n"
        "from pretokenize_dataset import main\n"
        "try:\n    main()\nexcept SystemExit:\n    print('loaded', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    answer, _, loaded = done.stdout.rpartition("loaded ")
    assert "examples:" in answer or answer.startswith("highwater ")
    heavy = {"numpy", "torch", "tokenizers", "fastokens", "hydra", "omegaconf", "psutil"}
    assert not heavy & set(loaded.split())


def test_a_moving_line_on_a_terminal_is_taken_away(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 1_000_000)
    code = (  # however quick the machine is
        "import pretokenize_dataset\nfrom data_loading.pretokenizer import progress\n"
        "progress._TERMINAL_EVERY_S = 0.0\npretokenize_dataset.main(['a.txt', '--tokenizer', 'bytes'])"
    )
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm"},
        stdout=subprocess.DEVNULL,
        stderr=slave,
    )
    os.close(slave)
    shown = b""
    with contextlib.suppress(OSError):  # the other end closes
        while part := os.read(master, 4096):
            shown += part
    os.close(master)
    assert process.wait(timeout=240) == 0
    assert b"MB/s" in shown
    assert b"% of 5.0 MB" in shown
    moving = [part for part in shown.split(b"\r\n") if b"MB/s" in part]
    assert all(line.rpartition(b"\r\x1b[K")[1] for line in moving), "nothing of it stays"


def test_a_tokenizer_trained_on_the_text(text: Path, tmp_path: Path, golden: Golden) -> None:
    text.write_text("the high water mark of memory\n" * 400)
    done = run(tmp_path, "Datasets/my.txt", "--train-tokenizer", "300")
    assert done.returncode == 0, done.stderr
    assert "tokenizer.path=Datasets/my.bpe300" in done.stdout
    assert (tmp_path / "Datasets/my.bpe300/tokenizer.json").exists()
    again = run(tmp_path, "Datasets/my.txt", "--train-tokenizer", "300")
    golden.lines(again.stderr, "my.bpe300", numbers=False)
    golden.text(refused(tmp_path, "Datasets/my.txt", "--train-tokenizer", "300", "--tokenizer", "bytes"))
    golden.text(refused(tmp_path, "Datasets/my.txt", "--train-tokenizer", "99"))


def test_the_place_is_looked_at_before_a_tokenizer_is_trained(
    text: Path, tmp_path: Path, golden: Golden
) -> None:
    command = ("Datasets/my.txt", "--train-tokenizer", "300")
    run(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes")
    message = refused(tmp_path, *command)
    assert "--overwrite" in message
    golden.text(message)
    golden.text(refused(tmp_path, *command, "--append", "--output", "Datasets/my"), "append")
    assert not (tmp_path / "Datasets/my.bpe300").exists()
    assert run(tmp_path, *command, "--overwrite").returncode == 0
    shutil.rmtree(tmp_path / "Datasets/my.bpe300")
    again = json.loads(run(tmp_path, *command, "--json").stdout)
    assert again["made"] is False, "the same text gives the same tokenizer"


def test_a_tokenizer_that_cannot_be_written(text: Path, tmp_path: Path, golden: Golden) -> None:
    text.parent.chmod(0o555)
    message = refused(tmp_path, "Datasets/my.txt", "--train-tokenizer", "300", preexec_fn=heed_permissions)
    text.parent.chmod(0o755)
    assert "--output /ANOTHER/FOLDER/my.npy" in message
    golden.text(message)


def test_the_next_command_can_be_typed_whatever_the_names(tmp_path: Path, root: Path) -> None:
    text = tmp_path / "my file (1), é.txt"
    text.write_text("high water mark\n" * 500)
    done = run(tmp_path, text.name, "--tokenizer", "bytes")
    command = done.stdout.splitlines()[-1].removeprefix("next: ")
    typed = command.replace("python experiments.py", f"{sys.executable} {root}/experiments.py") + " plan=true"
    typed += " training.seq_len=16 training.effective_batch=4 training.max_steps=2"
    planned = subprocess.run(typed, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert planned.returncode == 0, planned.stderr
    assert text.stem in planned.stdout


@pytest.mark.parametrize("characters", [30, 200, 860, 2000, 60_000])
def test_the_next_command_fits_a_short_text(characters: int, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("high water mark\n" * (characters // 16 + 1))
    command = assert_planned(tmp_path, run(tmp_path, "a.txt", "--tokenizer", "bytes"))
    assert ("training.seq_len" in command) == (characters < 1280)


@pytest.mark.parametrize("fraction", ["0.01", "0.9"])
def test_the_next_command_fits_what_is_held_out(fraction: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("high water mark\n" * 300)
    assert_planned(tmp_path, run(tmp_path, "a.txt", "--tokenizer", "bytes", "--val-fraction", fraction))


def test_the_next_command_names_the_set_that_was_made(tmp_path: Path) -> None:
    done = run(tmp_path, "stdlib", "--max-documents", "20", "--output", "std.npy")
    assert "dataset.path=std.npy" in done.stdout.splitlines()[-1]


def test_the_next_command_of_a_half_that_grew_names_both(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / f"{name}.txt").write_text(f"high water {name}\n" * 3000)
    shards = ("--tokenizer", "bytes", "--tokens-per-shard", "20k", "--output")
    assert run(tmp_path, "a.txt", "--val", "b.txt", *shards, "all").returncode == 0
    done = run(tmp_path, "c.txt", "--tokenizer", "bytes", "--output", "all_train", "--append")
    assert "dataset.path=all" in shlex.split(assert_planned(tmp_path, done))


def test_message_names_the_cause_that_is_elsewhere(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "d.jsonl").write_text('{"body": "water"}\n' * 3)
    messages = [refused(tmp_path, "d.jsonl", "--tokenizer", "bytes", "--skip-bad", "1M")]
    (tmp_path / "a.txt").write_text("water")
    bytes_ = ("--tokenizer", "bytes", "--output", "x.npy")
    assert run(tmp_path, "d.jsonl", *bytes_, "--text-field", "body").returncode == 0
    messages.append(refused(tmp_path, "a.txt", *bytes_))
    messages.append(refused(tmp_path, "stdlib", "a.txt", *bytes_))
    golden.text("\n".join(messages))


def test_a_part_of_stdlib_does_not_take_the_name_of_all_of_it(tmp_path: Path, golden: Golden) -> None:
    golden.text(refused(tmp_path, "stdlib", "--max-documents", "20"))
    assert not (tmp_path / "Datasets").exists()


def test_a_text_too_short_to_train_on_gets_no_command(tmp_path: Path, golden: Golden) -> None:
    (tmp_path / "a.txt").write_text("mark")
    golden.text(timeless(run(tmp_path, "a.txt", "--tokenizer", "bytes").stdout), numbers=False)


def test_a_reader_that_has_seen_enough(text: Path, tmp_path: Path, root: Path) -> None:
    run(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes")
    done = subprocess.run(
        f"{sys.executable} -c 'import sys, time; sys.path.insert(0, {str(root)!r}); "
        'import pretokenize_dataset; time.sleep(1); sys.exit(pretokenize_dataset.main(["verify", '
        '"Datasets/my.npy", "--json"]))\' | true',
        shell=True, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_done_and_exits_130(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("word " * 30_000_000)
    process = subprocess.Popen(
        [sys.executable, SCRIPT, "a.txt", "--tokenizer", "bytes"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("tokenizing"):
            break
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait(timeout=240) == 130, rest
    assert sorted({"a.txt", ".a.npy.partial"} | {path.name for path in tmp_path.iterdir()}) == [
        ".a.npy.partial", "a.txt",
    ]  # fmt: skip
    assert run(tmp_path, "a.txt", "--tokenizer", "bytes").returncode == 0
    assert np.load(tmp_path / "a.npy", mmap_mode="r").shape == (150_000_001,)
    assert not (tmp_path / ".a.npy.partial").exists()
    process.stderr.close()


class TestInputs:
    def test_several_inputs_in_one_set(self, tmp_path: Path) -> None:
        (tmp_path / "dump").mkdir()
        (tmp_path / "a.txt").write_text("three words here")
        for name in "ba":
            (tmp_path / "dump" / f"{name}.jsonl.gz").write_bytes(
                gzip.compress(b'{"text": "%s"}' % name.encode())
            )
        done = run(
            tmp_path, "a.txt", "dump/*.jsonl.gz", "--tokenizer", "bytes", "--output", "mix.npy",
            "--max-tokens", "19",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("mix.npy: 17 ")
        assert np.load(tmp_path / "mix.npy").tolist() == [*b"three words here", 256, ord("a"), 256]

    def test_standard_input(self, tmp_path: Path) -> None:
        command = ("-", "--tokenizer", "bytes", "--output", "x.npy")
        assert typed(tmp_path, *command, input="the water").returncode == 0
        assert np.load(tmp_path / "x.npy").tolist() == [*b"the water", 256]
        assert "--output" in refused(tmp_path, "-", "--tokenizer", "bytes", input="x")

    def test_held_out_text_is_a_set_of_its_own(self, tmp_path: Path, golden: Golden) -> None:
        from conf.schema import Dataset
        from data_loading.find.locate import locate

        (tmp_path / "wiki_train.txt").write_text("to train on\n" * 100)
        (tmp_path / "wiki_valid.txt").write_text("held out")
        command = ("wiki_train.txt", "--val", "wiki_valid.txt", "--tokenizer", "bytes", "--output", "D/wiki")
        done = run(tmp_path, *command)
        assert done.returncode == 0, done.stderr
        assert {"dataset.path=D/wiki_train.npy", "dataset.val_path=D/wiki_validation.npy"} <= set(
            done.stdout.split()
        )
        golden.text(timeless(done.stdout), numbers=False)
        train, val = locate(Dataset(source="text", path=str(tmp_path / "D" / "wiki")))
        assert (train.tokens.name, val.tokens.name) == ("wiki_train.npy", "wiki_validation.npy")
        facts = json.loads(run(tmp_path, *command, "--json").stdout)
        assert (facts["tokens"], facts["val"]["tokens"], facts["made"]) == (1201, 9, False)

    @pytest.mark.parametrize("packed", [False, True])
    def test_the_same_text_held_out_is_refused(self, packed: bool, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("text")
        (tmp_path / "b.txt").write_bytes(gzip.compress(b"text") if packed else b"text")
        message = refused(tmp_path, "a.txt", "--val", "b.txt", "--tokenizer", "bytes")
        golden.text(message)
        assert (tmp_path / "a.npy").exists() == packed, "told before, where that is cheap"

    def test_only_train_is_limited(self, tmp_path: Path) -> None:
        (tmp_path / "a.jsonl").write_text('{"text": "a"}\n' * 9)
        (tmp_path / "b.jsonl").write_text('{"text": "b"}\n' * 9)
        done = run(
            tmp_path, "a.jsonl", "--val", "b.jsonl", "--tokenizer", "bytes", "--max-documents", "2", "--json"
        )
        facts = json.loads(done.stdout)
        assert (facts["documents"], facts["val"]["documents"]) == (2, 9)

    @pytest.mark.parametrize(
        ("name", "flags"),
        [("a.jsonl.gz", []), ("a.txt", []), ("b.jsonl", ["--max-tokens", "1500"]), ("b.parquet", [])],
    )
    def test_verify_knows_every_kind(
        self, name: str, flags: list[str], tmp_path: Path, golden: Golden
    ) -> None:
        line = json.dumps({"text": "the water rose and the mark stayed high " * 20}).encode() + b"\n"
        if name.endswith("parquet"):
            parquet = pytest.importorskip("pyarrow.parquet")
            parquet.write_table(pytest.importorskip("pyarrow").table({"text": ["a b"] * 9}), tmp_path / name)
        else:
            data = line * 3000 if "b." in name else line * 90
            (tmp_path / name).write_bytes(gzip.compress(data) if name != "b.jsonl" else data)
        command = (name, "--tokenizer", "bytes", "--output", "x.npy", *flags)
        assert run(tmp_path, *command).returncode == 0
        os.utime(tmp_path / name, (1, 1))
        done = run(tmp_path, "verify", "x.npy", "--deep")
        assert done.returncode == 0, done.stdout + done.stderr
        golden.lines(done.stdout, name, numbers=False)

    def test_a_run_reads_json_lines_as_such(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from conf.schema import Dataset, Tokenizer
        from data_loading import prepare_data

        (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "some words"}\n' * 20))
        dataset = Dataset(source="text", path=str(tmp_path / "a.jsonl.gz"))
        data = prepare_data(dataset, Tokenizer(name="bytes"), tokenize=True)
        assert data.train.tokens[:11].tolist() == [*b"some words", 256]
        os.utime(tmp_path / "a.jsonl.gz", (1, 1))
        prepare_data(dataset, Tokenizer(name="bytes"), tokenize=False)


class TestBadInput:
    def test_one_clear_message_and_exit_2(
        self, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
    ) -> None:
        from huggingface_hub import constants

        (tmp_path / "empty.txt").touch()
        (tmp_path / "bad.txt").write_bytes(b"caf. \xe9"[:4] + b"\xe9 and more")
        (tmp_path / "folder.npy").mkdir()
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "no"))
        before = sorted(tmp_path.rglob("*"))
        messages = []
        for given in (
            "missing.txt",
            "empty.txt",
            "bad.txt",
            "bad.txt --encoding utf-9",
            "bad.txt --errors guess",
            "Datasets",
            "Datasets/my.txt bad.txt",
            "Datasets/*.txt",
            "folder.npy",
            "no*",
            "Datasets/my.txt --max-tokens 1.5",
            "Datasets/my.txt --max-documents 0",
            "Datasets/my.txt --skip-bad many",
            "stdlib --text-field text",
            "Datasets/my.npy",
            "Datasets/my.txt --output out",
            "Datasets/my.txt --output x.docs.npy",
            "Datasets/my.txt --output folder.npy",
            "Datasets/my.txt --engine magic",
            "Datasets/my.txt --workers -1",
            "Datasets/my.txt --workers 100000",
            "Datasets/my.txt --run-limit 0",
            "Datasets/my.txt --tokenizer Datasets/my.txt",
            "Datasets/my.txt --tokenizer gpt5",
            "Datasets/my.txt --tokenizer gpt2",
            "Datasets/my.txt --tokenizer Datasets",
        ):
            more = "" if "--tokenizer" in given else " --tokenizer bytes"
            messages.append(refused(tmp_path, *f"{given}{more}".split()))
            assert sorted(tmp_path.rglob("*")) == before, "nothing written, nothing lost"
        golden.text("\n".join(messages), numbers=False)

    def test_another_content_is_not_replaced_unasked(self, text: Path, tmp_path: Path) -> None:
        run(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes")
        text.write_text("Another text.")
        assert "--overwrite" in refused(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes")
        assert np.load(text.with_suffix(".npy")).shape == (801,)
        assert run(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes", "--overwrite").returncode == 0
        assert np.load(text.with_suffix(".npy")).shape == (14,)

    def test_a_folder_that_cannot_be_written(self, text: Path, tmp_path: Path) -> None:
        text.parent.chmod(0o555)
        message = refused(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes", preexec_fn=heed_permissions)
        text.parent.chmod(0o755)
        assert os.strerror(errno.EACCES) in message
        assert "--output /ANOTHER/FOLDER/my.npy" in message
        assert "dataset.path=/ANOTHER/FOLDER/my.npy" in message

    def test_unknown_flags_are_refused_by_the_parser(self, tmp_path: Path) -> None:
        done = typed(tmp_path, "a.txt", "--tokeniser", "bytes")
        assert done.returncode == 2
        assert "Traceback" not in done.stderr


@pytest.fixture
def small_disk(small_disk: Path) -> Path:
    """A disk of 1 MB."""
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    return small_disk


@pytest.mark.privileged
class TestRealDisk:
    def test_full(self, small_disk: Path, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "old.txt").write_text("old " * 100)
        (tmp_path / "new.txt").write_text("new " * 500_000)
        output = str(small_disk / "x.npy")
        assert typed(tmp_path, "old.txt", "--tokenizer", "bytes", "--output", output).returncode == 0
        before = {path.name: path.stat().st_size for path in small_disk.rglob("*")}
        message = refused(tmp_path, "new.txt", "--tokenizer", "bytes", "--output", output, "--overwrite")
        golden.text(message, numbers=False)
        assert {path.name: path.stat().st_size for path in small_disk.rglob("*")} == before
        assert np.load(output).shape == (401,)

    def test_full_then_more_room(self, small_disk: Path, tmp_path: Path, golden: Golden) -> None:
        words = np.random.default_rng(0).choice([b"high ", b"water\n", b"mark "], 2_000_000)
        text = b"".join(words)
        with gzip.open(tmp_path / "a.txt.gz", "wb", 1) as file:  # from its start alone nothing is refused
            file.write(text)
        output = str(small_disk / "x.npy")
        subprocess.run(["mount", "-o", "remount,size=17m", str(small_disk)], check=True)
        command = ("a.txt.gz", "--tokenizer", "bytes", "--output", output)
        done = typed(tmp_path, *command)
        assert done.returncode == 2
        golden.lines(done.stderr, "x.npy", numbers=False)
        assert list((small_disk / ".x.npy.partial").glob("tokens.npy"))
        subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True)
        done = typed(tmp_path, *command)
        assert done.returncode == 0, done.stderr
        assert np.load(output)[:-1].astype(np.uint8).tobytes() == text

    def test_full_by_another_program(self, small_disk: Path, tmp_path: Path) -> None:
        """There was room when it began; the program that takes it goes away again."""
        text = b"high water mark\n" * 4_000_000
        (tmp_path / "a.txt").write_bytes(text)
        output = str(small_disk / "x.npy")
        subprocess.run(["mount", "-o", "remount,size=200m", str(small_disk)], check=True)
        command = ("a.txt", "--tokenizer", "bytes", "--output", output)
        process = subprocess.Popen(
            [sys.executable, SCRIPT, *command], cwd=tmp_path, stderr=subprocess.PIPE, text=True
        )
        tokens = small_disk / ".x.npy.partial" / "tokens.npy"
        while not any(path.stat().st_size for path in tokens.parent.glob("blocks.*")) or (
            tokens.stat().st_size < 5_000_000
        ):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGSTOP)  # else it may be through before the disk is full
        with contextlib.suppress(OSError), open(small_disk / "other", "wb") as other:
            while True:
                other.write(bytes(1 << 20))
        process.send_signal(signal.SIGCONT)
        _, told = process.communicate(timeout=240)
        assert process.returncode == 2
        assert os.strerror(errno.ENOSPC) in told
        assert tokens.stat().st_size > 5_000_000, "what was done is kept"
        (small_disk / "other").unlink()
        done = typed(tmp_path, *command)
        assert done.returncode == 0, done.stderr
        assert np.load(output)[:-1].astype(np.uint8).tobytes() == text

    def test_read_only(self, small_disk: Path, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("text")
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        message = refused(tmp_path, "a.txt", "--tokenizer", "bytes", "--output", str(small_disk / "x.npy"))
        assert os.strerror(errno.EROFS) in message


class TestShards:
    def test_as_typed(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("The water rose.\n" * 300)
        (tmp_path / "b.txt").write_text("The water fell.\n" * 300)
        made = run(
            tmp_path, "a.txt", "--tokenizer", "bytes", "--tokens-per-shard", "1K", "--val-fraction", "0.1"
        )
        assert "dataset.path=a " in made.stdout
        golden.text(timeless(made.stdout), numbers=False)
        more = run(tmp_path, "b.txt", "--tokenizer", "bytes", "--output", "a", "--append", "--json")
        facts = json.loads(more.stdout)
        assert (facts["shards"], facts["text_bytes"], facts["tokens"]) == (10, 4800, 9602)
        assert len(facts["val"]["ranges"]) == 2
        again = run(tmp_path, "b.txt", "--tokenizer", "bytes", "--output", "a", "--append", "--json")
        assert json.loads(again.stdout)["made"] is False
        assert run(tmp_path, "verify", "a").returncode == 0
        assert "9,602 in" in run(tmp_path, "inspect", "a").stdout

    def test_what_cannot_be_held_out_is_told_before_the_other_half_grows(
        self, tmp_path: Path, golden: Golden
    ) -> None:
        for name in "abcd":
            (tmp_path / f"{name}.txt").write_text(f"The water {name}.\n" * 300)
        how = ["--tokenizer", "bytes", "--output", "s"]
        assert run(tmp_path, "a.txt", "--val", "b.txt", *how, "--tokens-per-shard", "1K").returncode == 0
        held = (tmp_path / "s_train/manifest.json").read_bytes()
        done = run(tmp_path, "c.txt", "--val", "b.txt", *how, "--append")
        assert done.returncode == 2
        golden.text(timeless(done.stderr), numbers=False)
        assert (tmp_path / "s_train/manifest.json").read_bytes() == held
        assert run(tmp_path, "c.txt", "--val", "d.txt", *how, "--append").returncode == 0
        told = run(tmp_path, "verify", "s")
        assert told.returncode == 2
        golden.text(told.stderr, "verify", numbers=False)

    @pytest.mark.parametrize("held_out", [False, True])
    def test_exports_of_a_set_that_grows(self, held_out: bool, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("The water rose.\n--\n" * 300)
        (tmp_path / "b c.txt").write_text("The water fell.\n--\n" * 300)
        form = ["--tokens-per-shard", "1K", *(["--val-fraction", "0.1"] if held_out else [])]
        how = ["--tokenizer", "bytes", "--document-separator=--"]
        assert run(tmp_path, "a.txt", *how, *form, "--format", "megatron,nanogpt").returncode == 0
        append = ["b c.txt", *how, "--output", "a", "--append"]
        refused = run(tmp_path, *append, "--format", "nanogpt")
        assert refused.returncode == (2 if held_out else 0)
        more = run(tmp_path, *append)
        warned = [line for line in more.stderr.splitlines() if line.startswith("WARNING: a.")]
        assert [line.split()[1] for line in warned] == ["a.megatron", "a.nanogpt"][: 1 + held_out]
        command = warned[0][warned[0].index("python pretokenize_dataset.py") :]
        assert command in run(tmp_path, "verify", "a").stderr
        command = shlex.split(command)
        again = run(tmp_path, *command[2:])
        assert again.returncode == 0, again.stderr
        if held_out:
            assert "(rm -r a.nanogpt)" in warned[1]
            shutil.rmtree(tmp_path / "a.nanogpt")
        assert run(tmp_path, "verify", "a").returncode == 0

    def test_wrong_flags_are_refused(self, tmp_path: Path, golden: Golden) -> None:
        (tmp_path / "a.txt").write_text("The water rose.\n" * 300)
        golden.text("\n".join(
            refused(tmp_path, "a.txt", "--tokenizer", "bytes", *flags.split())
            for flags in (
                "--tokens-per-shard 0",
                "--tokens-per-shard many",
                "--tokens-per-shard 1K --output x.npy",
                "--output x",
                "--val-fraction 1.5",
                "--val-fraction 0.1 --val a.txt",
                "--append",
                "--append --overwrite",
            )
        ))  # fmt: skip


class TestFormats:
    def test_exports_are_written_beside_the_set_and_once(
        self, text: Path, tmp_path: Path, golden: Golden
    ) -> None:
        command = ("Datasets/my.txt", "--tokenizer", "bytes", "--format", "nanogpt,megatron")
        assert run(tmp_path, *command[:3]).returncode == 0
        done = run(tmp_path, *command)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        exports = [line.split(":")[0] for line in lines[1:-1] if not line.startswith(" ")]
        assert exports == ["Datasets/my.nanogpt/", "Datasets/my.megatron/"]
        golden.text(timeless(done.stdout), numbers=False)
        golden.lines(done.stderr, "--split", "1")
        again = json.loads(run(tmp_path, *command, "--json").stdout)
        assert [one["made"] for one in (again, *again["exports"])] == [False] * 3

    def test_json(self, text: Path, tmp_path: Path) -> None:
        done = run(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes", "--format", "mypt", "--json")
        assert json.loads(done.stdout)["exports"] == [{
            "path": "Datasets/my.mypt", "format": "mypt", "made": True, "tokens": {"train": 721, "val": 80},
            "files": [
                "train/shard_00000.bin", "val/shard_00001.bin",
                "tokenizer_state.json", "dataset_metadata.json",
            ],
            "bytes": sum(
                path.stat().st_size for path in (tmp_path / "Datasets/my.mypt").rglob("*.*")
                if path.name != "highwater.json"
            ),
        }]  # fmt: skip

    def test_text_held_out_goes_into_the_same_export(
        self, text: Path, tmp_path: Path, golden: Golden
    ) -> None:
        (tmp_path / "held.txt").write_text("Another.")
        command = ("Datasets/my.txt", "--val", "held.txt", "--tokenizer", "bytes", "--output", "out/t")
        done = run(tmp_path, *command, "--format", "llm.c")
        golden.lines(done.stdout, "out/t.llm.c/:")
        verified = run(tmp_path, "verify", "out/t_validation.npy")
        assert verified.returncode == 0, verified.stderr
        golden.lines(verified.stdout, "llm.c", numbers=False)

    def test_unknown_names_are_told_with_the_choices(
        self, text: Path, tmp_path: Path, golden: Golden
    ) -> None:
        done = run(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes", "--format", "parquet,numpy")
        assert done.returncode == 2
        parquet, numpy = done.stderr.splitlines()
        assert "--format parquet" in parquet
        assert "--format numpy" in numpy
        golden.text(done.stderr)
        assert not text.with_suffix(".npy").exists()

    def test_a_place_that_is_taken_is_told_before_the_work(
        self, text: Path, tmp_path: Path, golden: Golden
    ) -> None:
        taken = tmp_path / "Datasets/my.nanogpt"
        taken.mkdir()
        (taken / "mine").touch()
        golden.text(refused(tmp_path, "Datasets/my.txt", "--tokenizer", "bytes", "--format", "nanogpt"))
        assert not text.with_suffix(".npy").exists()

    @pytest.mark.privileged
    def test_a_disk_that_fills_up_keeps_the_set(self, small_disk: Path, tmp_path: Path) -> None:
        (tmp_path / "a.txt").write_text("new " * 80_000)
        output = str(small_disk / "x.npy")
        message = refused(tmp_path, "a.txt", "--tokenizer", "bytes", "--output", output, "--format", "mypt")
        assert os.strerror(errno.ENOSPC) in message
        assert "with --output /ANOTHER/FOLDER/x.npy" in message
        assert np.load(output).shape == (320_001,)
        assert not list(small_disk.glob("*x.mypt*"))
