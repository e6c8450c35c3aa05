"""What a kill costs the pretokenizer: the whole command is killed at half of its work and started again.

Time lost is that of both attempts less that of a run which nobody disturbed, each in turn in every round,
told beside the time of one block per worker, which is what must be done again. The bytes must be the same.

    python benchmarks/tokenizing_restart.py [--tokenizer FOLDER]    # about 3 minutes
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.corpora import DEFAULT_FOLDER, SEPARATOR, absolute, corpora, prefix
from benchmarks.environment import save, summary

_BLOCK_BYTES = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--corpora", type=absolute, default=DEFAULT_FOLDER, metavar="FOLDER")
    parser.add_argument("--tokenizer", type=absolute, default=ROOT / "gpt2_tokenizer", metavar="FOLDER")
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--provisional", action="store_true", help="say so in the result: the machine was busy"
    )
    options = parser.parse_args()
    corpora(options.corpora)
    text = prefix(options.corpora, "mix", options.size_mb * 10**6).with_suffix(".txt")
    tiny = prefix(options.corpora, "mix", 10**6).with_suffix(".txt")
    whole, killed, again, lost, starts, same = [], [], [], [], [], []
    with tempfile.TemporaryDirectory(dir=options.corpora) as name:
        folder = Path(name)
        for _ in range(options.rounds):
            starts.append(attempt(tiny, folder / "tiny", options.tokenizer))
            whole.append(attempt(text, folder / "whole", options.tokenizer))
            tokens = _tokens_of(folder / "whole")
            killed.append(attempt(text, folder / "killed", options.tokenizer, kill_at_bytes=tokens // 2))
            again.append(attempt(text, folder / "killed", options.tokenizer, fresh=False))
            lost.append(killed[-1] + again[-1] - whole[-1])
            same.append(_digest(folder / "whole") == _digest(folder / "killed"))
    block_s = [
        (run - start) * _BLOCK_BYTES * len(os.sched_getaffinity(0)) / text.stat().st_size
        for run, start in zip(whole, starts, strict=True)
    ]
    save(
        "tokenizing_restart",
        {
            "provisional": options.provisional,
            "what": f"SIGKILL of the command at half of {options.size_mb} MB, then the same command again",
            "whole_s": summary(whole),
            "until_the_kill_s": summary(killed),
            "after_it_s": summary(again),
            "lost_s": summary(lost),
            "start_s": summary(starts),
            "lost_without_a_second_start_s": summary(
                [seconds - start for seconds, start in zip(lost, starts, strict=True)]
            ),
            "a_block_per_worker_s": summary(block_s),
            "same_bytes": all(same),
        },
    )


def attempt(
    text: Path, output: Path, tokenizer: Path, *, fresh: bool = True, kill_at_bytes: int | None = None
) -> float:
    """Seconds of the command, or until it was killed with so many bytes of tokens written."""
    if fresh:
        shutil.rmtree(output, ignore_errors=True)
        output.mkdir(parents=True)
    command = [
        sys.executable, str(ROOT / "pretokenize_dataset.py"), str(text), "--document-separator", SEPARATOR,
        "--tokenizer", str(tokenizer.resolve()), "--output", str(output / "tokens.npy"),
    ]  # fmt: skip
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while kill_at_bytes is not None and process.poll() is None and _written(output) < kill_at_bytes:
        time.sleep(0.01)
    if kill_at_bytes is not None:
        process.send_signal(signal.SIGKILL)
    status = process.wait()
    seconds = time.perf_counter() - started
    if status not in (0, -signal.SIGKILL):
        raise RuntimeError(f"{' '.join(command)} exited with {status}")
    return seconds


def _written(output: Path) -> int:
    """Bytes of tokens in the files of the unfinished set."""
    return sum(path.stat().st_size for path in output.rglob("*.npy") if path.is_file())


def _tokens_of(output: Path) -> int:
    return (output / "tokens.npy").stat().st_size


def _digest(output: Path) -> str:
    found = hashlib.sha256()
    for name in ("tokens.npy", "tokens.docs.npy"):
        with open(output / name, "rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


if __name__ == "__main__":
    main()
