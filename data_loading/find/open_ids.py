"""Token files of which only the ids are wanted, whichever tokenizer they were made with: tokenizer=ids."""

from __future__ import annotations

from collections.abc import Sequence

from conf import schema
from data_loading.find.locate import Place
from data_loading.find.verify_set import verify_text
from data_loading.pretokenizer.job import command_for
from data_loading.tokenizers.ids import IdsTokenizer
from data_loading.tokens.token_set import TokenSet, open_token_set
from data_loading.tokens.tokens import Tokens
from experiment_utils.errors import UserError


def open_ids_alone(places: Sequence[Place], dataset: schema.Dataset) -> list[TokenSet]:
    """The sets of these places, held against the texts beside them.

    Raises:
        UserError: there is only a text, or a set is broken.
    """
    sets = []
    for place in places:
        if not place.is_tokenized:
            raise UserError(
                f"tokenizer=ids makes no tokens of a text, and of {place.text or dataset.source} there are "
                "none yet. Take another tokenizer, such as tokenizer=bytes",
                code="ids-need-tokens",
            )
        found = open_token_set(place.tokens, version=place.version)
        verify_text(found, place, command_for(str(place.text), "NAME_OR_FOLDER"))
        sets.append(found)
    return sets


def ids_of(sets: Sequence[Tokens]) -> IdsTokenizer:
    """With the ids of all of them."""
    return IdsTokenizer(max(found.vocab_size for found in sets))
