"""`python -m slurm clean`: what may go, asked first; never what a run needs that lives or may go on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_studies import NOW_S, FakeSlurm, MadeStudy, here
from slurm_command import Shown, refused, told, told_json, typed

from experiment_utils import atomic_files
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
        (made.folder / name / "memory.html").write_text("x")
    made.status("done", "done")
    made.status("failed", "failed", reason="ValueError: no")
    made.status("running", "running")
    made.lock("running")
    (made.folder / "failed" / "checkpoints" / ".step-00000400.tmp").mkdir()
    (made.submission.folder / "submitit").mkdir()
    said.wait("4242_2", "RUNNING", "None", start=str(int(NOW_S - 900)), nodes="n1")
    said.wait("4242_3")
    return made


def left(study: MadeStudy, name: str) -> list[str]:
    return sorted(path.name for path in (study.folder / name / "checkpoints").iterdir())


ALL = ["best", "step-00000100", "step-00000200", "step-00000300"]


def test_it_tells_and_touches_nothing(study: MadeStudy, shown: Shown) -> None:
    shown("clean", "sweep", numbers=False)
    assert left(study, "done") == ALL


def test_best_is_kept_of_what_is_done_and_the_newest_of_what_may_go_on(
    study: MadeStudy, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(capsys, "clean", "sweep", "--yes")
    assert "freed" in text
    assert left(study, "done") == ["best", "step-00000100"]
    assert left(study, "failed") == ["best", "step-00000100", "step-00000300"]
    assert left(study, "running") == ALL
    assert not (study.folder / "done" / "memory.html").exists()
    assert (study.folder / "running" / "memory.html").exists()
    assert (study.submission.folder / "submitit").exists()
    assert (study.folder.parent / ".snapshots" / "used" / "slurm" / "a.py").exists()
    assert not (study.folder / "done" / "run.lock").exists()


@pytest.mark.parametrize(("keep", "kept"), [("last", ["best", "step-00000300"]), ("none", ["best"])])
def test_other_checkpoints_to_keep(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], keep: str, kept: list[str]
) -> None:
    assert typed("clean", "sweep", "--keep", keep, "--yes") == 0
    assert left(study, "done") == kept
    assert left(study, "failed") == ["best", "step-00000100", "step-00000300"]


@pytest.mark.parametrize("where", ["run", "checkpoint"])
def test_what_another_run_is_to_begin_from_stays(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    wanted = study.folder / "done" / "checkpoints" / "step-00000200"
    (wanted / "state.json").write_text("{}")
    begins_from = study.folder / "done" if where == "run" else wanted
    branch = study.folder.parent / "branches" / "branch"
    branch.mkdir(parents=True)
    (branch / "config.yaml").write_text(
        f"seed: 0\nrestore:\n  what: run\n  from: {begins_from}\n  step: 200\nnotes: null\n"
    )
    assert typed("clean", "sweep", "--keep", "none", "--yes") == 0
    assert "step-00000200" in left(study, "done")
    assert "step-00000300" not in left(study, "done")
    checkpoint(branch, 10)  # it goes on from there
    told(capsys, "clean", "sweep", "--keep", "none", "--yes")
    assert "step-00000200" not in left(study, "done")


def test_what_no_open_run_needs_goes(
    study: MadeStudy, place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    shared, own = snapshot(place, "shared"), snapshot(place, "own")
    strange = place / "elsewhere"
    strange.mkdir()
    for number, (name, code, state) in enumerate(
        (("x", shared, "done"), ("y", shared, "failed"), ("z", own, "done"), ("w", strange, "done"))
    ):
        other = MadeStudy(place / "runs" / f"other{number}", [name], snapshot=str(code))
        other.status(name, state)
        (other.submission.folder / "submitit").mkdir()
    found = told_json(capsys, "clean", "other2", "--yes")
    gone = {Path(item["path"]).name for item in found["items"]}
    assert gone == {"own", "submitit"}
    assert found["freed_bytes"] == found["free_bytes"] > 0
    assert not own.exists()
    assert shared.exists()
    assert strange.exists()


def test_the_code_of_a_task_of_a_token_set_stays(
    study: MadeStudy, place: Path, said: FakeSlurm, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    """It has no config.yaml, and lies where no study is: what has no runs is not cleaned."""
    code = snapshot(place, "tokenizing")
    tokens = MadeStudy(place / "runs" / ".huge.slurm", ["00000-of-00002"], snapshot=str(code))
    (tokens.folder / "00000-of-00002" / "config.yaml").unlink(missing_ok=True)
    (place / "runs" / "huge").mkdir()
    found = told_json(capsys, "clean", "sweep", "--yes")
    assert code.name not in {Path(item["path"]).name for item in found["items"]}
    golden.text(refused(capsys, "clean", "huge", "--yes"))
    assert code.exists()


def test_a_copy_that_is_about_to_be_used_stays(place: Path, said: FakeSlurm, golden: Golden) -> None:
    """Somebody submits between the look and the removal: before it is written down, and after."""
    from slurm.commands.removable_files import look, remove

    code = snapshot(place, "code")
    done = MadeStudy(place / "runs" / "done", ["z"], snapshot=str(code))
    done.status("z", "done")
    items = look(done.folder, "best").items
    assert [item.path.name for item in items if item.kind == "snapshots"] == ["code"]
    with while_submitting(place / "runs"):
        golden.text("\n".join(remove(items)[1]))
        assert code.exists()
    other = MadeStudy(place / "runs" / "other", ["a"], snapshot=str(code))
    remove(items)
    assert code.exists()
    other.status("a", "done")
    remove(items)
    assert not code.exists()


def test_it_asks(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for answer, kept in (("n", ALL), ("", ALL), ("y", ["best", "step-00000100"])):
        monkeypatch.setattr("builtins.input", lambda question, answer=answer: answer)
        assert typed("clean", "sweep") == 0
        assert left(study, "done") == kept


def test_the_end_of_input_is_no(study: MadeStudy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-D."""

    def ended(question: str) -> str:
        raise EOFError

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", ended)
    assert typed("clean", "sweep") == 0
    assert left(study, "done") == ALL


