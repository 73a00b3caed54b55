"""What happened in a run, in order, one line each: boots, generations, checkpoints, drains, faults."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import chain

from cli.history import Event, History
from cli.words import Tone, counted, duration, plain, size
from trainer.node.peers import DRAINING, FAILED, Generation


@dataclass(frozen=True)
class Moment:
    """Something that happened. `key` says which thing it is, `time` when, in seconds since 1970."""

    key: str
    time: float
    text: str
    tone: Tone = "quiet"


def moments(history: History, now: float, lost: Collection[str] = ()) -> list[Moment]:
    """All that happened, oldest first. What nobody put a time to gets `now`: it is told when it is first seen."""
    told = chain(_of_boots(history), _of_generations(history), _of_events(history), _of_members(history, now, lost))
    return sorted(told, key=lambda moment: moment.time)


def fault(generation: Generation) -> bool:
    """Whether the generation came of something that went wrong, not of a drain or of newcomers."""
    return generation.number > 1 and not generation.graceful


def why(generation: Generation) -> str:
    """Why a generation was formed, in words."""
    return "the first" if generation.number == 1 else plain(generation.why)


def _of_boots(history: History) -> Iterator[Moment]:
    for node, boot in history.boots.items():
        at = boot.started
        for step in boot.steps:
            at += step["seconds"]
            told = f"{step['step']}: {plain(step['detail'])}"
            if step["status"] == "failed":
                yield Moment(f"boot {node} {boot.started}", at, f"{node}: boot failed at {told}", "bad")
            elif step["status"] == "degraded":
                yield Moment(f"boot {node} {told}", at, f"{node}: goes on without {told}", "busy")
            elif step["step"] == "launch":
                yield Moment(f"boot {node} {boot.started}", at, f"{node}: booted in {duration(boot.seconds)}")


def _of_generations(history: History) -> Iterator[Moment]:
    spans = history.spans
    for number, generation in history.generations.items():
        at = spans[number].started if number in spans else history.formed[number]
        text = f"generation {number}: {counted(len(generation.members), 'node')}, world {generation.world}"
        cause = "" if number == 1 else f" ({why(generation)})"
        yield Moment(f"generation {number}", at, text + cause, "bad" if fault(generation) else "good")


def _of_events(history: History) -> Iterator[Moment]:
    for event in history.events:
        told = _told(event)
        if told:
            text, tone = told
            yield Moment(f"{event.event} {event.generation} {event.time}", event.time, text, tone)


def _told(event: Event) -> tuple[str, Tone] | None:
    details = event.details
    match event.event:
        case "checkpoint":
            saved = f" ({size(details['bytes'])})" if "bytes" in details else ""
            return f"checkpoint at step {event.step:,}{saved}", "quiet"
        case "checkpoint-failed":
            return f"checkpoint at step {event.step:,} failed: {plain(str(details.get('error', '')))}", "bad"
        case "resume":
            return f"resumed from step {event.step:,}", "good"
        case "drain":
            return f"drained at step {event.step:,}", "busy"
        case "done":
            return f"all {event.step:,} steps done", "good"
    return None


def _of_members(history: History, now: float, lost: Collection[str]) -> Iterator[Moment]:
    """What befell members of the newest generation, and is not told yet by a next one."""
    newest = history.generation
    if newest is None or history.outcome:
        return
    for member in newest.members:
        card = history.cards.get(member.node)
        ended = card.ended if card and card.ended and card.ended.generation == newest.number else None
        if ended and ended.how == FAILED:
            yield Moment(f"ended {member.node} {newest.number}", now, f"{member.node}: {plain(ended.reason)}", "bad")
        if member.node in lost:
            yield Moment(f"lost {member.node} {member.incarnation}", now, f"{member.node}: no sign of life", "bad")
        elif card and card.state == DRAINING:
            yield Moment(f"draining {member.node} {member.incarnation}", now, f"{member.node}: draining", "busy")
