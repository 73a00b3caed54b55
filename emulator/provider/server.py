"""The stand-in on the wire: Pulumi's provider protocol over gRPC."""

# ruff: noqa: ARG002, N802 - names and signatures are the protocol's

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.empty_pb2 import Empty
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from emulator.provider import schema
from emulator.provider.aws.api import ApiError
from emulator.provider.diff import Change
from emulator.provider.invokes import UnknownFunction
from emulator.provider.stand_in import Refused, StandIn, decoded
from emulator.provider.wire import to_dict, to_struct

Method = TypeVar("Method", bound=Callable[..., Any])

_KINDS = {
    (Change.ADD, False): provider_pb2.PropertyDiff.ADD,
    (Change.ADD, True): provider_pb2.PropertyDiff.ADD_REPLACE,
    (Change.DELETE, False): provider_pb2.PropertyDiff.DELETE,
    (Change.DELETE, True): provider_pb2.PropertyDiff.DELETE_REPLACE,
    (Change.UPDATE, False): provider_pb2.PropertyDiff.UPDATE,
    (Change.UPDATE, True): provider_pb2.PropertyDiff.UPDATE_REPLACE,
}


def _answered(method: Method) -> Method:
    """Errors go to the engine as one line each."""

    @functools.wraps(method)
    def answered(self: Any, request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(self, request, context)
        except (ApiError, Refused, UnknownFunction, schema.UnknownType) as error:
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except Exception as error:  # a defect of ours: still one line to the user, not a traceback
            what = getattr(request, "urn", "") or getattr(request, "tok", "")
            reason = f"{type(error).__name__}: {error}"
            context.abort(grpc.StatusCode.INTERNAL, f"the stand-in failed at {method.__name__} of {what}: {reason}")

    return answered  # type: ignore[return-value]


class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """One engine's provider. Secrets, resource references and outputs come as plain values: the engine keeps track."""

    def __init__(self, stand_in: StandIn, stopped: threading.Event):
        self._stand_in = stand_in
        self._stopped = stopped

    def Handshake(self, request: Any, context: Any) -> Any:
        """Accepts none of the protocol's options."""
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        """The installed SDK's version."""
        return plugin_pb2.PluginInfo(version=schema.sdk_version(self._stand_in.package))

    def GetSchema(self, request: Any, context: Any) -> Any:
        """The least that is a schema: programs in Python carry their own."""
        package = self._stand_in.package
        return provider_pb2.GetSchemaResponse(
            schema=f'{{"name": "{package}", "version": "{schema.sdk_version(package)}"}}'
        )

    @_answered
    def CheckConfig(self, request: Any, context: Any) -> Any:
        """Names and region of the provider's configuration."""
        inputs, failures = self._stand_in.check_config(to_dict(request.news))
        return provider_pb2.CheckResponse(inputs=to_struct(inputs), failures=_failures(failures))

    def DiffConfig(self, request: Any, context: Any) -> Any:
        """No configuration makes resources anew; a changed region does so itself."""
        return provider_pb2.DiffResponse()

    def Configure(self, request: Any, context: Any) -> Any:
        """Takes the configuration."""
        self._stand_in.configure(decoded(to_dict(request.args)))
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    @_answered
    def Check(self, request: Any, context: Any) -> Any:
        """Inputs against the SDK's signatures."""
        olds, news = to_dict(request.olds), to_dict(request.news)
        inputs, failures = self._stand_in.check(request.urn, olds, news, request.randomSeed)
        return provider_pb2.CheckResponse(inputs=to_struct(inputs), failures=_failures(failures))

    @_answered
    def Diff(self, request: Any, context: Any) -> Any:
        """Old inputs against new ones."""
        found = self._stand_in.diff(request.urn, to_dict(request.old_inputs), to_dict(request.news))
        response = provider_pb2.DiffResponse
        return response(
            changes=response.DIFF_SOME if found.changes else response.DIFF_NONE,
            replaces=found.replaces,
            diffs=sorted({path.partition(".")[0].partition("[")[0] for path in found.changes}),
            deleteBeforeReplace=found.delete_first,
            hasDetailedDiff=True,
            detailedDiff={
                path: provider_pb2.PropertyDiff(
                    kind=_KINDS[change, path.partition(".")[0].partition("[")[0] in found.replaces], inputDiff=True
                )
                for path, change in found.changes.items()
            },
        )

    @_answered
    def Create(self, request: Any, context: Any) -> Any:
        """Makes a resource, or says what it would be."""
        id_, state = self._stand_in.create(request.urn, to_dict(request.properties), preview=request.preview)
        return provider_pb2.CreateResponse(id=id_, properties=to_struct(state))

    @_answered
    def Read(self, request: Any, context: Any) -> Any:
        """Looks a resource up."""
        inputs, state = to_dict(request.inputs), to_dict(request.properties)
        id_, inputs, state = self._stand_in.read(request.urn, request.id, inputs, state)
        return provider_pb2.ReadResponse(id=id_, inputs=to_struct(inputs), properties=to_struct(state))

    @_answered
    def Update(self, request: Any, context: Any) -> Any:
        """Changes a resource, or says what it would be."""
        state = self._stand_in.update(
            request.urn,
            request.id,
            to_dict(request.olds),
            to_dict(request.old_inputs),
            to_dict(request.news),
            preview=request.preview,
        )
        return provider_pb2.UpdateResponse(properties=to_struct(state))

    @_answered
    def Delete(self, request: Any, context: Any) -> Any:
        """Removes a resource."""
        self._stand_in.delete(request.urn, request.id, to_dict(request.properties))
        return Empty()

    @_answered
    def Invoke(self, request: Any, context: Any) -> Any:
        """Answers a function."""
        answer: dict[str, Any] = {"return": to_struct(self._stand_in.invoke(request.tok, to_dict(request.args)))}
        return provider_pb2.InvokeResponse(**answer)

    def Cancel(self, request: Any, context: Any) -> Any:
        """The engine is done: ends the process, which it otherwise waits for."""
        self._stopped.set()
        return Empty()


def register(server: grpc.Server, stand_in: StandIn, stopped: threading.Event) -> None:
    """Lets the server answer for the stand-in."""
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Servicer(stand_in, stopped), server)


def _failures(failures: list[schema.Failure]) -> list[Any]:
    """Reasons alone: they name the path, and the engine would print the value at it, secret or not."""
    return [provider_pb2.CheckFailure(reason=failure.reason) for failure in failures]
