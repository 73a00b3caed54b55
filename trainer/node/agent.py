"""The agent: boots the node in named steps, then keeps it in one generation after another until the run has ended."""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from trainer import exits, layout
from trainer.metadata import Ec2Metadata
from trainer.node import fabric, health, storage
from trainer.node.config import NodeConfig, Paths
from trainer.node.console import say
from trainer.node.fabric import Fabric
from trainer.node.generations import Generations
from trainer.node.membership import HURRIED, Membership, Outcome
from trainer.node.peers import QUORUM_LIMIT_S, Card
from trainer.node.shipping import Shipper
from trainer.node.steps import BootReport, StepFailed
from trainer.node.workers import Job, trainer_command
from trainer.store import Store, StoreError, open_store

IDENTIFY_LIMIT_S = 60
DATASET_WAIT_S = 900
STORAGE_LIMIT_S = 7200
FABRIC_LIMIT_S = 60
HEALTH_LIMIT_S = 120
PEERS_LIMIT_S = QUORUM_LIMIT_S + 600
LAUNCH_LIMIT_S = 60
"""Limits of the boot's steps, in seconds."""

RETRY_S = 1.0


class Left(Exception):
    """The node was asked to leave while it booted."""


@dataclass
class Agent:
    """One node's agent. `run` returns the exit code of its process."""

    config: NodeConfig
    paths: Paths
    metadata: Ec2Metadata
    generations: Generations | None = None

    def run(self) -> int:
        """Boot, then train. A run that has ended already is left alone."""
        signal.signal(signal.SIGTERM, self._leave)
        signal.signal(signal.SIGINT, self._leave)
        bucket = open_store(f"s3://{self.config.bucket}")
        store = open_store(bucket.url(layout.run_prefix(self.config.run)))
        shipper = Shipper(store)
        report = BootReport(lambda node, content: self._publish(store, node, content))
        outcome = None
        try:
            outcome = self._train(bucket, store, shipper, report)
        except Left:
            pass
        except StepFailed as failure:
            say(f"gives up: {failure}")
            return exits.STEP_FAILED[failure.step]
        finally:
            shipper.close()
        how = "was asked to leave" if outcome is None else "run succeeded" if outcome.succeeded else "run failed"
        say(f"{how}{f': {outcome.reason}' if outcome else ''}")
        return exits.DONE

    def _train(self, bucket: Store, store: Store, shipper: Shipper, report: BootReport) -> Outcome | None:
        membership = report.required("identify", lambda: self._identify(bucket, store, report), IDENTIFY_LIMIT_S)
        if membership.outcome:
            return membership.outcome
        card = membership.card
        shipper.add(self.paths.logs / "agent.log", lambda chunk: layout.log_chunk(card.node, "agent", chunk))
        shipper.start()
        data = report.required("storage", lambda: self._storage(bucket), STORAGE_LIMIT_S)
        found = report.required("fabric", lambda: self._fabric(card.address), FABRIC_LIMIT_S)
        report.required("health", self._health, HEALTH_LIMIT_S)
        generations = Generations(membership, self.metadata, self._job(data, found, store), shipper)
        report.required("peers", generations.first, PEERS_LIMIT_S)
        self.generations = generations
        try:
            report.required("launch", generations.launch, LAUNCH_LIMIT_S)
            return generations.follow()
        finally:
            generations.stop()

    def _identify(self, bucket: Store, store: Store, report: BootReport) -> tuple[Membership, str]:
        identity = self.metadata.identity()
        report.node = identity.node
        incarnation = uuid.uuid4().hex[:12]
        card = Card(identity.node, identity.address, identity.launched, incarnation, self.config.workers)
        membership = Membership(open_store(store.url(), HURRIED), open_store(bucket.url(), HURRIED), card)
        while True:  # bounded by the step's limit: a role, and what it may, take seconds to reach a new instance
            try:
                membership.read_outcome()
                break
            except StoreError as error:
                say(f"the bucket does not answer yet: {error}")
                time.sleep(RETRY_S)
        return membership, f"{identity.node}, {identity.type} in {identity.zone}, {identity.address}"

    def _storage(self, bucket: Store) -> tuple[Path, str]:
        self.paths.scratch.mkdir(parents=True, exist_ok=True)
        name = self.config.job["dataset"]
        datasets = open_store(bucket.url(layout.dataset_prefix(name)))
        return storage.fetch(datasets, self.paths.scratch / "datasets" / name, DATASET_WAIT_S)

    def _fabric(self, address: str) -> tuple[Fabric, str]:
        found = fabric.find(address, self.paths.root)
        return found, f"{found.kind}, {found.devices} devices, TCP over {found.interface}"

    def _health(self) -> tuple[None, str]:
        return None, health.check(self.paths.scratch, self.config.gpus)

    def _job(self, data: Path, found: Fabric, store: Store) -> Job:
        path = self.paths.state / "job.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(dict(self.config.job)))
        scratch = self.paths.scratch / "runs" / self.config.run
        environment = {
            **os.environ,
            **found.environment(),
            # A type without GPUs trains on its CPUs, also on an embedded cloud whose machine has some.
            **({} if self.config.gpus else {"CUDA_VISIBLE_DEVICES": ""}),
            "TRAINWRIGHT_JOB": str(path),
            "TRAINWRIGHT_STORE": store.url(),
            "TRAINWRIGHT_DATA": str(data),
        }
        return Job(trainer_command(), self.config.run, environment, self.paths.logs, scratch)

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
