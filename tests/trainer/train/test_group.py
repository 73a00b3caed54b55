"""How the ranks of a generation meet."""

import socket
import time
from threading import Thread

import pytest

from trainer.train import group
from trainer.train.errors import InvalidSetting
from trainer.train.setting import from_environment


class Met(Exception):
    """Instead of what torch would do once rank 0's store was reached."""


@pytest.fixture
def address(monkeypatch):
    """A loopback address at which nobody listens yet."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = probe.getsockname()
    monkeypatch.setenv("MASTER_ADDR", address[0])
    monkeypatch.setenv("MASTER_PORT", str(address[1]))
    return address


@pytest.fixture
def meeting(monkeypatch, tmp_path):
    """Meets as a rank; raises `Met` where torch's own client would be asked to connect."""

    def rendezvous(*_args, **_options):
        raise Met

    monkeypatch.setattr(group, "rendezvous", rendezvous)

    def meet(rank):
        places = {"RANK": str(rank), "WORLD_SIZE": "2"}
        with group.joined(from_environment(places, run="r", data=tmp_path, store=str(tmp_path))):
            pass

    return meet


def test_a_rank_that_comes_first_asks_torch_to_connect_only_once_rank_0_listens(address, meeting):
    """torch's client would sleep after each connection that is refused, longer each time."""
    listening = []

    def listen():
        time.sleep(0.2)
        with socket.create_server(address) as server:
            server.settimeout(30)
            listening.append(True)
            server.accept()[0].close()

    rank_0 = Thread(target=listen)
    rank_0.start()
    with pytest.raises(Met):
        meeting(1)
    assert listening
    rank_0.join(30)


def test_rank_0_that_is_to_listen_waits_for_nobody(address, meeting):
    with pytest.raises(Met):
        meeting(0)


def test_where_nobody_listens_torch_is_asked_in_the_end_and_says_so(address, meeting, monkeypatch):
    monkeypatch.setattr(group, "MEET_S", 0.1)
    with pytest.raises(Met):
        meeting(1)


def test_a_node_whose_gpus_are_gone_doesnt_train_on_its_cpus(tmp_path):
    """It would be billed as GPUs are, and its peers' backend would be another."""
    places = {"RANK": "0", "WORLD_SIZE": "2", "GPUS_PER_NODE": "8"}
    setting = from_environment(places, run="r", data=tmp_path, store=str(tmp_path))
    with pytest.raises(InvalidSetting, match=r"GPUS_PER_NODE: 8, but torch finds no GPU"), group.joined(setting):
        pass


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_where_no_address_is_given_torch_says_so_at_once(address, meeting, monkeypatch, missing):
    monkeypatch.delenv(missing)
    monkeypatch.setattr(group.time, "sleep", lambda _: pytest.fail("it waits"))
    with pytest.raises(Met):
        meeting(1)
