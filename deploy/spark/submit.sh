#!/usr/bin/env bash
# Run the audit on a Spark cluster: deploy/spark/submit.sh MASTER verify --out DIR DIR…
# MASTER is spark://HOST:PORT, yarn, or k8s://…; everything after it are arguments of shadowaudit.
set -euo pipefail

[ $# -ge 2 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
master=$1
shift
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYSPARK_PYTHON:-$root/.venv/bin/python}
[ -x "$python" ] || { echo "no Python at $python: say PYSPARK_PYTHON=…, one that has 'shadowrelay[audit]'" >&2; exit 2; }

# Workers import the package from this archive; the packages that it needs they must have themselves.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
(cd "$root/src" && "$python" -m zipfile -c "$work/shadowaudit.zip" shadowaudit)

JAVA_HOME=$("$python" -c 'from shadowaudit.spark.java import find_java, shim; print(shim(find_java().home))')
export JAVA_HOME PYSPARK_PYTHON="$python" PYSPARK_DRIVER_PYTHON="$python"
"$(dirname "$python")/spark-submit" --master "$master" --name shadowaudit --py-files "$work/shadowaudit.zip" \
    --conf spark.ui.enabled=false ${SPARK_SUBMIT_OPTIONS:-} "$here/audit.py" "$@"
