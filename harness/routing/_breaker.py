"""The circuits of all endpoints, and the slots in which calls are made.

A circuit belongs to what shares its fate: a provider, the model as that provider calls it, and the
key. So the breaker's key has all of these, with the tenant's scope if the key is a tenant's, and
nothing else of a candidate.

A circuit is kept for as long as it is in trouble, or a call that it has let through is on its
way. The first makes memory follow the number of endpoints in trouble. The second is needed to
tell a late outcome: were the circuit forgotten under a call and made anew, its numbers would begin
again, and a failure from before would pass for one of now. So slots hold their circuits, and the
breaker itself holds only a weak reference to those that are well.
"""

from __future__ import annotations

from types import TracebackType
from typing import Final, Self
from weakref import WeakValueDictionary

import attrs

from harness._bounds import check_seconds
from harness._errors import RunUseError
from harness.routing._candidate import RouteCandidate
from harness.routing._circuit import Circuit, CircuitState, CircuitTerms
from harness.routing._failures import AttemptError, failure_disposition
from harness.routing._ids import ProviderId

__all__ = ["CircuitBreaker", "CircuitKey", "CircuitSnapshot", "Slot"]

_FAILURES: Final = 5
_COOLDOWN: Final = 30.0
_MAX_COOLDOWN: Final = 900.0


@attrs.frozen(kw_only=True)
class CircuitKey:
    """What shares one circuit. Holds no secret: the scope is opaque text."""

    provider_id: ProviderId
    provider_invocation_model: str
    credential_source: str
    credential_scope: str | None

    @classmethod
    def of(cls, candidate: RouteCandidate) -> CircuitKey:
        """Return the key of *candidate*."""
        return cls(
            provider_id=candidate.provider_id,
            provider_invocation_model=candidate.provider_invocation_model,
            credential_source=candidate.credential_source,
            credential_scope=candidate.credential_scope,
        )


@attrs.frozen(kw_only=True)
class CircuitSnapshot:
    """How one endpoint in trouble stands."""

    key: CircuitKey
    state: CircuitState
    failures: int
    """Since its last success."""
    retry_at: float | None
    """The end of the cooldown; None if none runs."""


