"""Which endpoint is asked, and what follows when it fails."""

from harness.routing._breaker import CircuitBreaker, CircuitKey, CircuitSnapshot, Slot
from harness.routing._candidate import (
    PricingBasis,
    PricingTerm,
    RouteCandidate,
    capability_set,
)
from harness.routing._circuit import (
    BREAKER_ROWS,
    BreakerRow,
    CircuitAction,
    CircuitEvent,
    CircuitState,
)
from harness.routing._classify import (
    ClassificationPorts,
    StatusCategorizer,
    TransportFailure,
    classify_attempt_error,
)
from harness.routing._executor import (
    MAX_DEFECT_RETRIES,
    AttemptFunction,
    Try,
    execute_route_plan,
)
from harness.routing._failures import (
    DISPOSITIONS,
    AttemptCursor,
    AttemptError,
    AttemptTarget,
    BreakerEffect,
    Disposition,
    failure_disposition,
)
from harness.routing._ids import CanonicalModelId, ProviderId
from harness.routing._outcomes import (
    AttemptFailure,
    AttemptRecord,
    AttemptSuccess,
    Fallback,
    Hedge,
    RouteFailed,
    RouteServed,
    TryOutcome,
)
from harness.routing._plan import (
    PlannedRoute,
    RoutePlan,
    RouteSkip,
    RouteStage,
    SkipCode,
    build_route_plan,
)
from harness.routing._policy import Only, Ordered, Policy
from harness.routing._retry_after import clamp_retry_after, retry_after_from_headers
from harness.routing._status import STATUS_ROWS, StatusRow, category_of_status
from harness.routing._transports import (
    Availability,
    Available,
    Declined,
    PlannerTransport,
    Requirements,
    Resolution,
    Unavailable,
    Unserved,
)

__all__ = [
    "BREAKER_ROWS",
    "DISPOSITIONS",
    "MAX_DEFECT_RETRIES",
    "STATUS_ROWS",
    "AttemptCursor",
    "AttemptError",
    "AttemptFailure",
    "AttemptFunction",
    "AttemptRecord",
    "AttemptSuccess",
    "AttemptTarget",
    "Availability",
    "Available",
    "BreakerEffect",
    "BreakerRow",
    "CanonicalModelId",
    "CircuitAction",
    "CircuitBreaker",
    "CircuitEvent",
    "CircuitKey",
    "CircuitSnapshot",
    "CircuitState",
    "ClassificationPorts",
    "Declined",
    "Disposition",
    "Fallback",
    "Hedge",
    "Only",
    "Ordered",
    "PlannedRoute",
    "PlannerTransport",
    "Policy",
    "PricingBasis",
    "PricingTerm",
    "ProviderId",
    "Requirements",
    "Resolution",
    "RouteCandidate",
    "RouteFailed",
    "RoutePlan",
    "RouteServed",
    "RouteSkip",
    "RouteStage",
    "SkipCode",
    "Slot",
    "StatusCategorizer",
    "StatusRow",
    "TransportFailure",
    "Try",
    "TryOutcome",
    "Unavailable",
    "Unserved",
    "build_route_plan",
    "capability_set",
    "category_of_status",
    "clamp_retry_after",
    "classify_attempt_error",
    "execute_route_plan",
    "failure_disposition",
    "retry_after_from_headers",
]
