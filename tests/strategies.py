"""Hypothesis strategies that tests of several packages share."""

from collections.abc import Sequence

from hypothesis import strategies as st

from harness._json import JSON, encode_text
from harness._messages import (
    CallMessage,
    Message,
    assistant_message,
    success_envelope,
    system_message,
    tool_message,
    user_message,
)
from harness.routing import (
    DISPOSITIONS,
    AttemptCursor,
    AttemptError,
    AttemptTarget,
    CanonicalModelId,
    PricingBasis,
    ProviderId,
    RouteCandidate,
    RoutePlan,
    RouteStage,
)

texts = st.text(st.characters(codec="utf-8"), max_size=12)
"""Texts that JSON can carry: no lone surrogate."""

words = texts.filter(str.strip)
"""Texts that are not blank."""

names = st.text("abcXYZ019_-", min_size=1, max_size=12)
"""What every provider takes as the name of a tool and as the id of a call."""

json_numbers = (
    st.integers(-(2**70), 2**70)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(2**60), 2**60).map(float)
)

json_scalars: st.SearchStrategy[JSON] = st.none() | st.booleans() | json_numbers | texts

json_values: st.SearchStrategy[JSON] = st.recursive(
    json_scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)

extra_keys = st.dictionaries(
    st.sampled_from(["annotations", "cache_control", "reasoning_content", "x-other"]),
    json_values,
    max_size=2,
)
"""Keys of a message that nobody here knows."""

not_json: st.SearchStrategy[object] = st.one_of(
    st.floats().filter(lambda number: number - number != 0),  # NaN and the infinities
    st.binary(max_size=3),
    st.sets(st.integers(), max_size=2),
    st.tuples(st.integers()),
    st.just("\ud800"),
    st.just({1: "a key that is no text"}),
    st.builds(object),
)

anything: st.SearchStrategy[object] = st.recursive(
    json_scalars | not_json,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)
"""JSON, nearly JSON, and what is nothing like it."""


@st.composite
def call_messages(draw: st.DrawFn, id: str | None = None) -> CallMessage:
    """A call with arguments that are an object."""
    arguments = draw(st.dictionaries(texts, json_scalars, max_size=2))
    return {
        "id": draw(names) if id is None else id,
        "type": "function",
        "function": {"name": draw(names), "arguments": encode_text(arguments)},
    }


@st.composite
def batches(draw: st.DrawFn, ids: Sequence[str]) -> list[Message]:
    """An assistant message that asks for calls of *ids*, and their results."""
    calls = [draw(call_messages(id)) for id in ids]
    results = [tool_message(id, success_envelope(draw(json_scalars))) for id in ids]
    return [assistant_message(draw(st.none() | words), calls), *results]


@st.composite
def settled_transcripts(draw: st.DrawFn) -> list[Message]:
    """A settled transcript that every provider takes as a request, with keys nobody knows."""
    count = draw(st.integers(0, 4))
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(system_message(draw(words)))
    messages.append(user_message(draw(words)))
    for turn in range(count):
        size = draw(st.integers(0, 3))
        if size:
            # The same ids in every turn, as of a provider that counts from nought.
            prefix = draw(st.sampled_from(["call", f"call_{turn}"]))
            messages += draw(batches([f"{prefix}-{each}" for each in range(size)]))
        else:
            messages.append(assistant_message(draw(words)))
            messages.append(user_message(draw(words)))
    extra = draw(extra_keys)
    return [{**extra, **message} for message in messages]  # type: ignore[typeddict-item]  # keys nobody knows


@st.composite
def broken_transcripts(draw: st.DrawFn) -> list[Message]:
    """A settled transcript after a few edits; it may still be settled."""
    messages = draw(settled_transcripts())
    for _ in range(draw(st.integers(1, 3))):
        if not messages:
            break
        place = draw(st.integers(0, len(messages) - 1))
        match draw(st.sampled_from(["drop", "repeat", "move", "talk"])):
            case "drop":
                del messages[place]
            case "repeat":
                messages.insert(draw(st.integers(0, len(messages))), messages[place])
            case "move":
                messages.insert(draw(st.integers(0, len(messages) - 1)), messages.pop(place))
            case _:
                messages.insert(place, user_message(draw(words)))
    return messages


