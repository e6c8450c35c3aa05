"""`python -m slurm clean`: removes only after a yes, and never what a run that is not done needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy, here
from slurm_command import Shown, printed_json, refused, typed

from experiment_utils import atomic_files, lease
from slurm.commands.removable_files import look, remove
from slurm.launch.code_snapshot import while_submitting
from slurm.records.start_records import Start, note_start
from tests.golden_text import Golden


def checkpoint(run: Path, *steps: int, best: int | None = None) -> None:
    for step in steps:
        made = run / "checkpoints" / f"step-{step:08d}"
        made.mkdir(parents=True)
        (made / "model.safetensors").write_bytes(bytes(20_000))
    if best is not None:
        (run / "checkpoints" / "best").symlink_to(f"step-{best:08d}")


def snapshot(place: Path, name: str) -> Path:
    made = place / "runs" / ".snapshots" / name / "slurm"
    made.mkdir(parents=True)
    (made / "a.py").write_text("x = 1\n")
    (made.parent / ".snapshot.json").write_text("{}")
    (made / "a.py").chmod(0o444)
    made.chmod(0o555)
    made.parent.chmod(0o555)
    return made.parent


@pytest.fixture
def study(place: Path, said: FakeSlurm) -> MadeStudy:
    code = snapshot(place, "used")
    made = MadeStudy(place / "runs" / "sweep", ["done", "failed", "running", "queued"], snapshot=str(code))
    for name in ("done", "failed", "running"):
        checkpoint(made.folder / name, 100, 200, 300, best=100)
    made.status("done", "done")
    made.status("failed", "failed", reason="ValueError: no")
    made.status("running", "running")
    made.lock("running")
    (made.folder / "failed" / "checkpoints" / ".step-00000400.tmp").mkdir()
    said.wait("4242_2", "RUNNING", "None", start=str(int(NOW_S - 900)), nodes="n1")
    said.wait("4242_3")
    return made


def left(study: MadeStudy, name: str) -> list[str]:
    return sorted(path.name for path in (study.folder / name / "checkpoints").iterdir())


ALL = ["best", "step-00000100", "step-00000200", "step-00000300"]
BEST, RESUMABLE = ["best", "step-00000100"], ["best", "step-00000100", "step-00000300"]


def begin_from(study: MadeStudy, source: Path) -> Path:
    """A run of another study that is to begin from a checkpoint."""
    branch = study.folder.parent / "branches" / "branch"
    branch.mkdir(parents=True)
    (branch / "config.yaml").write_text(
        f"seed: 0\nrestore:\n  what: run\n  from: {source.absolute()}\n  step: 200\nnotes: null\n"
    )
    return branch


def test_without_yes_nothing_is_removed(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], shown: Shown
) -> None:
    shown("clean", "sweep", numbers=False)
    found = printed_json(capsys, "clean", "sweep")
    assert (found["freed_bytes"], found["refused"]) == (0, [])
    assert {item["kind"] for item in found["items"]} <= set(found["held_bytes"])
    assert left(study, "done") == ALL


@pytest.mark.parametrize(
    ("answer", "kept"), [("n", ALL), ("", ALL), (None, ALL), ("y", BEST)], ids=["n", "", "Ctrl-D", "y"]
)
def test_asks_in_a_terminal(
    study: MadeStudy, monkeypatch: pytest.MonkeyPatch, answer: str | None, kept: list[str]
) -> None:
    def answered(question: str) -> str:
        if answer is None:
            raise EOFError
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", answered)
    assert typed("clean", "sweep") == 0
    assert left(study, "done") == kept


@pytest.mark.parametrize(
    ("keep", "kept"), [("best", BEST), ("last", ["best", "step-00000300"]), ("none", ["best"])]
)
def test_keeps_what_is_asked_and_what_runs_resume_from(study: MadeStudy, keep: str, kept: list[str]) -> None:
    assert typed("clean", "sweep", "--keep", keep, "--yes") == 0
    assert [left(study, name) for name in ("done", "failed", "running")] == [kept, RESUMABLE, ALL]
    assert (study.folder.parent / ".snapshots" / "used" / "slurm" / "a.py").exists()
    assert not (study.folder / "done" / "run.lock").exists()


def test_keeps_all_of_what_may_live_if_slurm_does_not_answer(study: MadeStudy, said: FakeSlurm) -> None:
    said.queue = said.accounting = None
    assert typed("clean", "sweep", "--yes") == 0
    assert left(study, "running") == ALL


@pytest.mark.parametrize("source", ["run", "checkpoint", "inside"])
def test_checkpoint_that_another_run_begins_from_stays(
    study: MadeStudy, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], source: str
) -> None:
    done = study.folder / "done"
    wanted = done / "checkpoints" / "step-00000200"
    (wanted / "state.json").write_text("{}")
    branch = begin_from(study, wanted if source == "checkpoint" else done).absolute()
    if source == "inside":  # `.` does not name its parent
        monkeypatch.setenv("HIGHWATER_RUNS_DIR", str(study.folder.parent.absolute()))
        study.folder = study.folder.absolute()
        monkeypatch.chdir(study.folder)
    given = "." if source == "inside" else "sweep"
    items = printed_json(capsys, "clean", given, "--keep", "none", "--yes")["items"]
    assert str(wanted.resolve()) not in [str(Path(item["path"]).resolve()) for item in items]
    assert left(study, "done") == ["best", "step-00000200"]
    checkpoint(branch, 10)  # it resumes from there
    assert typed("clean", given, "--keep", "none", "--yes") == 0
    assert left(study, "done") == ["best"]


def test_code_that_no_open_run_needs_goes(
    study: MadeStudy, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks of token sets need it too; a folder that is no snapshot of ours stays."""
    shared, own, tokenizing = (snapshot(place, name) for name in ("shared", "own", "tokenizing"))
    strange = place / "elsewhere"
    strange.mkdir()
    for number, (name, code, state) in enumerate(
        (("x", shared, "done"), ("y", shared, "failed"), ("z", own, "done"), ("w", strange, "done"))
    ):
        other = MadeStudy(place / "runs" / f"other{number}", [name], snapshot=str(code))
        other.status(name, state)
    tokens = MadeStudy(place / "runs" / ".huge.slurm", ["00000-of-00002"], snapshot=str(tokenizing))
    (tokens.folder / "00000-of-00002" / "config.yaml").unlink()
    found = printed_json(capsys, "clean", "other2", "--yes")
    assert {Path(item["path"]).name for item in found["items"]} == {"own"}
    assert found["freed_bytes"] == found["free_bytes"] > 0
    assert [path.exists() for path in (own, shared, tokenizing, strange)] == [False, True, True, True]


