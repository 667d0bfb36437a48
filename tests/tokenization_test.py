import copy
import gzip
import json
import pickle
import random
import string
import threading
import unicodedata
from pathlib import Path

import pytest

import tokenization

DATA = Path(__file__).parent / "testdata" / "tokenization"
MISC = json.loads((DATA / "misc.json").read_text(encoding="utf-8"))

SMALL_VOCAB = ["[UNK]", "[CLS]", "[SEP]", "want", "##want", "##ed", "wa", "un"]
SMALL_VOCAB += ["runn", "##ing", ",", "low", "##est", "cafe", "3", "."]

# Characters that the rules treat in ways of their own, many of them together:
# deleted, whitespace of several kinds, CJK in and out of the known ranges,
# marks (Mn, Mc, Me), letters whose lower case or decomposition is longer or
# depends on the place, punctuation that is a symbol by category, surrogates.
ODD = (
    "aaBbEe  ..,'$^`-\t\n\r\0\x0b\x0c\x1c\x1f\x7f\x85\xa0\xad\u200b\u200d\ufeff"
    "\ufffd\u2028\u2029\u3000\u1680\u202f\u0301\u0308\u0345\u0338\u0903\u302e"
    "\U0001d165\U0001d16d\u20dd\u0e31İıßẞΣσςΑÀàéÅK\u1e9b\u0323ǅŉﬁ가각힣한"
    "中国\u3400\uf900\U00020000\U0002ceaf\U0002ceb0\U00030000あカ~≠;\u037e"
    "«—\u2024\ue000\U000e0001\U0010ffff\ud800\udfff😀\u0130\u0307##"
)


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
    with gzip.open(DATA / "vocab_uncased.txt.gz") as reader:
        path.write_bytes(reader.read())
    return str(path)


@pytest.fixture(scope="module")
def tokenizers(vocab_file):
    """{do_lower_case: tokenizer}"""
    return {
        lower: tokenization.FullTokenizer(vocab_file, lower)
        for lower in (True, False)
    }


@pytest.fixture
def small_vocab_file(tmp_path):
    path = tmp_path / "small.txt"
    path.write_text("".join(f"{token}\n" for token in SMALL_VOCAB))
    return str(path)


def random_texts(seed, count, max_length=24):
    rng = random.Random(seed)
    return [
        "".join(rng.choices(ODD, k=rng.randint(0, max_length)))
        for _ in range(count)
    ]


# The rules once more, a character at a time and in the order of the release.


def plain_basic(text, lower):
    cleaned = []
    for char in text:
        category = unicodedata.category(char)
        if char in " \t\n\r" or category == "Zs":
            cleaned.append(" ")
        elif char not in "\0\ufffd" and category not in ("Cc", "Cf"):
            is_cjk = (
                0x4E00 <= ord(char) <= 0x9FFF
                or 0x3400 <= ord(char) <= 0x4DBF
                or 0x20000 <= ord(char) <= 0x2A6DF
                or 0x2A700 <= ord(char) <= 0x2B73F
                or 0x2B740 <= ord(char) <= 0x2B81F
                or 0x2B820 <= ord(char) <= 0x2CEAF
                or 0xF900 <= ord(char) <= 0xFAFF
                or 0x2F800 <= ord(char) <= 0x2FA1F
            )
            cleaned += [" ", char, " "] if is_cjk else [char]
    words = []
    for token in "".join(cleaned).split():
        if lower:
            decomposed = unicodedata.normalize("NFD", token.lower())
            token = "".join(
                c for c in decomposed if unicodedata.category(c) != "Mn"
            )
        word = ""
        for char in token:
            if char in string.punctuation or (
                unicodedata.category(char)[0] == "P"
            ):
                words += [word, char]
                word = ""
            else:
                word += char
        words.append(word)
    return " ".join(words).split()


def plain_pieces(words, vocab):
    pieces = []
    for word in words:
        found, start = [], 0
        while start < len(word) <= 200:
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in vocab:
                    found.append(piece)
                    start = end
                    break
            else:
                break
        pieces += found if start == len(word) else ["[UNK]"]
    return pieces


