"""Checks the tokens of the admin API."""

from __future__ import annotations

from collections.abc import Iterator

from shadowrelay.admin.access import read_secret
from shadowrelay.settings.errors import SettingError
from shadowrelay.settings.route_checks import Refuse
from shadowrelay.settings.schema import Settings


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
