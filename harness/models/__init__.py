"""Models made of models: routes over several providers, and answers in a form."""

from harness.models._output import Output
from harness.models._routed import Route, RoutedModel
from harness.models._stream import ForwardingStream
from harness.models._structured import MAX_OUTPUT_RETRIES, StructuredModel
from harness.models._transport import ModelTransport, Transport

__all__ = [
    "MAX_OUTPUT_RETRIES",
    "ForwardingStream",
    "ModelTransport",
    "Output",
    "Route",
    "RoutedModel",
    "StructuredModel",
    "Transport",
]
