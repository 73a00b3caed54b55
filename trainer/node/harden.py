"""Instance metadata by token alone, asked for by the node itself where its group's template couldn't (facts: 0.7)."""

from __future__ import annotations

import time

from trainer.alicloud import Api
from trainer.metadata import EcsMetadata

LIMIT_S = 90.0
"""Within which the service is to refuse who shows no token; it takes seconds."""

RETRY_S = 1.0


class Open(Exception):
    """The service still answers without a token; the message says what to do."""


def metadata(service: EcsMetadata, api: Api, node: str) -> tuple[None, str]:
    """Have the node's metadata service take tokens alone, and see that it does. Raises `Open`, and `OSError`.

    ECS API reference, "ModifyInstanceMetadataOptions"; its limit of hops isn't open to the public. What is so already
    is left alone, so that a second boot asks for nothing.
    """
    if not service.answers_without_token():
        return None, "instance metadata takes tokens alone already"
    api.call("ecs", "ModifyInstanceMetadataOptions", InstanceId=node, HttpEndpoint="enabled", HttpTokens="required")
    deadline = time.monotonic() + LIMIT_S
    while service.answers_without_token():
        if time.monotonic() >= deadline:
            raise Open(
                f"instance metadata still answers without a token {LIMIT_S:g} s after it was told not to: let the "
                "node's role do ecs:ModifyInstanceMetadataOptions, or use an image and a template that enforce tokens"
            )
        time.sleep(RETRY_S)
    return None, "instance metadata takes tokens alone from now on"
