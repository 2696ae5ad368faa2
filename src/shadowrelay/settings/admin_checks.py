"""Checks the tokens of the admin API, and whether traces can be made."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from shadowrelay.admin.access import read_secret
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.route_checks import Refuse
from shadowrelay.settings.schema import Settings


def trace_checks(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Traces need a library that is an extra of this package."""
    if settings.traces.endpoint and not _can_trace():
        yield refuse(
            "traces.endpoint",
            "the library for traces is not installed: pip install 'shadowrelay[traces]', or leave it out",
            value=settings.traces.endpoint,
        )


def _can_trace() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def admin_checks(settings: Settings, refuse: Refuse) -> Iterator[SettingError]:
    """Errors of the list ``admin.tokens``: names and secrets tell who asks, so each is there once."""
    names: set[str] = set()
    secrets = {settings.admin.token.get_secret_value(): "admin.token"} if settings.admin.token else {}
    for index, token in enumerate(settings.admin.tokens):
        at = f"admin.tokens[{index}]"
        if token.name in names:
            yield refuse(f"{at}.name", "another token has the same name", value=token.name)
        names.add(token.name)
        try:
            secret = read_secret(token.file)
        except FileNotFoundError:
            yield refuse(f"{at}.file", "there is no such file", value=token.file)
            continue
        except OSError as error:
            yield refuse(f"{at}.file", f"cannot be read: {error.strerror}", value=token.file)
            continue
        except ValueError as error:
            yield refuse(f"{at}.file", str(error), value=token.file)
            continue
        if other := secrets.get(secret):
            yield refuse(f"{at}.file", f"{other} is the same token", value=token.file)
        secrets.setdefault(secret, f"{at}.file")
