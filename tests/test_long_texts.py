"""long_texts.py and the base64 of uploads.py: piece by piece they read what a library reads."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lumen_uring.control import long_texts, uploads
from lumen_uring.control.calls import CallError, asked_of
from lumen_uring.control.long_texts import LongText, loads
from lumen_uring.errors import ConfigError


@pytest.fixture(autouse=True, scope="module")
def small_pieces() -> Iterator[None]:
    """Every string of a test that is no key is long, and comes in pieces."""
    patched = pytest.MonkeyPatch()
    patched.setattr(long_texts, "LONG_BYTES", 12)
    patched.setattr(long_texts, "_PIECE_BYTES", 16)
    yield
    patched.undo()


def values(data: object, texts: dict[str, LongText]) -> object:
    """The document with all strings in their places; keys stay marks."""
    if isinstance(data, dict):
        keys = {key: texts[key].text() if key in texts else key for key in data}
        return {keys[key]: values(value, texts) for key, value in data.items()}
    if isinstance(data, list):
        return [values(value, texts) for value in data]
    if isinstance(data, str) and data in texts:
        whole = b"".join(texts[data].pieces()).decode("utf-8")
        assert whole == texts[data].text()
        return whole
    return data


# Characters that JSON escapes, and ASCII alone: a file's base64 has no other.
TEXTS = st.text(st.sampled_from('"\\/u0bn\n\x01aA+='), min_size=1, max_size=80)


DOCUMENTS = st.recursive(
    TEXTS | st.integers(-(2**40), 2**40),
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(DOCUMENTS)
def test_it_is_the_same_document(document: object) -> None:
    for text in (json.dumps(document), json.dumps(document, ensure_ascii=False)):
        body = text.replace("/", "\\/").encode()
        assert values(*loads(memoryview(body))) == orjson.loads(body) == document


@given(st.binary(max_size=60))
def test_what_is_no_json_is_none(junk: bytes) -> None:
    body = b'{"a": "' + junk
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError:
        with pytest.raises(orjson.JSONDecodeError):  # at once, or when the string is read
            values(*loads(memoryview(body)))


def test_much_around_long_strings_is_refused() -> None:
    body = b"[" + b"1," * long_texts.REST_BYTES_MAX + b"1]"
    with pytest.raises(orjson.JSONDecodeError, match="expected at most 16777216 bytes around"):
        loads(memoryview(body))


@given(st.binary(max_size=200), st.sampled_from([b"", b"\\/", b"\\u002B"]))
def test_base64_in_pieces(content: bytes, escape: bytes) -> None:
    text = base64.b64encode(content)
    if escape:
        text = text.replace(b"/", b"\\/").replace(b"+", b"\\u002B")
    body = b'{"parameters":{"config":"{}","file:1/m":"' + text + b'"}}'
    asked, files = asked_of(memoryview(body))
    assert asked == {}
    assert b"".join(uploads._decoded(files["file:1/m"])) == content


@pytest.mark.parametrize("cut", range(9))
def test_base64_is_cut_anywhere(cut: int) -> None:
    """Also within its padding."""

    class Cut(LongText):
        def __init__(self, text: bytes) -> None:
            self.text_bytes = text

        def pieces(self) -> Iterator[bytes]:
            yield from (self.text_bytes[:cut], self.text_bytes[cut:])

    for content in (b"abcd", b"abcde", b"abcdef"):
        assert b"".join(uploads._decoded(Cut(base64.b64encode(content)))) == content
    for wrong in (
        b"QUJDRA==QUJD",
        b"QUJDRA=",
        b"QUJDRA===",
        b"QUJDR===",
        b"QUJDRA",
        b"====",
        b"Q=JD",
    ):
        with pytest.raises(ValueError, match=r"found another|its end is missing|padding"):
            b"".join(uploads._decoded(Cut(wrong)))


@given(st.text(st.sampled_from("QUJD=+/ \n*"), max_size=60))
@example("DDDDDDDD====")
def test_what_is_no_base64_is_refused(text: str) -> None:
    try:
        whole: bytes | None = base64.b64decode(text, validate=True)
    except binascii.Error:
        whole = None
    body = json.dumps([text]).encode()
    data, texts = loads(memoryview(body))
    for given_text in (text, texts.get(data[0], text)):
        try:
            found: bytes | None = b"".join(uploads._decoded(given_text))
        except ValueError:
            found = None
        # Python lets more padding than is due pass.
        is_more = text.count("=") > -len(text.rstrip("=")) % 4
        assert found == whole or (found is None and is_more)


@given(st.data())
def test_places_of_weights_across_pieces(data: st.DataObject) -> None:
    """Wherever the pieces end, what is refused whole is refused, and what is not is not."""
    good, bad = b"\x6a\x11\n\x08location\x12\x05w.bin", b"\x6a\x11\n\x08location\x12\x05w/bin"
    fill = st.binary(max_size=300) | st.sampled_from([b"location" * 9, good * 3])
    content = data.draw(fill) + data.draw(st.sampled_from([good, bad])) + data.draw(fill)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))
    pieces = [content[a:b] for a, b in zip([0, *cuts], [*cuts, len(content)], strict=True)]

    def refused(parts: list[bytes]) -> bool:
        try:
            assert b"".join(uploads._checked("file:1/m", iter(parts))) == content
        except ConfigError:
            return True
        return False

    assert refused(pieces) == refused([content])
    assert refused([content]) >= (bad in content)


def test_a_configuration_that_is_long() -> None:
    body = json.dumps({"parameters": {"config": json.dumps({"name": "x" * 99})}}).encode()
    assert asked_of(memoryview(body)) == ({"name": "x" * 99}, {})
    with pytest.raises(CallError, match="expected a string"):
        asked_of(memoryview(b'{"parameters":{"config":"\\u12 is no escape, of so many bytes"}}'))
