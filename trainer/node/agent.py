"""The agent: boots the node in named steps, then keeps it in one generation after another until the run has ended."""

from __future__ import annotations

import json
import math
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path

import trainer
from trainer import exits, layout
from trainer.alicloud import Api
from trainer.console import say
from trainer.metadata import EcsMetadata, Identity, Metadata
from trainer.node import exposition, fabric, harden, health, nccl, preflight
from trainer.node.config import NodeConfig, Paths
from trainer.node.ess import Ess
from trainer.node.fabric import Fabric
from trainer.node.gauges import Gauges
from trainer.node.generations import Generations, Quarantined
from trainer.node.lifecycle import Lifecycle
from trainer.node.membership import HURRIED, Membership, Outcome
from trainer.node.metrics import CloudMonitor, CloudWatch, Outlet, Sampler
from trainer.node.peers import READY, Card
from trainer.node.queue import Turn, first
from trainer.node.rules import QUORUM_LIMIT_S
from trainer.node.serving import Shelf, serving
from trainer.node.shipping import Shipper
from trainer.node.steps import BootReport, StepFailed
from trainer.node.tiers import Tiers, code_folder
from trainer.node.turns import Turns, clear
from trainer.node.workers import Job, trainer_command
from trainer.store import Entry, Store, StoreError, open_store

IDENTIFY_LIMIT_S = 60 + preflight.CLOCK_LIMIT_S
HARDEN_LIMIT_S = harden.LIMIT_S + 30
STORAGE_LIMIT_S = 7200
FABRIC_LIMIT_S = 60
SYSTEM_LIMIT_S = preflight.SYSTEM_LIMIT_S + 10
HEALTH_LIMIT_S = 120 + preflight.LOOPBACK_LIMIT_S
PEERS_LIMIT_S = QUORUM_LIMIT_S + 600
LAUNCH_LIMIT_S = 60
"""Limits of the boot's steps, in seconds; `tiers` has its own."""

RETRY_S = 1.0

SCHEMES = {"aws": "s3", "alicloud": "oss"}
"""Of the address of a cloud's buckets (`store.open_store`)."""

LIBRARY = Path(trainer.__file__).parents[1]
"""The bundle's folder, with the `trainer` package in it."""

LINGER_S = 5 * 3600.0
"""How long a node says that its run has ended: longer than anybody waits for that (`scaling.idle_minutes`)."""


class Left(Exception):
    """The node was asked to leave while it booted."""