_fields: dict[str, st.SearchStrategy[object]] = {
    "role": st.sampled_from(["system", "user", "assistant", "tool", "bystander"]) | anything,
    "content": anything,
    "refusal": anything,
    "tool_call_id": st.sampled_from(["a", "b", ""]) | anything,
    "tool_calls": st.lists(
        anything
        | st.fixed_dictionaries(
            {},
            optional={
                "id": st.sampled_from(["a", "b", ""]) | anything,
                "type": st.sampled_from(["function", "custom"]) | anything,
                "function": anything
                | st.fixed_dictionaries(
                    {},
                    optional={
                        "name": st.sampled_from(["f", ""]) | anything,
                        "arguments": st.sampled_from(["{}", "[", ""]) | anything,
                    },
                ),
            },
        ),
        max_size=3,
    )
    | anything,
}

malformed_messages: st.SearchStrategy[object] = (
    st.fixed_dictionaries({}, optional=_fields) | anything
)
"""What may stand where a message is expected."""


# -- routes ------------------------------------------------------------------------------------

provider_ids = st.sampled_from(["a", "b", "c", "eu-gateway.2"]).map(ProviderId)
"""Few, so that they meet."""

model_ids = st.sampled_from(["m/large", "m/small", "other/m:free"]).map(CanonicalModelId)

counts_of_tokens = st.none() | st.integers(1, 4)


@st.composite
def route_candidates(
    draw: st.DrawFn, provider: ProviderId | None = None, model: CanonicalModelId | None = None
) -> RouteCandidate:
    """An endpoint, of *provider* and for *model* if they are given."""
    invocation_model = draw(st.sampled_from(["large-1", "large-2"]))
    return RouteCandidate(
        provider_id=draw(provider_ids) if provider is None else provider,
        canonical_model_id=draw(model_ids) if model is None else model,
        provider_invocation_model=invocation_model,
        credential_source=draw(st.sampled_from(["platform", "tenant"])),
        credential_scope=draw(st.sampled_from([None, "t1", "t2"])),
        credit_eligible=draw(st.booleans()),
        capabilities=draw(st.sets(st.sampled_from(["chat_completions", "vision", "json"]))),
        max_completion_tokens=draw(counts_of_tokens),
        pricing_basis=PricingBasis(
            kind=draw(st.sampled_from(["provider_reported", "never heard of"])),
            terms=draw(st.dictionaries(st.sampled_from(["input", "output"]), st.integers())),
        ),
        binding_fingerprint=f"{invocation_model}#{draw(st.integers(0, 2))}",
    )


@st.composite
def route_plans(draw: st.DrawFn, *, stages: int = 3, candidates: int = 3) -> RoutePlan:
    """A plan of at most so many stages and candidates in each; both may be none.

    An endpoint may come twice, in a stage and in the plan.
    """
    return RoutePlan(
        stages=[
            RouteStage(
                canonical_model_id=model,
                candidates=draw(st.lists(route_candidates(model=model), max_size=candidates)),
            )
            for model in draw(st.lists(model_ids, max_size=stages))
        ]
    )


attempt_cursors = st.builds(
    AttemptCursor,
    stage=st.integers(0, 3),
    candidate=st.integers(0, 3),
    retry=st.integers(0, 3),
    ordinal=st.integers(0, 20),
)

waits = st.none() | st.floats(0, 10_000)
"""What a provider asks for in ``Retry-After``, in seconds."""


@st.composite
def attempt_errors(draw: st.DrawFn, target: AttemptTarget | None = None) -> AttemptError:
    """A failure of any kind, of *target* if it is given."""
    if target is None:
        target = AttemptTarget.of(
            draw(route_candidates()), cursor=draw(attempt_cursors), duration=draw(st.floats(0, 900))
        )
    row = draw(st.sampled_from(DISPOSITIONS))
    return AttemptError(
        kind=row.kind,
        category=row.category,
        status_code=draw(st.integers(200, 599)) if row.kind == "http" else None,
        retry_after=draw(waits),
        target=target,
        cause=draw(st.none() | st.builds(ConnectionError, texts)),
    )