def test_code_of_a_submission_since_the_look_stays(place: Path, said: FakeSlurm, golden: Golden) -> None:
    """Before it is written down, and after."""
    code = snapshot(place, "code")
    done = MadeStudy(place / "runs" / "done", ["z"], snapshot=str(code))
    done.status("z", "done")
    items = look(done.folder, "best").items
    assert [item.path.name for item in items if item.kind == "snapshots"] == ["code"]
    with while_submitting(place / "runs"):
        golden.text("\n".join(remove(items)[1]))
    other = MadeStudy(place / "runs" / "other", ["a"], snapshot=str(code))
    remove(items)
    assert code.exists()
    other.status("a", "done")
    remove(items)
    assert not code.exists()


def test_run_that_was_started_since_the_look_is_left_alone(study: MadeStudy, golden: Golden) -> None:
    disk = look(study.folder, "best")
    host, pid, started = here()
    study.lock("failed", host, pid, started)
    _, (refusal,) = remove(disk.items)
    golden.text(refusal, numbers=False)
    assert "step-00000200" in left(study, "failed")
    assert left(study, "done") == BEST


def test_lock_of_a_run_that_was_killed_on_a_node_keeps_nothing(
    study: MadeStudy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "LAPSE_S", 0.3)
    run = study.folder / "failed"
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": "4243"}
    atomic_files.write_json(run / "run.lock", holder)
    note_start(run, Start("4242_1", "4243", 0, "n7", 4, 1.0, 1, 0, 300, 2.0, end="ended", state="oom"))
    assert typed("clean", "sweep", "--yes") == 0
    assert left(study, "failed") == RESUMABLE


def test_bad_input(study: MadeStudy, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    (study.folder.parent / "empty").mkdir()
    golden.text("".join(refused(capsys, "clean", name) for name in ("nosuch", "runs/sweep/done", "empty")))