@dataclass
class Agent:
    """One node's agent. `run` returns the exit code of its process."""

    config: NodeConfig
    paths: Paths
    metadata: Metadata
    generations: Generations | None = None
    sampler: Sampler | None = None
    lifecycle: Lifecycle | None = None
    shipper: Shipper | None = None
    turns: Turns | None = None
    shown: bool = False
    """Whether its samples are shown to Prometheus."""
    used: bool = False
    """Whether it has taken part in a run before: its hours since its launch are not all of the next one's."""

    def run(self) -> int:
        """Boot, then train, or serve the dataset. A run that has ended already is left alone.

        Where the cluster has a queue, the node then goes on to the next run in it, again and again.
        """
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGINT, self._leave)
        bucket = open_store(f"{SCHEMES[self.config.cloud]}://{self.config.bucket}")
        outcome = None
        try:
            outcome = (self._serve if self.config.role == "data" else self._train_all)(bucket)
            if outcome:
                self._linger()
        except Left:
            pass
        except StepFailed as failure:
            say(f"gives up: {failure}")
            return exits.STEP_FAILED[failure.step]
        except Quarantined as reason:
            say(f"leaves, in quarantine: {reason}")
            return exits.QUARANTINED
        finally:
            self._part()
            if self.sampler:
                self.sampler.close()
            if self.shipper:
                self.shipper.close()
        how = "was asked to leave" if outcome is None else "run succeeded" if outcome.succeeded else "run failed"
        say(f"{how}{f': {outcome.reason}' if outcome else ''}")
        return exits.DONE

    def _begin(self, store: Store) -> tuple[Shipper, BootReport]:
        """What tells of this node below a prefix from here on."""
        self.shipper = self.shipper.onward(store) if self.shipper else Shipper(store)
        return self.shipper, BootReport(lambda node, content: self._publish(store, node, content))

    def _train_all(self, bucket: Store) -> Outcome | None:
        """Train the run, then those of the queue, each to its end. How the last ended; None where this node left it."""
        if self.config.queue:
            report = BootReport(lambda node, content: self._publish(bucket, node, content))
            own = report.required("identify", lambda: self._own(bucket), IDENTIFY_LIMIT_S)
            self.config = replace(self.config, run=own.run, job=own.job)
            self.turns = Turns(bucket, self.config, lambda: self.generations is not None and self.generations.leads)
        while (outcome := self._train(bucket)) and self.turns:
            assert self.sampler is not None
            assert self.lifecycle is not None
            assert self.shipper is not None
            last, self.generations, ended = self.generations, None, self.config.run  # from here on, a signal raises
            if last and (last.leaving or last.membership.card.state != READY):
                self.generations = last
                break
            turn = self.turns.next(self.sampler, self.lifecycle)
            self.config = replace(self.config, run=turn.run, job=turn.job)
            if turn.run != ended:
                self.shipper.close()  # the logs go
                clear(self.paths, ended, turn.job["dataset"])
        return outcome

    def _train(self, bucket: Store) -> Outcome | None:
        store = open_store(bucket.url(layout.run_prefix(self.config.run)))
        shipper, report = self._begin(store)
        membership = report.required("identify", lambda: self._identify(bucket, store, report), IDENTIFY_LIMIT_S)
        card = membership.card
        self.lifecycle = lifecycle = self._lifecycle(card.node)
        self._harden(report)
        self._sample(shipper, card.node, active=membership.outcome is None)
        self._show(card)
        if membership.outcome:
            return membership.outcome
        self._ship(shipper, card.node)
        tiers = Tiers(self.config, self.paths, bucket)
        shown = tiers.set_up(report)
        fails = partial(self._fails, membership)
        data = report.required("storage", lambda: tiers.needs(card.node, shown, fails), STORAGE_LIMIT_S)
        if membership.outcome:
            return membership.outcome
        found = report.required("fabric", lambda: self._fabric(card.address), FABRIC_LIMIT_S)
        report.optional("system", lambda: preflight.system(self.config.gpus, found.kind), SYSTEM_LIMIT_S, None)
        report.required("health", lambda: self._health(found, shipper, membership, report), HEALTH_LIMIT_S)
        if membership.outcome:
            return membership.outcome
        generations = Generations(membership, lifecycle, self._job(data, found, store), shipper)
        self.generations = generations  # from here on, a signal asks it, as others see this node
        report.required("peers", generations.first, PEERS_LIMIT_S)
        if self.turns:
            self.turns.backlog.look()
        try:
            report.required("launch", generations.launch, LAUNCH_LIMIT_S)
            return generations.follow()
        finally:
            generations.stop()
            lifecycle.close()

    def _serve(self, bucket: Store) -> None:
        """A data node's life: it serves what it has, from the first shard on, until it is asked to leave."""
        store = open_store(bucket.url(layout.DATA))
        shipper, report = self._begin(store)
        identity = report.required("identify", lambda: self._introduce(store, report), IDENTIFY_LIMIT_S)
        self._harden(report)
        self._ship(shipper, identity.node)
        tiers = Tiers(self.config, self.paths, bucket)
        tiers.set_up(report)
        shelf = Shelf()
        offered = serving(shelf, store, identity.node, identity.address, self.config.job["dataset"])
        with ExitStack() as leaving:

            def launch() -> tuple[None, str]:
                return None, "serves shards at {}:{}".format(*leaving.enter_context(offered))

            report.required("launch", launch, LAUNCH_LIMIT_S)
            report.required("storage", lambda: tiers.fetch(arrived=shelf.add), STORAGE_LIMIT_S)
            shelf.complete = True
            while True:  # until a signal's handler raises; a signal just before a `pause` would be slept through
                time.sleep(RETRY_S)

    def _own(self, bucket: Store) -> tuple[Turn, str]:
        """The stack's own run, of which other nodes' user-data may tell another than this one's does."""
        preflight.set_clock()
        told, found = Turn(self.config.run, self.config.job), []
        self._await_answer(lambda: found.append(first(bucket, told)))
        return found[0], f"the stack's own run is {found[0].run}"

    def _identify(self, bucket: Store, store: Store, report: BootReport) -> tuple[Membership, str]:
        identity = self._since(self._identity(report), store)
        incarnation = uuid.uuid4().hex[:12]
        card = Card(identity.node, identity.address, identity.launched, incarnation, self.config.workers)
        most_s = 3600.0 * self.config.job.get("hours", 0) or math.inf
        run, fleet = open_store(store.url(), HURRIED), open_store(bucket.url(), HURRIED)
        membership = Membership(run, fleet, card, most_s=most_s)
        self._await_answer(membership.read_outcome)
        if membership.outcome is None:
            since = {"launched": ""} if self.used else {}
            page = json.dumps({**asdict(identity), "gpus": self.config.gpus, **since}).encode()
            self._await_answer(lambda: store.put(layout.audit_node(identity.node), page, if_absent=True))
            self.used = True
        return membership, str(identity)

    def _introduce(self, store: Store, report: BootReport) -> tuple[Identity, str]:
        identity = self._identity(report)
        self._await_answer(lambda: store.list(layout.DATA_NODES))
        return identity, str(identity)

    def _identity(self, report: BootReport) -> Identity:
        """Who this node is, once its clock is right: any request to the bucket is signed by it."""
        identity = self.metadata.identity()
        report.node = identity.node
        preflight.set_clock()
        return identity

    def _since(self, identity: Identity, store: Store) -> Identity:
        """The identity with its age, by the bucket's clock where the cloud tells none: when it was first seen there."""
        if identity.launched:
            return identity
        key, found = layout.seen(identity.node), list[Entry]()

        def look() -> None:
            if not (entries := store.list(key)):
                store.put(key, b"")
                entries = store.list(key)
            found.extend(entries)

        self._await_answer(look)
        return replace(identity, launched=datetime.fromtimestamp(found[0].modified, UTC).isoformat())

    @cached_property
    def _api(self) -> Api:
        """Alibaba Cloud's, with the node's role, whose credentials it keeps."""
        return Api(self.config.region)

    def _lifecycle(self, node: str) -> Lifecycle:
        config = self.config
        group = Ess(self._api, node, config.hook) if config.cloud == "alicloud" else None
        return Lifecycle(self.metadata, node, config.region, config.hook, group, self._part)

    def _part(self) -> None:
        """See to it that what this node leaves undone is taken up, where the cluster has a queue."""
        if self.turns:
            self.turns.backlog.leave()

    def _harden(self, report: BootReport) -> None:
        """See that the node's metadata service is closed, where it was told that it must be."""
        service = self.metadata
        if self.config.harden and isinstance(service, EcsMetadata):
            report.required("harden", lambda: harden.check(service), HARDEN_LIMIT_S)

    def _await_answer(self, read: Callable[[], object]) -> None:
        """Read until the bucket answers: a role, and what it may, take seconds to reach a new instance."""
        while True:  # bounded by the step's limit
            try:
                read()
            except StoreError as error:
                say(f"the bucket does not answer yet: {error}")
                time.sleep(RETRY_S)
            else:
                return

    def _ship(self, shipper: Shipper, node: str) -> None:
        log = self.paths.logs / "agent.log"
        shipper.add(log, lambda chunk: layout.log_chunk(node, "agent", chunk), lasting=True)
        shipper.start()

    def _sample(self, shipper: Shipper, node: str, *, active: bool) -> None:
        """Sample the node's hardware from now on, to the run's prefix and, where the node was told so, CloudWatch."""
        if self.sampler:
            self.sampler.active = active
            return
        path = self.paths.logs / "samples.jsonl"
        shipper.add(path, lambda chunk: layout.sample_chunk(node, chunk), lasting=True)
        cloud = self._cloud() if self.config.namespace else None
        self.sampler = Sampler(path, Gauges(self.paths.scratch, self.config.gpus), cloud, active, self._counted)
        self.sampler.start()

    def _show(self, card: Card) -> None:
        """Show samples to Prometheus, once, where the node was told so. That its port is taken costs but a word."""
        sampler, port = self.sampler, self.config.prometheus
        if self.shown or not port or sampler is None:
            return
        self.shown = True
        try:
            labels = {"cluster": self.config.cluster, "node": card.node}
            exposition.serve(card.address, port, lambda: sampler.latest, labels)
        except OSError as error:
            say(f"metrics can't be shown to Prometheus at port {port}: {error}")

    def _cloud(self) -> Outlet:
        config = self.config
        if config.cloud == "alicloud":
            return CloudMonitor(config.namespace, config.bucket, self._api)
        return CloudWatch(config.namespace)

    def _counted(self) -> Mapping[str, float]:
        """What the cluster's queue adds to a sample, where the cloud itself counts no backlog."""
        if not self.turns or not self.lifecycle:
            return {}
        return self.turns.backlog.per_node(Ess(self._api, self.lifecycle.node, self.config.hook).capacity)

    def _linger(self) -> None:
        """Stay, where somebody listens, and go on saying that the run has ended: the fleet is set to zero by that."""
        leaving = self.generations is not None and self.generations.leaving
        if leaving or self.sampler is None or self.sampler.cloud is None or self.lifecycle is None:
            return
        self.sampler.active, self.generations = False, None
        say(f"the run has ended; says so to CloudWatch until the node is ended, for {LINGER_S / 3600:g} hours at most")
        self.lifecycle.attend(LINGER_S)

    def _fails(self, membership: Membership, reason: str) -> bool:
        """End a run that no node can train, where there is a queue; whether it was, which it isn't once a node could.

        Else each node would end in turn, and be replaced, and others in the queue would wait for ever.
        """
        shown: list[Entry] = []
        self._await_answer(lambda: shown.extend(membership.store.list(layout.MEMBERS)))
        if not self.config.queue or shown:
            return False
        self._await_answer(lambda: membership.end(succeeded=False, reason=reason))
        self._await_answer(membership.read_outcome)
        return True

    def _fabric(self, address: str) -> tuple[Fabric, str]:
        found = fabric.find(address, self.config.efa, self.paths.root, self.config.erdma, self.config.jumbo)
        told = nccl.told(found.environment(), self._chosen, os.environ)
        return found, f"{found.kind}, {found.devices} devices, TCP over {found.interface}; {told}"

    def _health(self, found: Fabric, shipper: Shipper, membership: Membership, report: BootReport) -> tuple[None, str]:
        gpus, node = self.config.gpus, membership.card.node
        room = 0 if self._saves.is_dir() else preflight.room(self.config.job)
        whole = not report.degraded("scratch")
        if whole and (reason := health.too_small(self.paths.scratch, room)) and self._fails(membership, reason):
            return None, f"the run fails: {reason}"
        fit = health.check(self.paths.scratch, gpus, self.config.nvswitch, room, self.config.tdx)
        if not gpus:
            return None, fit
        folder = self.paths.logs / "loopback"
        shipper.add(folder / "rank0.log", lambda chunk: layout.log_chunk(node, "loopback", chunk))
        environment = {**os.environ, **found.environment(), **self._chosen}
        tried = preflight.loopback(environment, gpus, nccl.expected(found.kind, self._chosen), folder)
        return None, f"{fit}, {tried}"

    @property
    def _chosen(self) -> Mapping[str, str]:
        chosen: Mapping[str, str] = self.config.job.get("environment", {})
        return chosen

    @property
    def _saves(self) -> Path:
        return self.paths.scratch / "runs" / self.config.run

    def _job(self, data: Path | None, found: Fabric, store: Store) -> Job:
        path = self.paths.state / "job.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        job = {key: value for key, value in self.config.job.items() if key not in nccl.OF_THE_NODE}
        path.write_text(json.dumps(job))
        own, saves = job.get("command"), self._saves
        asked = {"chosen": self._chosen, "nccl_debug": self.config.job.get("nccl_debug", False)}
        # Runs on one node count their generations, by which logs are named, each from 1.
        logs = self.paths.logs / self.config.run if self.config.queue else self.paths.logs
        environment = {
            **os.environ,
            **found.environment(),
            # A type without GPUs trains on its CPUs, also on an embedded cloud whose machine has some.
            **({} if self.config.gpus else {"CUDA_VISIBLE_DEVICES": ""}),
            "GPUS_PER_NODE": str(self.config.gpus),
            "TRAINWRIGHT_JOB": str(path),
            "TRAINWRIGHT_STORE": store.url(),
            **({"TRAINWRIGHT_DATA": str(data)} if data else {}),
        }
        if not own:
            return Job(trainer_command(), self.config.run, environment, logs, saves, **asked)
        folder = code_folder(self.paths) / sha256 if (sha256 := self.config.job.get("code")) else saves
        # What the bundle carries must not stand before the image's own packages, of which it may have an older one.
        environment |= {"PYTHONPATH": str(folder), "TRAINWRIGHT_LIBRARY": str(LIBRARY)}
        return Job(own, self.config.run, environment, logs, saves, self.config.job["launcher"], folder, **asked)

    def _publish(self, store: Store, node: str, content: bytes) -> None:
        (self.paths.logs / "boot.json").write_bytes(content)
        if not node:
            return  # a node that could not find out its name can't tell the others either
        try:
            store.put(layout.boot_report(node), content)
        except StoreError as error:
            say(f"boot report not published: {error}")

    def _leave(self, *_: object) -> None:
        if self.generations is None:
            raise Left
        self.generations.leaving = True
