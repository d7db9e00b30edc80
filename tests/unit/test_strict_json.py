import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyruntime.errors import FormatError
from pyruntime.formats.strict_json import parse_json


def parse(data, *, max_bytes=1000, max_depth=4):
    return parse_json(data, name="x.json", max_bytes=max_bytes, max_depth=max_depth)


def test_json_is_parsed():
    assert parse('{"a": [1, -2.5, "ä\\n\\"[", true, null]}'.encode()) == {"a": [1, -2.5, 'ä\n"[', True, None]}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b" " * 1001, "x.json: JSON: 1001 bytes long (allowed: at most 1000 bytes)"),
        (b"[[[[[]]]]]", "x.json: JSON: nested 5 levels deep (allowed: at most 4)"),
        (b'{"a":{"a":[[{', "x.json: JSON: nested 5 levels deep"),
        (b'{"a": 1, "b": 2, "a": 1}', "x.json: 'a': the key occurs twice in one object"),
        (b"NaN", "x.json: JSON: not a JSON text (NaN is not JSON)"),
        (b"[-Infinity]", "x.json: JSON: not a JSON text (-Infinity is not JSON)"),
        (b'{"a": 1e999}', "x.json: JSON: not a JSON text (1e999 is larger than any number here)"),
        (b"\xef\xbb\xbf{}", "x.json: JSON: not a JSON text ("),
        (b"\xff", "x.json: JSON: not a JSON text ("),
        (b"", "x.json: JSON: not a JSON text ("),
    ],
)
def test_what_is_not_strict_json_is_refused_with_the_reason(data, problem):
    with pytest.raises(FormatError) as caught:
        parse(data)
    assert str(caught.value).startswith(problem)


def test_brackets_in_strings_are_not_depth():
    assert parse(b'["[[[[[[\\"[[[[[["]') == ['[[[[[["[[[[[[']


@pytest.mark.parametrize("text", [b'"' + b'\\"' * 500_000, b"[" * 1_000_000, b'["' * 500_000, b'"' * 1_000_000])
def test_a_megabyte_of_nonsense_is_refused_in_linear_time(text):
    # A quadratic scan of these would take minutes, and deep recursion would end the process.
    with pytest.raises(FormatError):
        parse(text, max_bytes=2_000_000)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_a_format_error(data):
    try:
        parse(data)
    except FormatError:
        return
    assert data.strip()
