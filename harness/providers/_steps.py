"""What the transport did for one request, and whether the request was lost to a stale connection.

A server may close a connection that it had offered to keep, at any moment: a load balancer whose
idle time is over, or a server that offers to keep every connection and keeps none. If the next
request is on its way just then, it is lost, though nothing is wrong with it, with the server or
with the network. HTTP lets a client send such a request again if it knows that doing it twice
changes nothing. A completion is of that kind: the worst that can come of it is one that is paid for
twice.

The request is sent again, once, if all of this holds:

* It went out on a **kept connection**. A fresh one that ends is a server that fails, and whether
  to try that again is for routing to decide.
* The connection **ended**. The transport's error does not say so by itself; what lies below does:

  ==========================  =======================  ===================================
  the transport's error       below it                 what it was
  ==========================  =======================  ===================================
  ``RemoteProtocolError``     nothing                  it ended in good order
  ``ReadError, WriteError``   ``BrokenResourceError``  it was reset
  ``RemoteProtocolError``     the parser's error       an answer came, if a bad one
  ``ReadError, WriteError``   ``ClosedResourceError``  it was closed on this side
  ``…Timeout``                ``TooSlowError``         a caller's transport gave up
  ==========================  =======================  ===================================

* Of a reply there was **no status** yet. (The transport does not tell half a head from nothing.)

**The second try refuses kept connections.** Where one is stale its neighbours often are, and the
transport knows no request that must not have one: it gives out the oldest that is idle. But it
reports each step before it takes it, and what raises in a step closes the connection. So a kept
one is refused with nothing written to it, and the pool has one less of them, until it has to
connect. Others give connections back in the meantime, and therefore the refusals are counted.

Only HTTP/1.1 is judged. HTTP/2 shares a connection among requests, so a refusal would end those of
others; and it tells by itself which requests it did not take.

Rejected: asking for ``Connection: close``, which costs a handshake every turn; and leaving it to
routing, which a single model has not got, and which would count it against a route that is well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol, cast

import attrs
import trio

__all__ = ["KeptConnectionError", "Steps"]

_NO_REPLY_YET: Final = frozenset(
    {
        "http11.send_request_headers.failed",
        "http11.send_request_body.failed",
        "http11.receive_response_headers.failed",
    }
)
_ENDS: Final = (type(None), trio.BrokenResourceError)
"""What lies below the transport's error if the connection ended."""


class KeptConnectionError(Exception):
    """A request was given a kept connection that it must not have; nothing was sent.

    Never leaves this package.
    """


class _Closable(Protocol):
    async def aclose(self) -> None: ...


@attrs.define(eq=False)
class Steps:
    """Listens to the steps of one request: its ``trace``.

    It also closes a connection that did not get as far as TLS. httpx2 closes the socket of a
    handshake that failed, but not of one that was cancelled: that one stays open until the garbage
    collector finds it. So the socket is closed in the very step that was cut.
    """

    _refusals: int = attrs.field(default=0, alias="refusals")
    """How many kept connections are refused."""
    _fresh: bool = attrs.field(init=False, default=False)
    _ended: bool = attrs.field(init=False, default=False)
    _socket: _Closable | None = attrs.field(init=False, default=None)

    @property
    def lost(self) -> bool:
        """Whether a kept connection ended under the request and brought no status."""
        return self._ended and not self._fresh

    async def __call__(self, step: str, details: Mapping[str, object]) -> None:
        """Note one step of the transport. A checkpoint only if it closes something.

        Raises:
            KeptConnectionError: this connection is refused.
        """
        protocol, _, rest = step.partition(".")
        if rest.startswith("connect_"):
            self._fresh = True
            if rest.endswith(".complete"):
                self._socket = cast(_Closable, details["return_value"])
        elif step == "http11.send_request_headers.started":
            self._refuse_kept()
        elif step in _NO_REPLY_YET:
            self._ended = isinstance(cast(BaseException, details["exception"]).__cause__, _ENDS)
        elif rest.endswith(".failed") and not protocol.startswith("http") and self._socket:
            await self._socket.aclose()  # once HTTP is spoken, the connection does so itself

    def _refuse_kept(self) -> None:
        if self._refusals and not self._fresh:
            self._refusals -= 1
            raise KeptConnectionError
