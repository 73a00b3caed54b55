"""Recurrences in UTC: the same moments as in their own time zone, or a reason why not."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from components.crontab import first, in_utc

NOW = datetime(2026, 11, 30, 10, 7, tzinfo=UTC)
NAMES = {name: str(number) for number, name in enumerate(["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"])}


def _field(field, value, least, most):
    """Whether a field of cron is about a value: a second reading of the same rules, to hold the first to."""
    for item in field.split(","):
        span, _, step = item.partition("/")
        low, _, high = span.partition("-")
        start = least if low == "*" else int(NAMES.get(low, low))
        end = most if low == "*" or (step and not high) else int(NAMES.get(high or low, high or low))
        if start <= value <= end and (value - start) % int(step or 1) == 0:
            return True
    return False


def _at(cron, time):
    minute, hour, day, month, weekday = cron.split()
    of_week = time.isoweekday() % 7
    return (
        _field(minute, time.minute, 0, 59)
        and _field(hour, time.hour, 0, 23)
        and _field(day, time.day, 1, 31)
        and _field(month, time.month, 1, 12)
        and (_field(weekday, of_week, 0, 7) or (of_week == 0 and _field(weekday, 7, 0, 7)))
    )


def _item(least, most):
    number = st.integers(least, most)
    return st.one_of(
        st.just("*"),
        number.map(str),
        st.tuples(number, number).map(lambda ends: f"{min(ends)}-{max(ends)}"),
        st.integers(1, most).map(lambda step: f"*/{step}"),
    )


@settings(max_examples=60, deadline=None)
@given(
    minute=_item(0, 59),
    hour=_item(0, 23),
    weekday=st.one_of(_item(0, 7), st.just("MON-FRI"), st.just("SAT,SUN")),
    zone=st.sampled_from(["Asia/Shanghai", "Asia/Kolkata", "Etc/UTC", "America/Phoenix", "Asia/Kathmandu"]),
)
def test_in_utc_a_recurrence_is_of_the_same_moments(minute, hour, weekday, zone):
    cron, known = f"{minute} {hour} * * {weekday}", ZoneInfo(zone)
    found = in_utc(cron, zone, NOW)
    for ahead in range(0, 8 * 24 * 60, 7):  # all minutes of an hour, and all days of a week
        time = NOW + timedelta(minutes=ahead)
        assert any(_at(one, time) for one in found) == _at(cron, time.astimezone(known)), time


def test_mornings_in_shanghai_are_the_nights_before_in_utc():
    assert in_utc("0 7 * * MON-FRI", "Asia/Shanghai", NOW) == ("0 23 * * SUN,MON,TUE,WED,THU",)
    assert in_utc("0 9 * * MON-FRI", "Asia/Shanghai", NOW) == ("0 1 * * MON,TUE,WED,THU,FRI",)
    assert in_utc("30 7,9 * * 1", "Asia/Shanghai", NOW) == ("30 23 * * SUN", "30 1 * * MON")
    assert in_utc("0 9 1 * *", "Asia/Shanghai", NOW) == ("0 1 1 * *",)


@pytest.mark.parametrize("number", ["0", "7", "SUN"])
def test_days_of_the_week_are_named_as_clouds_number_them_differently(number):
    assert in_utc(f"0 7 * * {number}", "Etc/UTC", NOW) == ("0 7 * * SUN",)


@pytest.mark.parametrize(
    ("cron", "zone", "reason"),
    [
        ("0 7 * * *", "Europe/Berlin", "changes its time"),
        ("0 7 * * *", "America/New_York", "changes its time"),
        ("0 7 1 * *", "Asia/Shanghai", "another day"),
        ("0 7 * 1 *", "Asia/Shanghai", "another day"),
        ("0 7 1 * MON", "Etc/UTC", "of the month and of the week"),
    ],
)
def test_what_can_not_be_said_in_utc_is_refused_and_not_shifted_by_an_hour_or_a_day(cron, zone, reason):
    with pytest.raises(ValueError, match=reason):
        in_utc(cron, zone, NOW)


def test_the_first_time_is_the_next_and_none_where_it_is_too_far():
    assert first("0 23 * * SUN,MON", NOW, 90) == datetime(2026, 11, 30, 23, tzinfo=UTC)
    assert first("7 10 * * *", NOW, 90) == datetime(2026, 12, 1, 10, 7, tzinfo=UTC)
    assert first("0 23 * * 7", NOW, 90) == datetime(2026, 12, 6, 23, tzinfo=UTC)
    assert first("0 0 1 JUN *", NOW, 90) is None
