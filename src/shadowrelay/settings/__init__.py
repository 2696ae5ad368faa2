"""Reads the settings of a node: environment over one TOML file over defaults; reports all errors at once."""

from shadowrelay.settings.description import Described, Effective, described, effective
from shadowrelay.settings.errors import SettingError, SettingsInvalid
from shadowrelay.settings.loading import apply_overrides, load_settings, settings_from_tree, to_toml
from shadowrelay.settings.outputs import Admin, Log, LogFormat, LogLevel, Tracking
from shadowrelay.settings.schema import (
    MemberConnector,
    MemberSettings,
    NextHopProtocol,
    ReceiveConnector,
    RouteSettings,
    Settings,
    Tls,
)
from shadowrelay.settings.sources import SETTINGS_PATH_VARIABLE
from shadowrelay.settings.values import HostPort, format_duration, format_size, parse_duration, parse_size
from shadowrelay.settings.warnings import settings_warnings

__all__ = [
    "SETTINGS_PATH_VARIABLE",
    "Admin",
    "Described",
    "Effective",
    "HostPort",
    "Log",
    "LogFormat",
    "LogLevel",
    "MemberConnector",
    "MemberSettings",
    "NextHopProtocol",
    "ReceiveConnector",
    "RouteSettings",
    "SettingError",
    "Settings",
    "SettingsInvalid",
    "Tls",
    "Tracking",
    "apply_overrides",
    "described",
    "effective",
    "format_duration",
    "format_size",
    "load_settings",
    "parse_duration",
    "parse_size",
    "settings_from_tree",
    "settings_warnings",
    "to_toml",
]