def assert_as_plain_rules(tokenizer, text):
    words = plain_basic(text, tokenizer.basic_tokenizer.do_lower_case)
    assert tokenizer.basic_tokenizer.tokenize(text) == words, ascii(text)
    pieces = plain_pieces(words, tokenizer.vocab)
    assert tokenizer.tokenize(text) == pieces, ascii(text)
    assert tokenizer.encode(text) == [tokenizer.vocab[p] for p in pieces]
    assert tokenizer.tokenize_with_offsets(text)[0] == pieces, ascii(text)


def test_gives_what_the_release_gave(tokenizers):
    with gzip.open(DATA / "recorded.jsonl.gz", "rt", encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    assert len(rows) > 1000
    for row in rows:
        tokenizer = tokenizers[row["do_lower_case"]]
        text = row["text"]
        assert tokenizer.basic_tokenizer.tokenize(text) == row["basic"]
        tokens = tokenizer.convert_ids_to_tokens(row["ids"])
        assert tokenizer.tokenize(text) == tokens
        assert tokenizer.encode(text) == row["ids"]
        assert tokenizer.tokenize_with_offsets(text)[0] == tokens


@pytest.mark.parametrize("lower", [True, False])
def test_odd_texts_follow_the_plain_rules(tokenizers, lower):
    for text in random_texts(seed=1, count=1500):
        assert_as_plain_rules(tokenizers[lower], text)


# Planes 0 and 1 whole when alone; a sample beyond, and with neighbours.
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("form", ["{}", "aΣ{}Bc ", "{}."])
def test_characters_follow_the_plain_rules(lower, form):
    tokenizer = tokenization.BasicTokenizer(do_lower_case=lower)
    step = 1 if form == "{}" else 7
    points = [*range(0, 0x20000, step), *range(0x20000, 0x110000, 997)]
    for start in range(0, len(points), 4096):
        block = points[start : start + 4096]
        text = "".join(form.format(chr(point)) for point in block)
        assert tokenizer.tokenize(text) == plain_basic(text, lower)


def test_capital_sigma_depends_on_its_neighbours():
    tokenizer = tokenization.BasicTokenizer()
    assert tokenizer.tokenize("ΟΔΟΣ ΣΑ ΑΣ.Α ΑΣ中") == (
        ["οδος", "σα", "ασ", ".", "α", "ας", "中"]
    )


@pytest.mark.parametrize("row", MISC["wordpiece"])
def test_wordpieces_are_as_recorded(row):
    vocab = "[UNK] [CLS] [SEP] want ##want ##ed wa un runn ##ing"
    vocab += " a ##a ab ##b # ## ###"
    tokenizer = tokenization.WordpieceTokenizer(
        vocab=dict.fromkeys(vocab.split()),
        max_input_chars_per_word=row["max"],
    )
    assert tokenizer.tokenize(row["text"]) == row["tokens"]


@pytest.mark.parametrize("row", MISC["load_vocab"], ids=lambda r: r["name"])
def test_vocabularies_load_as_recorded(tmp_path, row):
    path = tmp_path / "vocab.txt"
    path.write_bytes(bytes.fromhex(row["file_hex"]))
    if row["vocab"] == "raises UnicodeDecodeError":
        with pytest.raises(UnicodeDecodeError, match=r"vocab\.txt, line 2"):
            tokenization.load_vocab(path)
    else:
        items = tokenization.load_vocab(path).items()
        assert [list(item) for item in items] == row["vocab"]


@pytest.mark.parametrize("row", MISC["validate_case"])
def test_case_is_checked_against_released_names(row):
    arguments = row["do_lower_case"], row["init_checkpoint"]
    if row["result"] == "ok":
        tokenization.validate_case_matches_checkpoint(*arguments)
    else:
        message = rf"--do_lower_case={not row['do_lower_case']}"
        with pytest.raises(ValueError, match=message):
            tokenization.validate_case_matches_checkpoint(*arguments)


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "UNwanted,lowest",
            [(0, 2), (2, 6), (6, 8), (8, 9), (9, 12), (12, 15)],
        ),
        # Deleted inside a word, before it and after it.
        ("\u200bun\xadwant\0ed\u200b .", [(1, 3), (4, 8), (9, 11), (13, 14)]),
        # Accents: composed, and as a character of its own.
        ("CAFÉ cafe\u0301.", [(0, 4), (5, 10), (10, 11)]),
        # [UNK] covers its word.
        (" unxyz, want", [(1, 6), (6, 7), (8, 12)]),
        # Ideographs are words.
        ("want中want", [(0, 4), (4, 5), (5, 9)]),
        # "İ" becomes two characters, then one.
        ("İ want", [(0, 1), (2, 6)]),
        # One Hangul syllable is three characters, here one unknown word.
        ("각want", [(0, 5)]),
        ("un\u2028want\x85ed", [(0, 2), (3, 7), (8, 10)]),
        ("", []),
        (" \t\u0301 ", []),
    ],
)
def test_offsets_are_places_in_the_original_text(
    small_vocab_file, text, expected
):
    tokenizer = tokenization.FullTokenizer(small_vocab_file)
    tokens, offsets = tokenizer.tokenize_with_offsets(text)
    assert offsets == expected, tokens


