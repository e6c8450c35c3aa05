"""Rules of what becomes part of a batch script."""

from __future__ import annotations

from typing import Any

import pytest

from conf import Config
from conf.between_keys.slurm_rules import text_of_a_script
from conf.schema import Slurm
from tests.golden_text import Golden


def codes(**values: Any) -> list[tuple[str, str]]:
    return [(one.where, one.code) for one in text_of_a_script(Config(slurm=Slurm(**values)))]


@pytest.mark.parametrize("python", [None, "python", "~/a/bin/python3.11", "apptainer exec --nv a.sif python"])
def test_one_command_is_a_python(python: str | None) -> None:
    assert codes(python=python) == []


@pytest.mark.parametrize("python", ["", " ", "python; rm x", "python\nx", "a | b", "$(which python)", "'a"])
def test_other_text_is_no_python(python: str) -> None:
    assert codes(python=python) == [("slurm.python", "not-one-command")]
    assert codes(by_model={Config().model.name: {"python": python}}) == codes(python=python)


@pytest.mark.parametrize("argument", ["--mpi=pmix", "-v", "--container-image 'a b'", "--container-image=a#b"])
def test_an_option_is_an_argument_of_srun(argument: str) -> None:
    assert codes(srun_args=[argument]) == []


@pytest.mark.parametrize("argument", ["", "python", "--mpi=a\nb", "-n4", "--nodes 2", "--mem=1G", "--'"])
def test_other_text_is_no_argument_of_srun(argument: str) -> None:
    assert codes(srun_args=["--mpi=pmix", argument]) == [("slurm.srun_args", "srun-argument")]


def test_a_refusal_names_what_is_expected(golden: Golden) -> None:
    config = Config(slurm=Slurm(python="a; b", srun_args=["--mem=1G", "-n 4", "python"]))
    golden.text("\n".join(map(str, text_of_a_script(config))))
