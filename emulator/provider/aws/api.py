"""Calls to the embedded cloud's AWS API, with properties fitted to an operation by the API's own description of it."""

import threading
from collections.abc import Callable, Mapping
from typing import Any, cast

from emulator.provider.wire import Props

_GONE = ("NotFound", "NoSuch", "NonExistent", "Unknown", "404")


class ApiError(Exception):
    """The cloud refused or failed an operation; one line: operation, code, message."""

    def __init__(self, operation: str, code: str, message: str):
        super().__init__(f"{operation}: {code}: {' '.join(message.split())}")
        self.code = code
        self.gone = any(mark in code for mark in _GONE)


class Api:
    """One region of the embedded cloud. `endpoint` None lets boto3 find its own (tests that mock it).

    `place` is the region in the words of a cloud whose regions the server doesn't have.
    """

    def __init__(self, endpoint: str | None, region: str, place: str = ""):
        self.endpoint = endpoint
        self.region = region
        self.place = place or region
        self._clients: dict[str, Any] = {}
        self._lock = threading.Lock()

    def client(self, service: str) -> Any:
        """The boto3 client of a service; loaded on first use, shared by threads."""
        import boto3  # noqa: PLC0415 - previews start faster without it
        from botocore.config import Config  # noqa: PLC0415

        with self._lock:
            if service not in self._clients:
                self._clients[service] = cast(Any, boto3.Session(region_name=self.region)).client(
                    service,
                    aws_access_key_id="test",
                    aws_secret_access_key="test",  # noqa: S106 - the embedded cloud takes any
                    endpoint_url=self.endpoint,
                    config=Config(
                        connect_timeout=5,
                        read_timeout=60,
                        retries={"total_max_attempts": 2},
                        s3={"addressing_style": "path"},
                    ),
                )
            return self._clients[service]

    def call(self, service: str, operation: str, **params: Any) -> Any:
        """The operation's answer. Raises ApiError."""
        return self._answer(operation, lambda: getattr(self.client(service), operation)(**params))

    def pages(self, service: str, operation: str, **params: Any) -> list[Any]:
        """All pages of a listing operation's answer. Raises ApiError."""
        paginator = self.client(service).get_paginator(operation)
        return list(self._answer(operation, lambda: list(paginator.paginate(**params))))

    def _answer(self, operation: str, ask: Callable[[], Any]) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            return ask()
        except ClientError as error:
            told = error.response.get("Error", {})
            raise ApiError(error.operation_name, told.get("Code", "?"), told.get("Message", "")) from error
        except BotoCoreError as error:
            raise ApiError(operation, type(error).__name__, str(error)) from error

    def send(
        self,
        service: str,
        operation: str,
        props: Mapping[str, Any],
        names: Mapping[str, str] | None = None,
        **fixed: Any,
    ) -> Any:
        """The answer of an operation called with resource properties: their names and types fitted to its shape.

        `names` gives the API's name of a property, or of a member by its path (`launchTemplate.id`), where it
        isn't the same word. Raises ApiError, also for a property that the operation has no place for: nothing
        given is dropped in silence.
        """
        client = self.client(service)
        model = client.meta.service_model.operation_model(client.meta.method_to_api_mapping[operation])
        return self.call(service, operation, **fit(model.input_shape, props, names or {}), **fixed)


def fit(shape: Any, value: Any, names: Mapping[str, str], path: str = "") -> Any:  # noqa: PLR0912 - one case a shape
    """A property's value in the form that a botocore shape asks for."""
    match shape.type_name:
        case "structure" if isinstance(value, str):
            text = next(name for name, member in shape.members.items() if member.type_name == "string")
            return {text: value}
        case "structure":
            members = {name.lower(): name for name in shape.members}
            fitted: Props = {}
            for key, item in value.items():
                if item is None or item == "":
                    continue
                member = members.get(names.get(path + key, names.get(key, key)).lower())
                if member is None:
                    raise ApiError(shape.name, "UnsupportedProperty", f"'{path}{key}' has no place in the API")
                fitted[member] = fit(shape.members[member], item, names, f"{path}{key}.")
            return fitted
        case "list":
            if isinstance(value, dict) and {"Key", "Value"} <= shape.member.members.keys():
                return tag_list(value)
            items = value if isinstance(value, list) else [value]
            return [fit(shape.member, item, names, path) for item in items]
        case "map":
            return {key: str(item) for key, item in value.items()}
        case "boolean":
            return value == "true" if isinstance(value, str) else value
        case "integer" | "long":
            return int(value)
        case "float" | "double":
            return float(value)
        case "string":
            return str(value).lower() if isinstance(value, bool) else str(value)
        case _:
            return value


def tag_list(tags: Mapping[str, str]) -> list[dict[str, str]]:
    """Tags in the form of most AWS APIs."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tag_map(tags: list[Mapping[str, str]] | None) -> dict[str, str]:
    """Tags as properties, without those that AWS itself sets."""
    return {tag["Key"]: tag["Value"] for tag in tags or [] if not tag["Key"].startswith("aws:")}
