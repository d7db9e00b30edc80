import pytest

from pyruntime.delivery.origins import origin_of, resolve
from pyruntime.errors import DeliveryError

PAGE = "http://127.0.0.1:8000/app/?manifest=x#top"
HERE = {"http://127.0.0.1:8000"}


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://Models.Example.org/x?y#z", "https://models.example.org"),
        ("https://models.example.org:443/", "https://models.example.org"),
        ("http://models.example.org:80", "http://models.example.org"),
        ("http://models.example.org:443/", "http://models.example.org:443"),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        ("https://models.example.org?a=b", "https://models.example.org"),
        ("https://models.example.org/a?b=c\\d#e\\f", "https://models.example.org"),
    ],
)
def test_an_origin_is_scheme_host_and_port(url, origin):
    assert origin_of(url) == origin


@pytest.mark.parametrize(
    "url",
    [
        "",
        "models.example.org/x",
        "javascript:alert(1)",
        "file:///etc/passwd",
        "blob:https://models.example.org/1",
        "ftp://models.example.org/x",
        "https://user@models.example.org/",
        "https://user:pass@models.example.org/",
        "https://models.example.org\\@evil.example/",
        "https://models.example.org/a\\b",
        "https://models.example.org/a\tb",
        "https://models.example.org/\n",
        "https:///x",
        "https://mod els/x",
        "https://models.example.org:x/",
    ],
)
def test_what_is_not_a_plain_web_address_has_no_origin(url):
    with pytest.raises(DeliveryError, match="cannot be used"):
        origin_of(url)


@pytest.mark.parametrize(
    ("reference", "url"),
    [
        ("seed/default.json", "http://127.0.0.1:8000/app/seed/default.json"),
        ("../x.gguf", "http://127.0.0.1:8000/x.gguf"),
        ("/x.gguf", "http://127.0.0.1:8000/x.gguf"),
        ("x.gguf#part", "http://127.0.0.1:8000/app/x.gguf"),
        ("http://127.0.0.1:8000/y", "http://127.0.0.1:8000/y"),
    ],
)
def test_references_are_resolved_against_the_base(reference, url):
    assert resolve(reference, PAGE, HERE) == url


@pytest.mark.parametrize(
    "reference",
    [
        "https://127.0.0.1:8000/x",
        "http://127.0.0.1/x",
        "//evil.example/x",
        "http://127.0.0.1:8000.evil.example/x",
        "data:,x",
    ],
)
def test_addresses_elsewhere_are_refused(reference):
    with pytest.raises(DeliveryError):
        resolve(reference, PAGE, HERE)


def test_the_refusal_names_the_origin_and_what_is_allowed():
    with pytest.raises(DeliveryError) as caught:
        resolve("https://evil.example/x", PAGE, HERE)
    assert "'https://evil.example', which is not an allowed origin (allowed: http://127.0.0.1:8000)" in str(
        caught.value
    )
