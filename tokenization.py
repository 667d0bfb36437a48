"""Turns text into WordPieces and WordPiece ids, as the released BERT does.

Text is cleaned, split into words ("basic tokens") at whitespace, punctuation
and CJK characters, lower-cased and stripped of accents for uncased models, and
each word is cut greedily into the longest pieces that the vocabulary has.
Source of the algorithm: Wu et al. 2016, section 4.1; Devlin et al. 2019,
section 3; the rules for characters are those of the released code.

Everything is derived from `unicodedata` of the running Python: a character
that a newer Unicode version assigns is treated by its category there.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby
from typing import Any, NamedTuple, TypeVar

import file_io

_K = TypeVar("_K")
_V = TypeVar("_V")

_UNK = "[UNK]"

# Bounds of a tokenizer's caches; FullTokenizer says what they cost. Longer
# texts are rare among words, and kept they would let sentences without
# spaces fill the memory.
_MAX_CACHED_CHUNKS = 2**18
_MAX_CACHED_WORDS = 2**17
_MAX_CACHED_CHARS = 32

# Printable ASCII holds letters, digits, the space and punctuation: the words
# of such a text need no table.
_ASCII_WORD = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z ]")

# Ideographs stand for words of their own. As released: extensions F and G
# (from U+2CEB0) are not among them; kana and hangul are written with spaces
# or in longer words and are no ideographs.
_CJK_RANGES = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)

# do_lower_case of the released models that are checked, by directory name.
_RELEASED_DO_LOWER_CASE = {
    "uncased_L-12_H-768_A-12": True,
    "uncased_L-24_H-1024_A-16": True,
    "multilingual_L-12_H-768_A-12": True,
    "chinese_L-12_H-768_A-12": True,
    "cased_L-12_H-768_A-12": False,
    "cased_L-24_H-1024_A-16": False,
    "multi_cased_L-12_H-768_A-12": False,
}


def validate_case_matches_checkpoint(
    do_lower_case: bool, init_checkpoint: str | None
) -> None:
    """Checks `do_lower_case` against the name of a released model.

    A cased model fed with lower-cased text (or the reverse) runs without an
    error and scores badly. Only a checkpoint `MODEL/bert_model.ckpt` whose
    directory has the name of a released model can be judged.

    Raises:
      ValueError: the released model was trained on text of the other case.
    """
    match = re.search(
        r"([A-Za-z0-9_-]+)/bert_model.ckpt", init_checkpoint or ""
    )
    model = match.group(1) if match else ""
    wanted = _RELEASED_DO_LOWER_CASE.get(model, bool(do_lower_case))
    if wanted == bool(do_lower_case):
        return
    raise ValueError(
        f"got do_lower_case={not wanted} with {init_checkpoint}, wanted "
        f"{wanted}: {model} was trained on "
        f"{'lower-cased' if wanted else 'cased'} text. Pass --do_lower_case="
        f"{wanted}, or rename the directory if it does not hold that model."
    )


def convert_to_unicode(text: str | bytes) -> str:
    """Returns text as str; bytes are UTF-8, and bytes that are not are dropped.

    Raises:
      ValueError: `text` is neither str nor bytes.
    """
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(
        f"got {text!r} of type {type(text).__name__}, wanted text as str or "
        "bytes; convert it first"
    )


def printable_text(text: str | bytes) -> str:
    """Returns text as str, for `print` and logs."""
    return convert_to_unicode(text)


def load_vocab(vocab_file: str | os.PathLike[str]) -> dict[str, int]:
    r"""Returns {token: id} of a file with one token a line; ids count from 0.

    As released: tokens are stripped of whitespace (of any Unicode kind), every
    line counts, a blank line is the token "", and of a token that stands
    twice the last line is the id.

    Raises:
      FileNotFoundError: there is no such file.
      UnicodeDecodeError: (a ValueError) a line is not UTF-8.
    """
    lines = file_io.read_lines(vocab_file)
    return {line.strip(): index for index, line in enumerate(lines)}


def convert_by_vocab(vocab: Mapping[_K, _V], items: Iterable[_K]) -> list[_V]:
    """Returns `vocab[item]` of each item.

    Raises:
      ValueError: the vocabulary lacks an item.
    """
    items = list(items)
    try:
        return [vocab[item] for item in items]
    except KeyError as error:
        raise ValueError(
            f"got {error.args[0]!r}, wanted one of the {len(vocab)} entries of "
            "the vocabulary; use the vocabulary the text was tokenized with"
        ) from None


def convert_tokens_to_ids(
    vocab: Mapping[str, int], tokens: Iterable[str]
) -> list[int]:
    """Returns the id of each token; a ValueError names one without an id."""
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(
    inv_vocab: Mapping[int, str], ids: Iterable[int]
) -> list[str]:
    """Returns the token of each id; a ValueError names one without a token."""
    return convert_by_vocab(inv_vocab, ids)


def whitespace_tokenize(text: str) -> list[str]:
    """Returns the parts of the text between whitespace, none of them empty."""
    return text.split()


class FullTokenizer:
    """Splits text into WordPieces: basic tokens first, then their pieces.

    What stands between two spaces is tokenized once and remembered, as are the
    words in it (the same word with another comma or capital). Both caches are
    bounded, 2**18 and 2**17 entries, and start again empty when full; parts
    over 32 characters are not kept. English text fills the first after about
    30 MB; both full hold about 50 MB, and with text made to fill them (every
    part 32 Hangul syllables) 260 MB.

    The vocabulary is read when the tokenizer is made: changing `vocab` later
    has no effect on words already seen. Threads may share a tokenizer; pickling
    and copying leave the caches behind.

    Attributes:
      vocab_file: the path of the vocabulary.
      vocab: {token: id}, see `load_vocab`.
      inv_vocab: {id: token}.
      basic_tokenizer, wordpiece_tokenizer: the two halves.
    """

    def __init__(
        self,
        vocab_file: str | os.PathLike[str],
        do_lower_case: bool = True,
    ) -> None:
        """Reads the vocabulary.

        Args:
          vocab_file: one token a line, UTF-8.
          do_lower_case: lower-case the text and strip its accents, as the
            uncased (and the Chinese) models want.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: the file is empty or not UTF-8.
        """
        self.vocab_file = os.fspath(vocab_file)
        self.vocab = load_vocab(vocab_file)
        if not self.vocab:
            raise ValueError(
                f"{self.vocab_file}: got an empty vocabulary, wanted one token "
                "a line; pass the vocab.txt that belongs to the checkpoint"
            )
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.basic_tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocab)
        self._start_caches()

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the WordPieces of the text; unknown words are "[UNK]"."""
        return list(map(self._tokens.__getitem__, self._lookup(text)))

    def encode(self, text: str | bytes) -> list[int]:
        """Returns the ids of `tokenize(text)`, faster than by its tokens.

        Raises:
          ValueError: a word is unknown and the vocabulary has no "[UNK]".
        """
        ids = list(self._lookup(text))
        if self._unk_id < 0 and self._unk_id in ids:
            raise self._no_such_token(_UNK)
        return ids

    def tokenize_with_offsets(
        self, text: str | bytes
    ) -> tuple[list[str], list[tuple[int, int]]]:
        """Returns `tokenize(text)` and where each token stands in the text.

        `text[start:end]` is what became the token, whatever was deleted from
        it, lower-cased, decomposed or stripped of accents; "[UNK]" covers its
        whole word. A span takes in a stripped combining accent after its
        last letter, but not characters deleted before or after a word. Starts
        and ends never decrease. Pieces may share a span or a character of it:
        a Hangul syllable is decomposed, and may be cut in two.

        Returns:
          The tokens, and for each (start, end) in characters of the text
          as it was given (of the decoded text if it was given as bytes).
        """
        tokens: list[str] = []
        offsets: list[tuple[int, int]] = []
        text = convert_to_unicode(text)
        for word in _aligned_words(text, self.basic_tokenizer.do_lower_case):
            pieces = [self._tokens[index] for index in self._words[word.text]]
            tokens += pieces
            if len(pieces) == 1:
                offsets.append((word.starts[0], word.ends[-1]))
                continue
            position = 0
            for piece in pieces:
                start = word.starts[position]
                position += len(piece) - (2 if position else 0)  # "##"
                offsets.append((start, word.ends[position - 1]))
        return tokens, offsets

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Returns the id of each token.

        Raises:
          ValueError: the vocabulary lacks a token, such as "[CLS]".
        """
        try:
            return [self.vocab[token] for token in tokens]
        except KeyError as error:
            raise self._no_such_token(error.args[0]) from None

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        """Returns the token of each id; a ValueError names one without."""
        return convert_ids_to_tokens(self.inv_vocab, ids)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for name in ("_unk_id", "_tokens", "_words", "_chunks"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_caches()

    def _start_caches(self) -> None:
        # A vocabulary without [UNK] can still tokenize: its unknown words get
        # an id that no line has, and `encode` refuses to return it.
        self._unk_id = self.vocab.get(_UNK, -1)
        self._tokens = {**self.inv_vocab, self._unk_id: _UNK}
        max_chars = self.wordpiece_tokenizer.max_input_chars_per_word
        self._words = _WordIds(self.vocab, max_chars, self._unk_id)
        self._chunks = _ChunkIds(self.basic_tokenizer, self._words)

    def _lookup(self, text: str | bytes) -> Iterator[int]:
        """Returns the ids of the text, -1 for an [UNK] without id.

        Only the space is split at, because nothing crosses one: not a word,
        not the rule for a final sigma, not the order of combining marks.
        Another kind of whitespace may be a control character that is deleted
        and joins its neighbours ("a\\x0bb" is the word "ab").
        """
        if not isinstance(text, str):
            text = convert_to_unicode(text)
        return chain.from_iterable(
            map(self._chunks.__getitem__, text.split(" "))
        )

    def _no_such_token(self, token: str) -> ValueError:
        return ValueError(
            f"{self.vocab_file}: got no token {token!r} in the vocabulary of "
            f"{len(self.vocab)}, wanted an id for it; pass the vocab.txt "
            "that belongs to the checkpoint"
        )


class BasicTokenizer:
    """Splits text at whitespace, punctuation and CJK characters.

    Attributes:
      do_lower_case: whether text is lower-cased and its accents stripped.
    """

    def __init__(self, do_lower_case: bool = True) -> None:
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the basic tokens of the text, none of them empty."""
        if not isinstance(text, str):
            text = convert_to_unicode(text)
        if text.isascii() and text.isprintable():
            if self.do_lower_case:
                text = text.lower()
            return _ASCII_WORD.findall(text)
        text = text.translate(_CLEANED)
        if self.do_lower_case:
            text = unicodedata.normalize("NFD", text.lower())
            return text.translate(_STRIPPED_AND_SPLIT).split()
        return text.translate(_SPLIT).split()


