"""The plugin as a process: its port, its answers on the wire, its end."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from emulator.provider import schema
from emulator.provider.wire import to_dict, to_struct

BIN = Path(__file__).parents[3] / "emulator" / "bin"
URN = "urn:pulumi:local::project::aws:kms/key:Key::x"
Plugin = subprocess.Popen[str]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Plugin]]:
    """Starts plugins in a folder that isn't the checkout; kills what a test left."""
    started: list[Plugin] = []

    def make(package: str = "aws", *before: str) -> Plugin:
        environment = {**os.environ, "PULUMI_PYTHON_CMD": sys.executable, "TRAINWRIGHT_HOME": str(tmp_path)}
        command = [*before, str(BIN / f"pulumi-resource-{package}"), "127.0.0.1:1"]
        plugin = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
        started.append(plugin)
        return plugin

    yield make
    for plugin in started:
        plugin.kill()
        plugin.wait()
        assert plugin.stdout
        plugin.stdout.close()


def dial(plugin: Plugin) -> Any:
    assert plugin.stdout
    return provider_pb2_grpc.ResourceProviderStub(grpc.insecure_channel(f"127.0.0.1:{int(plugin.stdout.readline())}"))


def test_a_plugin_answers_and_ends_at_once_when_cancelled(start: Callable[..., Plugin]) -> None:
    plugin = start()
    stub = dial(plugin)
    assert stub.GetPluginInfo(Empty()).version == schema.sdk_version("aws")
    config = stub.CheckConfig(provider_pb2.CheckRequest(news=to_struct({"region": "us-west-2"})))
    assert not config.failures
    configured = stub.Configure(provider_pb2.ConfigureRequest(args=config.inputs))
    assert configured.supportsPreview
    assert not configured.acceptSecrets, "the engine must strip secrets and mark them again itself"
    checked = stub.Check(provider_pb2.CheckRequest(urn=URN, news=to_struct({"descripton": "x"})))
    assert [failure.reason for failure in checked.failures] == [
        "there is no property 'descripton'; did you mean description?"
    ]
    old, new = to_struct({"description": "a", "multiRegion": False}), to_struct({"multiRegion": True})
    diff = stub.Diff(provider_pb2.DiffRequest(urn=URN, id="k", old_inputs=old, news=new))
    assert diff.changes == provider_pb2.DiffResponse.DIFF_SOME
    assert list(diff.replaces) == ["multiRegion"]
    assert {path: change.kind for path, change in diff.detailedDiff.items()} == {
        "description": provider_pb2.PropertyDiff.DELETE,
        "multiRegion": provider_pb2.PropertyDiff.UPDATE_REPLACE,
    }
    request = provider_pb2.CreateRequest(urn=URN, properties=Struct(), preview=True)
    assert to_dict(stub.Create(request).properties)["region"] == "us-west-2"
    with pytest.raises(grpc.RpcError) as caught:
        stub.Create(provider_pb2.CreateRequest(urn=URN, properties=Struct()))
    assert caught.value.details() == (
        'the embedded cloud is not running: run `eval "$(trainwright env)"` (or `make up`)'
    )
    with pytest.raises(grpc.RpcError, match="the stand-in failed at Create of urn:x: IndexError: ") as caught:
        stub.Create(provider_pb2.CreateRequest(urn="urn:x", properties=Struct()))
    assert "\n" not in caught.value.details()
    stub.Cancel(Empty())
    assert plugin.wait(timeout=30) == 0


def test_an_interrupt_ends_it_at_once(start: Callable[..., Plugin]) -> None:
    plugin = start("alicloud")
    dial(plugin)
    plugin.send_signal(signal.SIGINT)
    assert plugin.wait(timeout=30) == 0


def test_it_ends_with_its_parent(start: Callable[..., Plugin]) -> None:
    parent = start("aws", "sh", "-c", '"$0" "$@" & echo $!; wait')
    assert parent.stdout
    plugin = int(parent.stdout.readline())
    assert int(parent.stdout.readline()) > 0
    parent.kill()
    parent.wait()
    end = time.monotonic() + 5
    while Path(f"/proc/{plugin}").exists() and "Z" not in Path(f"/proc/{plugin}/stat").read_text().split()[2]:
        assert time.monotonic() < end, "the plugin outlives its parent"
        time.sleep(0.05)
