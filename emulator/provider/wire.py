"""Properties as they travel between the engine and a provider: protobuf structs, and the marks inside them.

Values stay plain (dict, list, str, number, bool, None), with unknowns and assets in their wire form, so that what
a provider passes through comes back exactly as it came. The engine strips secrets before it calls a provider that
doesn't accept them, and marks them again on the way back.
Source of the marks: pulumi/runtime/rpc.py of the Python SDK.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf.struct_pb2 import Struct, Value

Props: TypeAlias = dict[str, Any]

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
SIGNATURE = "4dabf18193072939515e22adb298388d"
ASSET = "c44067f5952c0a294b673a41bacd8c17"
ARCHIVE = "0def7320c3a5731c473e5ecbe6d01bc7"


def to_dict(struct: Struct) -> Props:
    """The struct's properties; whole numbers come out as int."""
    return {name: _plain(value) for name, value in struct.fields.items()}


def to_struct(props: Mapping[str, Any]) -> Struct:
    """The properties as a struct."""
    struct = Struct()
    struct.update(props)
    return struct


def is_asset(value: object) -> bool:
    """Whether the value is an asset or an archive in its wire form."""
    return isinstance(value, dict) and value.get(SIGNATURE) in (ASSET, ARCHIVE)


def asset_bytes(asset: Mapping[str, Any]) -> bytes:
    """The content of a string or file asset; relative paths count from the program's folder, where plugins run.

    Raises ValueError for assets that lie elsewhere (a URL, an archive put together from parts).
    """
    if asset.get("text"):
        return str(asset["text"]).encode()
    if asset.get("path"):
        return Path(str(asset["path"])).read_bytes()
    if asset.get("uri") or asset.get("assets"):
        raise ValueError("the embedded cloud reads string and file assets only; give a file's path or a text")
    return b""


def _plain(value: Value) -> Any:
    match value.WhichOneof("kind"):
        case "struct_value":
            return to_dict(value.struct_value)
        case "list_value":
            return [_plain(item) for item in value.list_value.values]
        case "number_value":
            number = value.number_value
            return int(number) if number.is_integer() else number
        case "string_value":
            return value.string_value
        case "bool_value":
            return value.bool_value
        case _:
            return None