def test_pieces_of_one_character_share_its_span(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\n\u1100\n##\u1161\u11a8\n", encoding="utf-8")
    tokenizer = tokenization.FullTokenizer(path)
    assert tokenizer.tokenize_with_offsets("x 각") == (
        ["[UNK]", "\u1100", "##\u1161\u11a8"],
        [(0, 1), (2, 3), (2, 3)],
    )


@pytest.mark.parametrize("lower", [True, False])
def test_text_at_the_offsets_is_the_token(tokenizers, lower):
    tokenizer = tokenizers[lower]
    reordered = ("\u302e", "\U0001d165", "\U0001d16d")
    num_compared = 0
    for text in random_texts(seed=2, count=1500):
        tokens, offsets = tokenizer.tokenize_with_offsets(text)
        assert len(tokens) == len(offsets)
        flat = [place for offset in offsets for place in offset]
        assert all(0 <= place <= len(text) for place in flat)
        assert all(start < end for start, end in offsets)
        for before, after in zip(offsets, offsets[1:], strict=False):
            assert before[0] <= after[0] and before[1] <= after[1], ascii(text)
        for token, (start, end) in zip(tokens, offsets, strict=True):
            source = text[start:end]
            if token == "[UNK]" or any(c in source for c in reordered):
                continue
            # A sigma that ends the slice need not end its word.
            words = "".join(plain_basic(source, lower)).replace("ς", "σ")
            piece = token.removeprefix("##") or token
            piece = token if words == token else piece.replace("ς", "σ")
            is_shared = sum(s < end and start < e for s, e in offsets) > 1
            assert piece in words if is_shared else piece == words, ascii(text)
            num_compared += 1
    assert num_compared > 1000


def test_bytes_are_decoded_without_what_is_not_utf8(tokenizers):
    tokenizer = tokenizers[True]
    data = "Café.".encode() + b"\xff"
    assert tokenizer.tokenize(data) == ["cafe", "."]
    assert tokenizer.encode(data) == tokenizer.encode("Café.")
    assert tokenizer.tokenize_with_offsets(data)[1] == [(0, 4), (4, 5)]
    assert tokenization.convert_to_unicode(data) == "Café."
    assert tokenization.printable_text(data) == "Café."
    with pytest.raises(ValueError, match="got 3 of type int"):
        tokenization.convert_to_unicode(3)


def test_ids_and_tokens_convert_both_ways(small_vocab_file):
    tokenizer = tokenization.FullTokenizer(small_vocab_file)
    tokens = ["[CLS]", "un", "##want", "##ed", "[SEP]"]
    ids = [1, 7, 4, 5, 2]
    assert tokenizer.convert_tokens_to_ids(tokens) == ids
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    vocab = tokenizer.vocab
    assert tokenization.convert_tokens_to_ids(vocab, tokens) == ids
    assert tokenization.convert_by_vocab(vocab, tokens) == ids
    inv_vocab = tokenizer.inv_vocab
    assert tokenization.convert_ids_to_tokens(inv_vocab, ids) == tokens


def test_unknown_tokens_and_ids_are_named(small_vocab_file):
    tokenizer = tokenization.FullTokenizer(small_vocab_file)
    with pytest.raises(ValueError, match=r"small\.txt.*'\[MASK\]'"):
        tokenizer.convert_tokens_to_ids(["un", "[MASK]"])
    with pytest.raises(ValueError, match="'lowest'"):
        tokenization.convert_tokens_to_ids(tokenizer.vocab, ["lowest"])
    with pytest.raises(ValueError, match="99"):
        tokenizer.convert_ids_to_tokens([99])


def test_an_empty_vocabulary_is_refused(tmp_path):
    path = tmp_path / "empty.txt"
    path.touch()
    with pytest.raises(ValueError, match=r"empty\.txt: got an empty vocab"):
        tokenization.FullTokenizer(path)


def test_a_vocabulary_without_unk_gives_tokens_but_no_ids(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\n")
    tokenizer = tokenization.FullTokenizer(path)
    assert tokenizer.tokenize("a c b") == ["a", "[UNK]", "b"]
    assert tokenizer.tokenize_with_offsets("c")[0] == ["[UNK]"]
    assert tokenizer.encode("a b") == [0, 1]
    with pytest.raises(ValueError, match=r"vocab\.txt.*'\[UNK\]'"):
        tokenizer.encode("a c b")


def test_duplicates_keep_the_last_id(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("[UNK]\na\nb\na\n")
    tokenizer = tokenization.FullTokenizer(path)
    assert tokenizer.encode("a b c") == [3, 2, 0]
    assert tokenizer.tokenize("a b c") == ["a", "b", "[UNK]"]


def test_full_caches_change_nothing(small_vocab_file, monkeypatch):
    monkeypatch.setattr(tokenization, "_MAX_CACHED_CHUNKS", 3)
    monkeypatch.setattr(tokenization, "_MAX_CACHED_WORDS", 3)
    tokenizer = tokenization.FullTokenizer(small_vocab_file)
    for text in random_texts(seed=3, count=300):
        assert_as_plain_rules(tokenizer, text)
        assert len(tokenizer._chunks) <= 3


def test_long_texts_are_not_cached(small_vocab_file):
    tokenizer = tokenization.FullTokenizer(small_vocab_file)
    num_words = len(tokenizer._words)
    for text in ("un" + "want" * 40, "un" + "want" * 50):
        assert_as_plain_rules(tokenizer, text)
    assert tokenizer.encode("\u4e00" * 33) == [0] * 33
    assert len(tokenizer._chunks) == 0
    assert len(tokenizer._words) == num_words + 1  # The ideograph.


@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_copies_tokenize_alike_and_leave_the_caches_behind(
    small_vocab_file, how
):
    tokenizer = tokenization.FullTokenizer(small_vocab_file, False)
    ids = tokenizer.encode("unwanted, running Runn")
    if how == "pickle":
        other = pickle.loads(pickle.dumps(tokenizer))
    else:
        other = copy.deepcopy(tokenizer)
    assert len(other._chunks) == 0
    assert other.encode("unwanted, running Runn") == ids
    assert other.vocab_file == tokenizer.vocab_file


def test_threads_may_share_a_tokenizer(small_vocab_file, monkeypatch):
    monkeypatch.setattr(tokenization, "_MAX_CACHED_CHUNKS", 5)
    monkeypatch.setattr(tokenization, "_MAX_CACHED_WORDS", 5)
    tokenizer = tokenization.FullTokenizer(small_vocab_file)
    texts = random_texts(seed=4, count=200)
    expected = [tokenizer.encode(text) for text in texts]
    results = {}

    def work(name):
        results[name] = [tokenizer.encode(text) for text in texts]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [results[name] for name in range(4)] == [expected] * 4
