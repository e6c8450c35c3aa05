"""A folder that `transformers` loads: config, weights and tokenizer of a trained model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiment_utils import atomic_files
from experiment_utils.errors import UserError
from experiment_utils.extras import check_installed
from experiment_utils.run_folder import read_file
from models.options.shape import resolve_shape
from training.checkpoint.checkpoints import same_mode
from training.export.families import Source, family_of

if TYPE_CHECKING:
    from data_loading import Tokenizer
    from training.run.load_run import SavedRun

FACTS = "highwater.json"
"""File in the folder with its run and step."""
COMPARED_TOKENS = 64
LARGEST_DIFFERENCE = 1e-3
"""Largest accepted difference of a logit between model and export in fp32: rounding of sums."""


def export(saved: SavedRun, output: Path) -> dict[str, Any]:
    """Write the folder, completely or not at all; read it back and compare its logits.

    Returns:
        `model_type`, `compared_tokens`, `largest_difference` of a logit, and the run and step.

    Raises:
        UserError: transformers is not installed, none of its models computes this one, or `output` exists.
        OSError: the folder cannot be written.
    """
    check_installed("transformers", "hf", "export to transformers")
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.utils import logging as their_logging

    their_logging.disable_progress_bar()  # a bar for each of two files, on what may be no terminal
    if output.exists():
        raise UserError(
            f"{output} exists already: remove it, or give another folder with --output",
            code="output-exists",
        )
    config, tokenizer = saved.config, _tokenizer(saved)
    source = Source(
        config.arch,
        resolve_shape(config.model, config.arch),
        saved.vocab_size,
        config.arch.max_positions or config.training.seq_len,
        None if tokenizer is None else tokenizer.eot_id,
    )
    family = family_of(config.arch)
    model = saved.model()
    theirs = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(family.name, **family.config(source)), dtype="float32"
    )
    _load(theirs, family.convert(source, dict(model.state_dict())))
    temporary = output.with_name(f".{output.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        theirs.save_pretrained(temporary)
        if tokenizer is not None:
            _save_tokenizer(tokenizer, temporary, source.max_positions)
        facts = _facts(saved, family.name)
        atomic_files.write_json(temporary / FACTS, facts)
        difference = _difference(model, temporary, source)
        for path in temporary.iterdir():
            same_mode(path, temporary / FACTS)
            atomic_files.fsync_file(path)
        atomic_files.fsync_folder(temporary)
        temporary.rename(output)  # fails if another process has made it meanwhile: nothing is replaced
        atomic_files.fsync_folder(output.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return {**facts, **difference}


def exported_from(folder: Path, saved: SavedRun) -> bool:
    """Whether a folder is an export of this step of this run."""
    facts = read_file(folder / FACTS).value
    return (facts.get("identity"), facts.get("step")) == (saved.facts.get("identity"), saved.step)


def _tokenizer(saved: SavedRun) -> Tokenizer | None:
    """Tokenizer of the run; None for ids without a text."""
    from data_loading.tokenizers.ids import IDS

    return None if saved.config.tokenizer.name == IDS else saved.tokenizer()


def _load(theirs: Any, weights: dict[str, Any]) -> None:
    missing, unexpected = theirs.load_state_dict(weights, strict=False)
    tied = set(getattr(theirs, "_tied_weights_keys", None) or ())
    lost = [
        name for name in missing if name not in tied and not name.endswith((".attn.bias", ".masked_bias"))
    ]
    if lost or unexpected:
        raise UserError(
            "this version of transformers names its weights differently: missing "
            f"{', '.join(lost) or 'none'}; unknown {', '.join(unexpected) or 'none'}"
        )
    theirs.tie_weights()


def _difference(model: Any, folder: Path, source: Source) -> dict[str, Any]:
    """Compare the logits of the model and of the folder loaded by transformers.

    Raises:
        UserError: they differ by more than rounding.
    """
    import torch
    from transformers import AutoModelForCausalLM

    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype="float32", attn_implementation="eager").eval()
    tokens = min(COMPARED_TOKENS, source.max_positions)
    draws = torch.Generator().manual_seed(0)
    ids = torch.randint(source.vocab_size, (2, tokens), generator=draws)
    with torch.no_grad():
        found = float((model(ids) - theirs(ids).logits).abs().max())
    if not found <= LARGEST_DIFFERENCE:
        raise UserError(
            f"the export would have other logits than the model, by up to {found:.3g}: this version of "
            "transformers computes something else. Nothing was written",
            code="other-logits",
        )
    return {"compared_tokens": ids.numel(), "largest_difference": found}


def _facts(saved: SavedRun, family: str) -> dict[str, Any]:
    return {
        "model_type": family,
        "run": saved.folder.name,
        "identity": saved.facts.get("identity"),
        "step": saved.step,
        "commit": saved.commit,
    }


def _save_tokenizer(tokenizer: Tokenizer, folder: Path, max_positions: int) -> None:
    """Write the tokenizer for transformers' AutoTokenizer: tokenizer.json, and the end-of-text token."""
    from data_loading.tokenizers.tokenizer import BytesTokenizer, JsonTokenizer

    if isinstance(tokenizer, BytesTokenizer):
        definition = _bytes_as_json(tokenizer)
    elif isinstance(tokenizer, JsonTokenizer):
        definition = tokenizer.definition
    else:
        return  # tiktoken's: transformers has no file for it
    (folder / "tokenizer.json").write_text(json.dumps(definition, ensure_ascii=False), encoding="utf-8")
    end = _token(definition, tokenizer.eot_id)
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_positions,
        "clean_up_tokenization_spaces": False,
        **({} if end is None else {"eos_token": end, "bos_token": end}),
    }
    atomic_files.write_json(folder / "tokenizer_config.json", settings)


def _token(definition: dict[str, Any], number: int | None) -> str | None:
    from data_loading.tokenizers.tokenizer import vocabulary

    return next((token for token, found in vocabulary(definition).items() if found == number), None)


def _bytes_as_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """The tokenizer of bytes as a BPE without merges: each byte is a token of its own."""
    from data_loading.tokenizers.tokenizer import END_OF_TEXT

    characters = _characters_of_bytes()
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    end = {"id": tokenizer.eot_id, "content": END_OF_TEXT, "special": True}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [end | flags],
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": None,
        "decoder": level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {
                **{character: byte for byte, character in enumerate(characters)},
                END_OF_TEXT: tokenizer.eot_id,
            },
            "merges": [],
        },
    }


def _characters_of_bytes() -> Sequence[str]:
    """Character for each byte in a byte-level vocabulary (GPT-2, bytes_to_unicode)."""
    printable = {*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    found, others = [], 0
    for byte in range(256):
        found.append(chr(byte if byte in printable else 0x100 + others))
        others += byte not in printable
    return found