class WordpieceTokenizer:
    """Cuts words into the longest pieces that the vocabulary has.

    Attributes:
      vocab: the tokens; pieces inside a word start with "##".
      unk_token: what a word becomes that cannot be cut so.
      max_input_chars_per_word: longer words become `unk_token`, in characters.
    """

    def __init__(
        self,
        vocab: Iterable[str],
        unk_token: str = _UNK,
        max_input_chars_per_word: int = 200,
    ) -> None:
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word
        self._first = {token: token for token in vocab}
        self._inner = _inner_pieces(self._first)
        self._longest = _longest(self._first)

    def tokenize(self, text: str | bytes) -> list[str]:
        """Returns the pieces of all words of a text.

        Example: "repainted door" -> ["rep", "##aint", "##ed", "door"].

        Args:
          text: words separated by whitespace, as `BasicTokenizer` returns
            them.
        """
        words = convert_to_unicode(text).split()
        return list(chain.from_iterable(map(self._split_word, words)))

    def _split_word(self, word: str) -> list[str]:
        if len(word) <= self.max_input_chars_per_word:
            pieces = _cut_word(word, self._first, self._inner, self._longest)
            if pieces is not None:
                return pieces
        return [self.unk_token]


def _longest(vocab: Iterable[str]) -> int:
    """Returns the length of the longest piece, in characters."""
    return max(map(len, vocab), default=0)


