#!/usr/bin/env bash
# Try it: a standalone master and two workers on loopback, for as long as the command given takes.
# deploy/spark/standalone.sh verify --out DIR DIR…
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
python=${PYSPARK_PYTHON:-$root/.venv/bin/python}
JAVA_HOME=$("$python" -c 'from shadowaudit.spark.java import find_java, shim; print(shim(find_java().home))')
export JAVA_HOME PYSPARK_PYTHON="$python" SPARK_LOCAL_IP=127.0.0.1
work=$(mktemp -d)
started=()

end() {
    local pid
    for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
    for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
    rm -rf "$work"
}
trap end EXIT

free_port() { "$python" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

launch() {
    local log=$1
    shift
    "$(dirname "$python")/spark-class" "$@" >"$work/$log" 2>&1 &
    started+=($!)
}

seen() { # seen LOG TEXT: wait until a log says so
    local end=$((SECONDS + 120))
    until grep -q "$2" "$work/$1" 2>/dev/null; do
        [ "$SECONDS" -lt "$end" ] || { echo "$1 did not say '$2':" >&2; tail -5 "$work/$1" >&2; exit 1; }
        sleep 0.2
    done
}

port=$(free_port)
launch master org.apache.spark.deploy.master.Master --host 127.0.0.1 --port "$port" --webui-port 0
seen master 'New state: ALIVE'
for worker in one two; do
    launch "$worker" org.apache.spark.deploy.worker.Worker --host 127.0.0.1 --webui-port 0 --cores 1 --memory 1g \
        --work-dir "$work/$worker-work" "spark://127.0.0.1:$port"
done
for worker in one two; do seen "$worker" 'Successfully registered'; done
echo "spark://127.0.0.1:$port with two workers" >&2
SPARK_SUBMIT_OPTIONS='--conf spark.driver.host=127.0.0.1 --conf spark.executor.memory=700m' \
    "$here/submit.sh" "spark://127.0.0.1:$port" "$@"
