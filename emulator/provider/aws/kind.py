"""What a handled resource type is: how its properties become API calls, and the API's answers its state."""

# ruff: noqa: ARG002 - all kinds answer the same calls

# ruff: noqa: ARG002 - all kinds answer the same calls

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from emulator.provider.aws.api import Api, ApiError, tag_map
from emulator.provider.schema import resource_type
from emulator.provider.wire import Props

OWN = frozenset({"region", "tags", "timeouts", "namePrefix", "bucketPrefix"})


class Kind:
    """One resource type; subclasses fill in the calls.

    `replace_on` are the properties whose change the real provider answers with a replacement, `settings` those that
    calls of their own set, after creation as in an update. With `replace_first` the old one goes before the new one
    comes, since the cloud has room for only one. `names` are the API's words where they differ from the provider's.
    """

    type: ClassVar[str]
    service: ClassVar[str]
    replace_on: ClassVar[frozenset[str]] = frozenset()
    settings: ClassVar[frozenset[str]] = frozenset()
    replace_first: ClassVar[bool] = False
    names: ClassVar[Mapping[str, str]] = {}

    def create(self, api: Api, props: Props) -> str:
        """Makes it; its id."""
        raise NotImplementedError

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Sets what `settings` and tags say, where it differs from `old`; called after create and to update."""

    def read(self, api: Api, id_: str, props: Props) -> Props:
        """Its state as the API tells it. Raises ApiError, `gone` if there is no such thing."""
        raise NotImplementedError

    def delete(self, api: Api, id_: str, props: Props) -> None:
        """Removes it."""
        raise NotImplementedError

    def moving(self, old: Props, new: Props) -> frozenset[str]:
        """Outputs that an update from old to new properties changes."""
        return frozenset()

    def sent(self, props: Props) -> Props:
        """The properties that go with the creating call."""
        return without(props, OWN | self.settings)

    def state(self, item: Mapping[str, Any], **more: Any) -> Props:
        """An API object as state: members that the SDK's type knows by name, scalars and lists of scalars, tags."""
        wire = {name.lower(): name for name in resource_type(self.type).state}
        back = {api.lower(): own for own, api in self.names.items()}
        state: Props = {}
        for key, value in item.items():
            name = back.get(key.lower()) or wire.get(key.lower())
            if name in wire.values() and name != "tags" and _is_plain(value):
                state[str(name)] = value
        if isinstance(item.get("Tags"), list):
            state |= tags_state(tag_map(item["Tags"]))
        return state | more


class Setting(Kind):
    """A resource that is a setting of another one and has that one's id: put, got and removed as a whole."""

    def apply(self, api: Api, id_: str, old: Props, new: Props) -> None:
        """Puts it again."""
        if old and old != new:
            self.create(api, new)


def tags_state(tags: Mapping[str, str]) -> Props:
    """Tags as state."""
    return {"tags": dict(tags), "tagsAll": dict(tags)}


def without(props: Mapping[str, Any], names: Iterable[str]) -> Props:
    """The properties without these, and without the engine's own (`__…`)."""
    left_out = frozenset(names)
    return {k: v for k, v in props.items() if k not in left_out and not k.startswith("__") and v is not None}


def only(props: Mapping[str, Any], names: Iterable[str]) -> Props:
    """Just these properties, as far as given."""
    return {name: props[name] for name in names if props.get(name) is not None}


def changed(old: Mapping[str, Any], new: Mapping[str, Any], names: Iterable[str]) -> bool:
    """Whether any of these properties differs."""
    return any(old.get(name) != new.get(name) for name in names)


def gone(noun: str, id_: str) -> ApiError:
    """The answer to a look-up that found nothing."""
    return ApiError("Describe", "NotFound", f"there is no {noun} {id_}")


def _is_plain(value: Any) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, str | bool | int | float) for item in items)