@attrs.define(eq=False, init=False)
class CircuitBreaker:
    """Says whether an endpoint may be called, from what the calls before have reported.

    Synchronous throughout, and without a clock: *now* is the caller's, always of the same one, in
    seconds. So each method is one step between tasks, and a breaker can be shared by all routes of
    a service.

    Args:
        failures: so many counted failures in a row open a circuit.
        cooldown: for so many seconds.
        max_cooldown: the most seconds that a provider can make it, by asking for more.

    Raises:
        TypeError, ValueError: an argument is out of its bounds; the error names it.
    """

    _terms: CircuitTerms
    _troubled: dict[CircuitKey, Circuit]
    _known: WeakValueDictionary[CircuitKey, Circuit]

    def __init__(
        self,
        *,
        failures: int = _FAILURES,
        cooldown: float = _COOLDOWN,
        max_cooldown: float = _MAX_COOLDOWN,
    ) -> None:
        self._terms = CircuitTerms(failures=failures, cooldown=cooldown, max_cooldown=max_cooldown)
        self._troubled = {}
        self._known = WeakValueDictionary()

    def __repr__(self) -> str:
        return f"<CircuitBreaker, {len(self._troubled)} endpoints in trouble>"

    def admit(self, candidate: RouteCandidate | CircuitKey, *, now: float) -> Slot:
        """Ask, here and now, whether the endpoint may be called; returns the answer.

        If it may, the slot takes the outcome, and as a context manager releases itself if it got
        none. By hand, without ``with``, a slot has to be given an outcome or be released.
        """
        key, circuit = self._circuit(candidate)
        admitted = circuit.ask(check_seconds("now", now))
        self._remember(key, circuit)
        return Slot(
            breaker=self,
            key=key,
            circuit=circuit,
            admitted=admitted,
            probe=admitted and circuit.state(now) == "probing",
            retry_at=None if admitted else circuit.retry_at(now),
        )

    def record_success(self, candidate: RouteCandidate | CircuitKey, *, now: float) -> None:
        """Report a call that was answered and has no slot; it is taken to be of now."""
        self._slot_of_now(candidate).success(now=now)

    def record_failure(
        self, candidate: RouteCandidate | CircuitKey, error: AttemptError, *, now: float
    ) -> None:
        """Report a call that failed and has no slot; it is taken to be of now."""
        self._slot_of_now(candidate).failure(error, now=now)

    def release_probe(self, candidate: RouteCandidate | CircuitKey) -> None:
        """Free the probe of an endpoint, whoever has it. What its call says later is late."""
        self._slot_of_now(candidate).release()

    def snapshot(self, *, now: float) -> tuple[CircuitSnapshot, ...]:
        """Return the endpoints in trouble, those first that have been so for longest."""
        check_seconds("now", now)
        return tuple(
            CircuitSnapshot(
                key=key,
                state=circuit.state(now),
                failures=circuit.failures,
                retry_at=circuit.retry_at(now),
            )
            for key, circuit in self._troubled.items()
        )

    def _slot_of_now(self, candidate: RouteCandidate | CircuitKey) -> Slot:
        key, circuit = self._circuit(candidate)
        return Slot(
            breaker=self, key=key, circuit=circuit, admitted=True, probe=False, retry_at=None
        )

    def _circuit(self, candidate: RouteCandidate | CircuitKey) -> tuple[CircuitKey, Circuit]:
        given: object = candidate
        if isinstance(given, RouteCandidate):
            key = CircuitKey.of(given)
        elif isinstance(given, CircuitKey):
            key = given
        else:
            raise TypeError(f"the endpoint is {given!r}, expected a RouteCandidate or a CircuitKey")
        circuit = self._known.get(key)
        if circuit is None:
            circuit = self._known[key] = Circuit(self._terms)
        return key, circuit

    def _remember(self, key: CircuitKey, circuit: Circuit) -> None:
        """Keep what is in trouble, and nothing else, beyond the calls on their way."""
        if circuit.at_rest:
            self._troubled.pop(key, None)
        else:
            self._troubled[key] = circuit


@attrs.define(eq=False, kw_only=True, repr=False)
class Slot:
    """The breaker's answer for one call and, if the call is let through, its one outcome."""

    _breaker: CircuitBreaker
    _key: CircuitKey
    _circuit: Circuit
    admitted: bool
    """Whether the call may be made."""
    probe: bool
    """Whether it finds out, for everybody, if the endpoint is back."""
    retry_at: float | None
    """When to ask again. None if it was admitted, or if another call's probe is on its way."""
    _generation: int = attrs.field(init=False)
    _pending: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._generation = self._circuit.generation
        self._pending = self.admitted

    def __repr__(self) -> str:
        if not self.admitted:
            return f"<Slot refused until {self.retry_at}>"
        return f"<Slot {'pending' if self._pending else 'settled'}, probe={self.probe}>"

    def success(self, *, now: float) -> None:
        """Report that the call was answered.

        Raises:
            RunUseError: the call was not admitted, or its outcome is known already.
        """
        check_seconds("now", now)
        self._settle()
        self._circuit.succeed(now, generation=self._generation)
        self._breaker._remember(self._key, self._circuit)

    def failure(self, error: AttemptError, *, now: float) -> None:
        """Report that the call failed; what follows for the endpoint is read off the error.

        Raises:
            RunUseError: the call was not admitted, or its outcome is known already.
        """
        check_seconds("now", now)
        effect = failure_disposition(error).breaker
        self._settle()
        if effect == "none":
            self._circuit.release(generation=self._generation)
        else:
            self._circuit.fail(
                now,
                generation=self._generation,
                at_once=effect == "open",
                retry_after=error.retry_after,
            )
        self._breaker._remember(self._key, self._circuit)

    def release(self) -> None:
        """Say that the call ended and tells nothing. After an outcome nothing happens."""
        if self._pending:
            self._pending = False
            self._circuit.release(generation=self._generation)
            self._breaker._remember(self._key, self._circuit)

    def _settle(self) -> None:
        if not self._pending:
            seen = "has its outcome already" if self.admitted else "was refused"
            raise RunUseError(f"the call {seen}, expected one that is on its way")
        self._pending = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()
