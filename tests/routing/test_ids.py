"""Ids are checked where they come in."""

import copy
import pickle
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness._json import encode_text
from harness.routing import CanonicalModelId, ProviderId

VISIBLE = "a-._:Ü"


@pytest.mark.rule("R-ROUTE-01")
def test_a_text_becomes_an_id_that_reads_as_the_text() -> None:
    provider, model = ProviderId("primary"), CanonicalModelId("openai/gpt-example")
    assert (provider, model) == ("primary", "openai/gpt-example")
    assert f"{provider} {model!r}" == "primary 'openai/gpt-example'"
    assert encode_text([str(provider)]) == '["primary"]'
    for each in (provider, model):
        for again in (pickle.loads(pickle.dumps(each)), copy.deepcopy(each)):
            assert again == each
            assert type(again) is type(each)


@pytest.mark.rule("R-ROUTE-01", "R-ROUTE-02")
@pytest.mark.parametrize(
    "text", ["", "Open AI", "-x", ".x", "_x", "A", "ä", "a b", "a\n", "x" * 65, "a/b", "١"]
)
def test_what_is_no_provider_id_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^the provider id is .*, expected 1 to 64 of ") as caught:
        ProviderId(text)
    assert repr(text) in str(caught.value)


@pytest.mark.rule("R-ROUTE-02")
@pytest.mark.parametrize("text", ["a", "0", "x" * 64, "eu-gateway.2", "a_b", "a--"])
def test_a_provider_id_is_lower_case_letters_digits_and_marks(text: str) -> None:
    assert ProviderId(text) == text


@pytest.mark.rule("R-ROUTE-01", "R-ROUTE-02")
@pytest.mark.parametrize(
    "text",
    ["", "gpt", "/", "a/", "/a", "a//b", "a/b c", " a/b", "a/b\n", "a/\tb", "a/\xa0b", "a/\ud800",
     "a/" + "x" * 199],
)  # fmt: skip
def test_what_is_no_model_id_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"^the model id is .*, expected ") as caught:
        CanonicalModelId(text)
    assert repr(text) in str(caught.value)


@pytest.mark.rule("R-ROUTE-02")
@pytest.mark.parametrize("text", ["a/b", "meta/llama-3:free", "a/b/c", "Ü/λ", "a/" + "x" * 198])
def test_a_model_id_is_visible_parts_between_slashes(text: str) -> None:
    assert CanonicalModelId(text) == text


@pytest.mark.parametrize("kind", [ProviderId, CanonicalModelId])
@pytest.mark.parametrize("value", [None, 3, b"a/b", ["a/b"]])
def test_an_id_is_made_of_a_text(kind: type[ProviderId | CanonicalModelId], value: object) -> None:
    with pytest.raises(TypeError, match=r"^the (provider|model) id is .*, expected a text$"):
        kind(cast(str, value))


@given(st.lists(st.text(VISIBLE, min_size=1), min_size=2, max_size=4).map("/".join))
def test_visible_parts_are_a_model_id_if_they_are_short_enough(text: str) -> None:
    if len(text) <= 200:
        assert CanonicalModelId(text) == text
    else:
        with pytest.raises(ValueError, match="at most 200"):
            CanonicalModelId(text)


@given(st.text())
def test_any_text_is_an_id_or_refused(text: str) -> None:
    for kind in (ProviderId, CanonicalModelId):
        try:
            made = kind(text)
        except ValueError:
            continue
        assert made == text
        assert made.encode().decode() == text  # so it can be logged and stored
        assert not any(each.isspace() for each in text)