def test_standing_in_the_study_it_knows_the_others(
    study: MadeStudy, monkeypatch: pytest.MonkeyPatch, shown: Shown
) -> None:
    """`.` has no parent by its name."""
    branch = study.folder.parent / "branches" / "branch"
    branch.mkdir(parents=True)
    begins_from = (study.folder / "done").absolute()
    (branch / "config.yaml").write_text(
        f"seed: 0\nrestore:\n  what: run\n  from: {begins_from}\n  step: 200\nnotes: null\n"
    )
    monkeypatch.setenv("HIGHWATER_RUNS_DIR", str(study.folder.parent.absolute()))
    monkeypatch.chdir(study.folder)
    shown("clean", ".", "--yes", numbers=False)
    assert "step-00000200" in left(study, "done")
    assert "step-00000300" not in left(study, "done")


def test_a_run_that_was_just_started_is_left(
    study: MadeStudy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    from slurm.commands.removable_files import look, remove

    disk = look(study.folder, "best")
    host, pid, started = here()
    study.lock("failed", host, pid, started)
    _, refusals = remove(disk.items)
    assert len(refusals) == 1
    golden.text(refusals[0], numbers=False)
    assert "step-00000200" in left(study, "failed")
    assert left(study, "done") == ["best", "step-00000100"]


def test_the_lock_of_one_that_was_killed_on_a_node_keeps_nothing(study: MadeStudy) -> None:
    """SIGKILL leaves it, as the kernel sends it for memory; from another machine nobody can look."""
    run = study.folder / "failed"
    holder = {"host": "n7", "pid": 5, "started_at": 6, "since": "then", "job_id": "4243"}
    atomic_files.write_json(run / "run.lock", holder)
    note_start(run, Start("4242_1", "4243", 0, "n7", 4, 1.0, 1, 0, 300, 2.0, end="ended", state="oom"))
    assert typed("clean", "sweep", "--yes") == 0
    assert left(study, "failed") == ["best", "step-00000100", "step-00000300"]


def test_a_slurm_that_does_not_answer_keeps_all_that_may_live(
    study: MadeStudy, said: FakeSlurm, capsys: pytest.CaptureFixture[str]
) -> None:
    said.queue = said.accounting = None
    assert typed("clean", "sweep", "--yes") == 0
    assert left(study, "running") == ALL


def test_json_only_tells(study: MadeStudy, capsys: pytest.CaptureFixture[str]) -> None:
    found = told_json(capsys, "clean", "sweep")
    assert found["freed_bytes"] == 0
    assert {"checkpoints", "reports"} < {item["kind"] for item in found["items"]}
    assert json.dumps(found["held_bytes"])
    assert left(study, "done") == ALL


def test_bad_input(study: MadeStudy, capsys: pytest.CaptureFixture[str], golden: Golden) -> None:
    golden.text(refused(capsys, "clean", "nosuch") + refused(capsys, "clean", "runs/sweep/done"))