def _inner_pieces(vocab: Mapping[str, _V]) -> dict[str, _V]:
    """Returns the pieces inside a word under their text without "##"."""
    # So that no try in `_cut_word` has to put "##" before its text.
    return {
        token[2:]: value
        for token, value in vocab.items()
        if token.startswith("##")
    }


def _cut_word(
    word: str, first: Mapping[str, _V], inner: Mapping[str, _V], longest: int
) -> list[_V] | None:
    """Cuts a word from the left, the longest match first (Wu et al. 2016).

    Args:
      word: one word without whitespace.
      first: what to return for a piece at the beginning, by its text.
      inner: the same for a piece that follows, by its text without "##".
      longest: no piece has more characters.

    Returns:
      What the two mappings have for the pieces, or None where a part of the
      word is no piece.
    """
    pieces: list[_V] = []
    known = first
    start, length = 0, len(word)
    while start < length:
        end = min(length, start + longest)
        while end > start:
            piece = known.get(word[start:end])
            if piece is not None:
                break
            end -= 1
        else:
            return None
        pieces.append(piece)
        known = inner
        start = end
    return pieces


class _WordIds(dict):
    """{basic token: ids of its pieces}, filled as words are met."""

    __slots__ = ("_inner", "_longest", "_max_chars", "_unknown", "_vocab")

    def __init__(
        self, vocab: Mapping[str, int], max_chars: int, unk_id: int
    ) -> None:
        self._vocab = vocab
        self._inner = _inner_pieces(vocab)
        self._longest = _longest(vocab)
        self._max_chars = max_chars
        self._unknown = (unk_id,)
        # Most words of a text are in the vocabulary whole.
        self.update(
            (token, (index,))
            for token, index in vocab.items()
            if len(token) <= _MAX_CACHED_CHARS
        )

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self._unknown
        if len(word) <= self._max_chars:
            pieces = _cut_word(word, self._vocab, self._inner, self._longest)
            if pieces is not None:
                ids = tuple(pieces)
        if len(word) <= _MAX_CACHED_CHARS:
            if len(self) >= _MAX_CACHED_WORDS:
                self.clear()
            self[word] = ids
        return ids


