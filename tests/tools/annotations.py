"""Types that a tool's parameters may have, with values of them, made at random."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict

import attrs
import msgspec
from hypothesis import strategies as st

from harness._json import JSON

Sample = tuple[Any, st.SearchStrategy[JSON]]
"""An annotation, and JSON values that it accepts."""

NAMES = ("a", "b", "c", "d")

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=3)
integers = st.integers(-(2**62), 2**62)
floats = st.floats(allow_nan=False, allow_infinity=False)

any_json: st.SearchStrategy[JSON] = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | floats | texts,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*NAMES, "type", "zz"]), inner, max_size=3)
    ),
    max_leaves=8,
)

leaves: st.SearchStrategy[Sample] = st.sampled_from(
    [
        (int, integers),
        (str, texts),
        (bool, st.booleans()),
        (float, floats),
        (type(None), st.none()),
        (Literal["x", "y", 1], st.sampled_from(["x", "y", 1])),
        (Annotated[int, msgspec.Meta(ge=0, lt=10)], st.integers(0, 9)),
        (Annotated[str, msgspec.Meta(min_length=1, description="text")], texts.filter(bool)),
        (Any, any_json),
    ]
)


@st.composite
def _records(draw: st.DrawFn, inner: st.SearchStrategy[Sample]) -> Sample:
    """A class of one of the four kinds."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=3))
    samples = {name: draw(inner) for name in names}
    needed = {name: values for name, (_, values) in samples.items() if draw(st.booleans())}
    others = {name: values for name, (_, values) in samples.items() if name not in needed}
    kinds = [_struct, _tagged_struct, _attrs_class, _typed_dict]
    make: Callable[[dict[str, Any], set[str]], Any] = draw(st.sampled_from(kinds))
    cls = make({name: kind for name, (kind, _) in samples.items()}, set(needed))
    tag = {"type": st.just("Tagged")} if make is _tagged_struct else {}
    values: st.SearchStrategy[Any] = st.fixed_dictionaries({**needed, **tag}, optional=others)
    return cls, values


def _struct(fields: dict[str, Any], needed: set[str], **options: Any) -> Any:
    ordered = sorted(fields.items(), key=lambda each: each[0] not in needed)
    return msgspec.defstruct(
        "Tagged" if options else "Struct",
        [
            (name, kind) if name in needed else (name, kind, msgspec.field(default=None))
            for name, kind in ordered
        ],
        **options,
    )


def _tagged_struct(fields: dict[str, Any], needed: set[str]) -> Any:
    return _struct(fields, needed, tag=True)


def _attrs_class(fields: dict[str, Any], needed: set[str]) -> Any:
    made: dict[str, Any] = {
        name: attrs.field(type=kind) if name in needed else attrs.field(type=kind, default=None)
        for name, kind in fields.items()
    }
    return attrs.make_class("Attrs", made, kw_only=True)


def _typed_dict(fields: dict[str, Any], needed: set[str]) -> Any:
    make: Any = TypedDict  # its keys are drawn
    return make(
        "Typed",
        {
            name: Required[kind] if name in needed else NotRequired[kind]
            for name, kind in fields.items()
        },
    )


def _list(inner: Sample) -> Sample:
    annotation, values = inner
    made: Any = list
    return made[annotation], st.lists(values, max_size=3)


def _short_list(inner: Sample) -> Sample:
    annotation, values = _list(inner)
    return Annotated[annotation, msgspec.Meta(max_length=2)], values.filter(_is_short)


def _is_short(value: Any) -> bool:
    return len(value) <= 2


def _dict(inner: Sample) -> Sample:
    annotation, values = inner
    made: Any = dict
    return made[str, annotation], st.dictionaries(texts, values, max_size=3)


def _pair(inner: tuple[Sample, Sample]) -> Sample:
    (left, lefts), (right, rights) = inner
    made: Any = tuple
    return made[left, right], st.tuples(lefts, rights).map(list)


def _optional(inner: Sample) -> Sample:
    annotation, values = inner
    return Optional[annotation], values | st.none()  # noqa: UP045 - it may be any type


def _containers(inner: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    return st.one_of(
        inner.map(_list),
        inner.map(_short_list),
        inner.map(_dict),
        st.tuples(inner, inner).map(_pair),
        inner.map(_optional),
        _records(inner),
    )


samples: st.SearchStrategy[Sample] = st.recursive(leaves, _containers, max_leaves=5)
"""Types up to some depth."""
