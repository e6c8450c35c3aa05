"""synthetic:KIND[:VOCAB[:TOKENS[:SEED]]]: what is read, what is left out, what is refused."""

from __future__ import annotations

import pytest

from data_loading.synthetic.synthetic_uri import KINDS, SyntheticUri, parse_synthetic
from tests.golden_text import Golden


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("synthetic:uniform", SyntheticUri("uniform", 256, 10**9, 0)),
        ("synthetic:zipf:50257", SyntheticUri("zipf", 50_257, 10**9, 0)),
        ("synthetic:zipf:64K", SyntheticUri("zipf", 64_000, 10**9, 0)),
        ("synthetic:markov:64:100M", SyntheticUri("markov", 64, 10**8, 0)),
        ("synthetic:copy:2:1T:7", SyntheticUri("copy", 2, 10**12, 7)),
        ("synthetic:copy::1e12", SyntheticUri("copy", 256, 10**12, 0)),
        ("synthetic:copy:::9223372036854775807", SyntheticUri("copy", 256, 10**9, 2**63 - 1)),
    ],
)
def test_parts_and_their_defaults(uri: str, meant: SyntheticUri) -> None:
    found = parse_synthetic(uri)
    assert found == meant
    assert found.law.name == meant.kind
    assert parse_synthetic(str(found)) == found, "the name says it in full"


def test_the_name_is_short_where_that_is_exact() -> None:
    assert str(parse_synthetic("synthetic:markov:64:100_000_000")) == "synthetic:markov:64:100M:0"
    assert str(parse_synthetic("synthetic:markov:64:123456789:3")) == "synthetic:markov:64:123456789:3"
    assert str(parse_synthetic("synthetic:markov:64:2_500_000")) == "synthetic:markov:64:2500K:0"
    assert str(parse_synthetic("synthetic:markov:64:338025")) == "synthetic:markov:64:338025:0"


def test_the_vocabulary_of_the_tokenizer_is_the_default_and_the_most(golden: Golden) -> None:
    assert parse_synthetic("synthetic:uniform", 50_257).vocab_size == 50_257
    assert parse_synthetic("synthetic:uniform:64", 257).vocab_size == 64
    with golden.refused("synthetic-vocabulary-too-large"):
        parse_synthetic("synthetic:uniform:300:5M", 257)


@pytest.mark.parametrize(
    ("uri", "code"),
    [
        ("synthetic:", "synthetic-kind-unknown"),
        ("synthetic:markow:64", "synthetic-kind-unknown"),
        ("synthetic:zipf:1", "synthetic-number-outside"),
        ("synthetic:zipf:2M", "synthetic-number-outside"),
        ("synthetic:zipf:many", "synthetic-uri-invalid"),
        ("synthetic:zipf:64:1", "synthetic-number-outside"),
        ("synthetic:zipf:64:1.5", "synthetic-uri-invalid"),
        ("synthetic:zipf:64:999T", "synthetic-number-outside"),
        ("synthetic:zipf:64:1M:-1", "synthetic-uri-invalid"),
        ("synthetic:zipf:64:1M:0:3", "synthetic-uri-invalid"),
        ("synthetic", "synthetic-uri-invalid"),
    ],
)
def test_what_is_refused(uri: str, code: str, golden: Golden) -> None:
    with golden.refused(code):
        parse_synthetic(uri)


def test_every_kind_is_named_as_it_is_looked_up() -> None:
    assert {name: law.name for name, law in KINDS.items()} == {name: name for name in KINDS}
