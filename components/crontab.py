"""Recurrences of cron in UTC, for clouds whose schedules know no other time zone: pure functions."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

DAY_MINUTES = 24 * 60
WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")

AHEAD_DAYS = 366
"""For how long a time zone must keep its distance from UTC."""


def in_utc(cron: str, zone: str, since: datetime) -> tuple[str, ...]:
    """What this recurrence of a time zone is in UTC, from `since` on for a year: one, or several that together are it.

    `cron` is one that `scaling.cron_fault` finds no fault with. Days of the week become names, as clouds number them
    differently. Raises `ValueError`, with the reason, for what can't be said in UTC.
    """
    minutes, hours, days, months, weekdays = cron.split()
    if days != "*" and weekdays != "*":
        raise ValueError(f"'{cron}' names days of the month and of the week, and clouds differ in which of them count")
    offset = _offset(zone, since)
    found: defaultdict[int, defaultdict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for hour in _values(hours, 0, 23):
        for minute in _values(minutes, 0, 59):
            day, time = divmod(60 * hour + minute - offset, DAY_MINUTES)
            found[day if weekdays != "*" else 0][time % 60].add(time // 60)
            if day and (days, months) != ("*", "*"):
                raise ValueError(f"'{cron}' in {zone} falls on another day in UTC, which no day of a month can say")
    return tuple(
        f"{_field(same, 60)} {_field(at, 24)} {days} {months} {_shifted(weekdays, day)}"
        for day, times in sorted(found.items())
        for at, same in _alike(times)
    )


def first(cron: str, since: datetime, days: int) -> datetime | None:
    """When a recurrence of UTC comes next after `since`, within so many days; None where it doesn't."""
    minutes, hours, of_month, months, weekdays = cron.split()
    for ahead in range(days):
        day = (since + timedelta(days=ahead)).replace(hour=0, minute=0, second=0, microsecond=0)
        if (
            day.day in _values(of_month, 1, 31)
            and day.month in _values(months, 1, 12, MONTHS)
            and day.isoweekday() % 7 in _days(weekdays)
        ):
            for hour in _values(hours, 0, 23):
                for minute in _values(minutes, 0, 59):
                    if (time := day.replace(hour=hour, minute=minute)) > since:
                        return time
    return None


def _offset(zone: str, since: datetime) -> int:
    """Minutes that a zone is ahead of UTC. Raises `ValueError` where that changes."""
    known = ZoneInfo(zone)
    days = ((since + timedelta(days=day)).astimezone(UTC) for day in range(AHEAD_DAYS))
    offsets = {known.utcoffset(day.astimezone(known)) for day in days}
    if len(offsets) > 1:
        raise ValueError(f"{zone} changes its time within the year, and schedules run by UTC alone")
    (offset,) = offsets
    return int(offset.total_seconds() // 60) if offset else 0


def _values(field: str, least: int, most: int, names: tuple[str, ...] = ()) -> list[int]:
    """The numbers that a field names, in order; `names` are those of the numbers from the least on."""
    named = {name: number for number, name in enumerate(names, least)}
    found: set[int] = set()
    for item in field.split(","):
        match = re.fullmatch(r"(?:\*|(\w+)(?:-(\w+))?)(?:/(\d+))?", item)
        assert match is not None, field
        low, high = (named.get(end.upper(), end) if end else None for end in match.group(1, 2))
        start = least if low is None else int(low)
        end = int(high) if high is not None else start if low is not None and not match[3] else most
        found.update(range(start, end + 1, int(match[3] or 1)))
    return sorted(found)


def _days(weekdays: str) -> set[int]:
    """Days of the week, Sunday being 0; cron takes it as 7, too."""
    return {day % 7 for day in _values(weekdays, 0, 7, WEEKDAYS)}


def _shifted(weekdays: str, day: int) -> str:
    """Days of the week, so many later."""
    if weekdays == "*":
        return weekdays
    found = sorted({(one + day) % 7 for one in _days(weekdays)})
    return "*" if len(found) == len(WEEKDAYS) else ",".join(WEEKDAYS[one] for one in found)


def _alike(times: dict[int, set[int]]) -> list[tuple[tuple[int, ...], list[int]]]:
    """Minutes by the hours that they are of, so that those of the same hours are one recurrence."""
    found: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
    for minute, hours in sorted(times.items()):
        found[tuple(sorted(hours))].append(minute)
    return sorted(found.items())


def _field(numbers: Iterable[int], all_of: int) -> str:
    found = list(numbers)
    return "*" if len(found) == all_of else ",".join(map(str, found))
