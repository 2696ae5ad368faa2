# shellcheck shell=bash
# Sourced by the other scripts: go to the repository's root and make sure that .venv there is complete.
# Quick when nothing changed; safe when several scripts start at once. Speaks on standard error only.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

_venv_say() { printf 'venv: %s\n' "$*" >&2; }

_venv_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

# The interpreter to build with: $PYTHON, python3, or a newer one beside it.
_venv_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if command -v "$candidate" >/dev/null && _venv_recent "$candidate"; then
            command -v "$candidate"
            return
        fi
    done
    _venv_say "Python 3.11 or newer is needed; found: $("${PYTHON:-python3}" --version 2>&1 || true)"
    _venv_say "install one, or name it: PYTHON=/path/to/python3.12 $0"
    return 1
}

# Debian and Ubuntu ship the venv module without ensurepip, which is in a package of its own.
_venv_ensurepip() {
    local python=$1 package install
    "$python" -c 'import ensurepip, venv' 2>/dev/null && return
    package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
    install="apt-get install -y --no-install-recommends $package"
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        _venv_say "installing $package"
        if { apt-get update -qq && DEBIAN_FRONTEND=noninteractive $install -qq; } </dev/null >&2 &&
            "$python" -c 'import ensurepip, venv' 2>/dev/null; then
            return
        fi
    fi
    _venv_say "$python has no ensurepip, which virtual environments need. Run, then start again:"
    printf '    sudo %s\n' "$install" >&2
    return 1
}

# What the environment was made from; it is complete when the stamp in it says the same.
_venv_wanted() {
    cat pyproject.toml constraints.txt scripts/_venv.sh | sha256sum
    .venv/bin/python --version
    pwd -P
}

_venv_complete() {
    [ -x .venv/bin/python ] && [ "$(_venv_wanted 2>/dev/null)" = "$(cat .venv/.complete 2>/dev/null)" ]
}

_venv_build() {
    local python
    if ! { [ -x .venv/bin/python ] && _venv_recent .venv/bin/python && .venv/bin/python -m pip --version; } >/dev/null 2>&1; then
        python=$(_venv_python) || return
        _venv_ensurepip "$python" || return
        _venv_say "creating .venv with $("$python" --version)"
        find .venv -mindepth 1 ! -path .venv/.lock -delete
        "$python" -m venv .venv || return
    fi
    _venv_say "installing the packages; a minute or so the first time"
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --progress-bar off \
        -e '.[dev,audit,connect]' -c constraints.txt </dev/null |
        sed -u -n -E 's/^(Collecting [^ ]+|Building [^ ]+|Installing collected packages).*/venv:   \1/p' >&2 || {
        _venv_say "the packages could not be installed: see above"
        return 1
    }
    _venv_wanted >.venv/.complete
    _venv_say "ready"
}

# The lock is held by this subshell only: a script that goes on for hours must not keep others out.
_venv() (
    _venv_complete && return
    mkdir -p .venv
    exec 9>.venv/.lock
    if command -v flock >/dev/null && ! flock -n 9; then
        _venv_say "waiting for another script that is building .venv"
        flock 9
    fi
    _venv_complete || { rm -f .venv/.complete && _venv_build; }
)

_venv || exit 1
