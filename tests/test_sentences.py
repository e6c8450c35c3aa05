"""Wording is pinned in golden texts only; what is left becomes less."""

from __future__ import annotations

import json

import pytest

from tests.sentences import LIMITS, count, sentences


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("assert 'no such file' in out", 1),
        ("assert out == f'no such {kind} file'", 1),
        ("assert 'no such file' in [a for a in b if 'of no use' in a]", 2),
        ("out.startswith('no such file')", 1),
        ("raises(UserError, match=r'no such file')", 1),
        ("raises(UserError, match=re.escape(message))", 1),
        ("raises(UserError, match='file')", 0),
        ("assert out['state'] == 'done'", 0),
        ("assert train('a text to read') == 3, 'no such file'", 0),
        ("assert parts['page tables'] == 4096", 0),
        ("assert 'python -m slurm status' in out and '--format parquet' in out", 0),
        ("with golden.refused('no-such-file'): load('no such file')", 0),
    ],
)
def test_compared_words_count(code: str, found: int) -> None:

    assert len(sentences(ast.parse(code))) == found


@pytest.mark.slow
def test_no_folder_pins_more_sentences() -> None:
    """Pin a code, a state, a key or a number instead, and the wording with `golden`."""
    limits = json.loads(LIMITS.read_text())
    more = {folder: number for folder, number in count().items() if number > limits.get(folder, 0)}
    assert more == {}, f"limits: {limits}"