class _ChunkIds(dict):
    """{text between two spaces: ids of its pieces}, filled as they are met."""

    __slots__ = ("_do_lower_case", "_tokenize", "_words")

    def __init__(
        self, basic_tokenizer: BasicTokenizer, words: _WordIds
    ) -> None:
        self._do_lower_case = basic_tokenizer.do_lower_case
        self._tokenize = basic_tokenizer.tokenize
        self._words = words

    def __missing__(self, chunk: str) -> tuple[int, ...]:
        words = self._words
        if len(chunk) > _MAX_CACHED_CHARS:
            ids_of_words = map(words.__getitem__, self._tokenize(chunk))
            return tuple(chain.from_iterable(ids_of_words))
        if chunk.isascii() and chunk.isprintable():
            # What BasicTokenizer does; here, a cold pass is 4% faster.
            text = chunk.lower() if self._do_lower_case else chunk
            found = (text,) if text.isalnum() else _ASCII_WORD.findall(text)
        else:
            found = self._tokenize(chunk)
        ids: tuple[int, ...] = ()
        for word in found:
            ids += words[word]
        if len(self) >= _MAX_CACHED_CHUNKS:
            self.clear()
        self[chunk] = ids
        return ids


class _CharTable(dict):
    """A table for `str.translate`, filled as characters are met.

    Each character becomes "" (deleted), " ", itself, or itself between two
    spaces. Bounded as Unicode is, but emptied before that, at 2**16 entries
    (about 10 MB).
    """

    __slots__ = ("_rule",)

    def __init__(self, rule: Callable[[str], str]) -> None:
        self._rule = rule

    def __missing__(self, code_point: int) -> str:
        value = self._rule(chr(code_point))
        if len(self) >= 2**16:
            self.clear()
        self[code_point] = value
        return value


def _is_whitespace(char: str) -> bool:
    return char in " \t\n\r" or unicodedata.category(char) == "Zs"


def _is_control(char: str) -> bool:
    # As released: of the other (C) categories, only control and format
    # characters; private-use and unassigned ones stay in their words.
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf")


def _is_punctuation(char: str) -> bool:
    # All ASCII characters that are neither letters, digits nor blank, though
    # Unicode calls some of them, like "$", symbols.
    if char.isascii():
        return char.isprintable() and not char.isalnum() and char != " "
    return unicodedata.category(char).startswith("P")


def _is_chinese_char(char: str) -> bool:
    code_point = ord(char)
    return any(low <= code_point <= high for low, high in _CJK_RANGES)


def _clean(char: str) -> str:
    if char in "\0\ufffd" or _is_control(char):
        return ""
    if _is_whitespace(char):
        return " "
    return f" {char} " if _is_chinese_char(char) else char


def _split(char: str) -> str:
    return f" {char} " if _is_punctuation(char) else char


def _strip_and_split(char: str) -> str:
    return "" if unicodedata.category(char) == "Mn" else _split(char)


_CLEANED = _CharTable(_clean)
_SPLIT = _CharTable(_split)
_STRIPPED_AND_SPLIT = _CharTable(_strip_and_split)


class _AlignedWord(NamedTuple):
    """A basic token; its character i comes from text[starts[i]:ends[i]]."""

    text: str
    starts: list[int] | range
    ends: list[int] | range


def _aligned_words(text: str, do_lower_case: bool) -> Iterator[_AlignedWord]:
    """Yields the basic tokens of the text with the places of their letters."""
    if text.isascii() and text.isprintable():
        for match in _ASCII_WORD.finditer(text):
            word, (start, end) = match.group(), match.span()
            yield _AlignedWord(
                word.lower() if do_lower_case else word,
                range(start, end),
                range(start + 1, end + 1),
            )
        return
    cleaned = (
        (char, index)
        for index, source in enumerate(text)
        for char in _CLEANED[ord(source)]
    )
    split = _STRIPPED_AND_SPLIT if do_lower_case else _SPLIT
    for is_space, group in groupby(cleaned, lambda pair: pair[0].isspace()):
        if is_space:
            continue
        chars = list(group)
        if do_lower_case:
            chars = _decomposed(_lowered(chars))
        yield from _punctuation_split(chars, split)


def _lowered(chars: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    """Lower-cases the characters of a word, each with its place in the text."""
    # The word is lower-cased as a whole: a sigma at its end has another form.
    # One character may become two ("İ"), here as alone.
    lowered = iter("".join(char for char, _ in chars).lower())
    for char, index in chars:
        for _ in char.lower():
            yield next(lowered), index


def _decomposed(chars: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Applies NFD to the characters of a word, each with its place."""
    pairs = [
        (part, index)
        for char, index in chars
        for part in unicodedata.normalize("NFD", char)
    ]
    result: list[tuple[str, int]] = []
    for is_mark, group in groupby(
        pairs, lambda pair: unicodedata.combining(pair[0]) > 0
    ):
        run = list(group)
        if is_mark:
            # NFD orders the marks on a letter. Places keep their own order, so
            # that offsets never decrease.
            marks = sorted((c for c, _ in run), key=unicodedata.combining)
            run = [(c, index) for c, (_, index) in zip(marks, run, strict=True)]
        result += run
    return result


def _punctuation_split(
    chars: Iterable[tuple[str, int]], split: _CharTable
) -> Iterator[_AlignedWord]:
    """Cuts a word at punctuation and, where `split` says so, drops accents."""
    words: list[tuple[list[str], list[int], list[int]]] = []
    is_open = False  # Whether the last word may get more letters.
    for char, index in chars:
        kept = split[ord(char)]
        if not kept:
            if words:
                words[-1][2][-1] = index + 1
            continue
        if not (is_open and kept == char):
            words.append(([], [], []))
        letters, starts, ends = words[-1]
        letters.append(char)
        starts.append(index)
        ends.append(index + 1)
        is_open = kept == char
    for letters, starts, ends in words:
        yield _AlignedWord("".join(letters), starts, ends)
